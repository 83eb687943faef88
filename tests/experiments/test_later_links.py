"""The test in time: what is frozen, what is asked, how it is ranked, and what the stored records say."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import graph_of

import later_links
from common import RESULTS, Experiment
from fewlink.core.errors import FewlinkError
from fewlink.evaluation.records import RecordStore
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.tasks.benchmark import Task
from later_links import (
    BUILT_IN,
    FrozenGraph,
    found_links,
    freeze,
    frozen_attack,
    measure,
    rank_later,
    tables,
)


def names(graph: Graph, pairs: np.ndarray) -> list[str]:
    return [f"{graph.entities[h]} {graph.entities[t]}" for h, t in pairs.tolist()]


def test_a_graph_is_frozen_and_later_links_of_known_entities_are_asked_for() -> None:
    lines = ("g uses t", "g uses m", "t on w", "h uses t", "h uses m", "n uses t", "h uses u", "u on w", "g has u")
    graph = graph_of(*lines)
    days = ["2020-01-01", "2023-12-31", "2019-01-01", "2021-01-01", "2024-01-01", "2024-02-02", "2022-01-01"]
    days += ["2024-03-03", "2022-02-02"]
    frozen = freeze(graph, days, "2023-12-31", created=("on",))
    assert sorted(frozen.graph.entities) == ["g", "h", "m", "t", "w"]  # n is new; u was created later than its links
    assert sorted(frozen.graph.relations) == ["on", "uses"]
    assert {relation: names(frozen.graph, pairs) for relation, pairs in frozen.later.items()} == {"uses": ["h m"]}
    assert frozen.days == {"uses": ["2024-01-01"]}
    assert names(frozen.graph, frozen.task("uses").pairs) == ["g t", "g m", "h t"]
    assert frozen.benchmark("uses", hidden=True).graph.triple_count == 1
    assert freeze(graph, days, "2023-12-31", created=("on",), fewest=2).later == {}
    with pytest.raises(FewlinkError, match="2010-01-01"):
        freeze(graph, days, "2010-01-01")


def test_attack_at_the_end_of_2023() -> None:
    frozen = frozen_attack()
    assert sum(map(len, frozen.later.values())) == 696 and len(frozen.later["group_uses_technique"]) == 420
    assert min(day for days in frozen.days.values() for day in days) >= "2024-01-01"
    for relation, pairs in frozen.later.items():
        known = {(h, t) for h, t in frozen.task(relation).pairs.tolist()}
        assert not known & {(h, t) for h, t in pairs.tolist()}, relation


class ByNumber:
    """Scores a tail by its number: the highest first."""

    name = "by-number"

    def __call__(self, question: Question) -> np.ndarray:
        return np.tile(question.candidates.astype(float), (len(question.heads), 1))


def test_ranks_leave_out_what_was_known() -> None:
    known = np.array([[0, 4]], np.int32)
    task = Task("r", known, known, np.arange(5, dtype=np.int32))
    tasks, listed = rank_later(ByNumber(), task, known, np.array([[0, 3], [0, 1], [1, 4]], np.int32))
    assert tasks.ranks.tolist() == [1, 2, 1]  # 4 is known of head 0, and 3 does not compete with 1
    assert listed.tolist() == [1, 3, 1]
    assert tasks.candidates.tolist() == [3, 3, 5]


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    given = {"tiny": False, "show": False, "benchmark": None, "named": "attack-2023", "models": None, "seeds": 1}
    return Experiment(Namespace(**given, device="cpu", results=tmp_path, work=tmp_path / "work"))


def small_frozen() -> FrozenGraph:
    lines = ("g uses t", "g uses m", "h uses t", "k uses m", "h uses m", "k uses t", "g has t", "h has m", "k has t")
    return freeze(graph_of(*lines), ["2020-01-01"] * 4 + ["2024-01-01"] * 2 + ["2020-01-01"] * 3, "2023-12-31")


@pytest.mark.parametrize("hidden", [True, False])
def test_a_relation_that_is_asked_about_as_a_new_one_is_not_in_the_graph(hidden: bool) -> None:
    graph = small_frozen().benchmark("uses", hidden=hidden).graph
    assert (graph.triples()[:, 1] == graph.relations.find("uses")).any() != hidden


def test_tables_show_records_of_this_graph_and_the_worth_of_probabilities(experiment: Experiment) -> None:
    frozen = small_frozen()
    record, ranks = measure(experiment, "popularity", "popularity", 3, 1, frozen)
    assert (record.shots, record.references, record.data_sha256) == (3, "draw-1", frozen.fingerprint)
    assert 0 <= record.metrics["micro"]["recall@20"] <= 1 and len(ranks.ranks) == 2
    chances: dict[str, Any] = {"sure": 8, "sure_right": 6, "first": 10, "first_right": 4, "expected": 5.0}
    relations = {"uses": {**record.relations["uses"], **chances}}
    experiment.store.add(record.model_copy(update={"relations": relations}))
    experiment.store.add(record.model_copy(update={"data_sha256": "0" * 64, "model": "rules"}))
    few, known, sure, _ = tables(experiment.store, [3], frozen)
    assert [row[0] for row in few.rows] == ["popularity"] and not known.rows
    assert sure.rows == [["popularity", "3", "8", "6", "10", ".400", ".500"]]


@pytest.mark.slow
def test_a_stored_record_is_measured_again(experiment: Experiment) -> None:
    record, _ = measure(experiment, BUILT_IN, "trail", 3, 1, frozen_attack())
    (stored,) = (
        each
        for each in RecordStore(RESULTS / later_links.NAME).records
        if (each.model, each.shots, each.references) == (BUILT_IN, 3, "draw-1")
    )
    assert record.data_sha256 == stored.data_sha256
    assert record.metrics["micro"] == pytest.approx(stored.metrics["micro"], abs=2e-3)


def test_stored_links_have_names_days_and_ranks() -> None:
    links = found_links(RecordStore(RESULTS / later_links.NAME), BUILT_IN, frozen_attack())
    assert len(links) == 696
    assert ("Volt Typhoon", "PsExec", 1) in [(link.head, link.tail, link.rank) for link in links]
    assert [link.rank for link in links] == sorted(link.rank for link in links)
