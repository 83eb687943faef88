"""The proof in time: what is frozen, what is asked, how it is ranked, and what the stored records say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.conftest import graph_of

from fewlink.core.errors import FewlinkError
from fewlink.evaluation.evaluator import TaskRanks
from fewlink.evaluation.records import RecordStore
from fewlink.graph import Graph
from fewlink.models.contract import Question
from fewlink.models.trail.shipped import shipped
from fewlink.studies import later_links
from fewlink.studies.attack_tables import PREDECESSOR, found_links, stored_tables
from fewlink.studies.later_links import (
    ALL,
    BUILT_IN,
    LaterRanks,
    Place,
    Setting,
    frozen_attack,
    rank_later,
)
from fewlink.tasks.benchmark import Task
from fewlink.tasks.carving import FrozenGraph, freeze

RESULTS = Path(__file__).resolve().parents[2] / "results"


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
    assert frozen.graph.triple_count == 4
    assert {relation: names(frozen.graph, pairs) for relation, pairs in frozen.later.items()} == {"uses": ["h m"]}
    assert frozen.days == {"uses": ["2024-01-01"]}
    assert names(frozen.graph, frozen.task("uses").pairs) == ["g t", "g m", "h t"]
    assert frozen.hidden("uses").triple_count == 1
    assert freeze(graph, days, "2023-12-31", created=("on",), fewest=2).later == {}
    with pytest.raises(FewlinkError, match="2010-01-01"):
        freeze(graph, days, "2010-01-01")


def test_attack_at_the_end_of_2023() -> None:
    frozen = frozen_attack()
    assert {relation: len(pairs) for relation, pairs in frozen.later.items()} == {
        "group_uses_technique": 420,
        "mitigation_mitigates_technique": 106,
        "malware_uses_technique": 84,
        "group_uses_tool": 36,
        "technique_targets_asset": 19,
        "tool_uses_technique": 16,
        "group_uses_malware": 15,
    }
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
    graph = graph_of("a r b", "b r c", "c r d", "d r e", "e r a")
    known = np.array([[0, 4]], np.int32)
    task = Task("r", known, known, np.arange(5, dtype=np.int32))
    answers = rank_later(ByNumber(), graph, task, known, np.array([[0, 3], [0, 1], [1, 4]], np.int32))
    assert answers.tasks.ranks.tolist() == [1, 2, 1]  # 4 is known of head 0, and 3 does not compete with 1
    assert answers.listed.tolist() == [1, 3, 1]
    assert answers.tasks.candidates.tolist() == [3, 3, 5]
    assert answers.chances == {}


def test_an_answer_is_right_if_it_was_known_or_came_later() -> None:
    """Without the reference (0, 4), the answers for head 0 are 3, 2, 1, 0; for head 1 they are 4, 3, 2, 1, 0."""

    def probabilities(pairs: Any, fans: np.ndarray, trust: Any) -> np.ndarray:
        return np.where(pairs.tails == 3, 0.9, np.where(pairs.ranks == 1, 0.5, 0.1))

    calibration: Any = SimpleNamespace(probabilities=probabilities, note=lambda *_: SimpleNamespace(shown=True))
    graph = graph_of("a r b", "b r c", "c r d", "d r e", "e r a")
    known = np.array([[0, 4], [1, 4]], np.int32)
    task, later = Task("r", known, known, np.arange(5, dtype=np.int32)), np.array([[0, 3], [1, 2]], np.int32)
    chances = rank_later(ByNumber(), graph, task, known[:1], later, calibration).chances
    right = {"sure": 2, "sure_right": 1, "first": 2, "first_right": 2}
    assert chances == {**right, "expected": pytest.approx(0.9 + 0.5)}
    hidden: Any = SimpleNamespace(probabilities=probabilities, note=lambda *_: SimpleNamespace(shown=False))
    assert set(rank_later(ByNumber(), graph, task, known[:1], later, hidden).chances.values()) == {0}


RELATION = "group_uses_tool"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What models are asked with; none of them is made."""
    calls: list[dict[str, Any]] = []

    def seen(
        scorer: Any, graph: Graph, task: Task, references: np.ndarray, later: np.ndarray, calibration: Any
    ) -> None:
        calls.append({"scorer": scorer, "graph": graph, "references": references, "calibration": calibration})

    monkeypatch.setattr(later_links, "rank_later", seen)
    monkeypatch.setattr(later_links, "TrailScorer", lambda name, network, graph: graph)
    read = lambda graph, names: SimpleNamespace(to=lambda device: graph)  # noqa: E731
    monkeypatch.setattr(later_links, "ReadGraph", SimpleNamespace(of=read))
    read_weights = lambda path: SimpleNamespace(network=lambda: None)  # noqa: E731
    on_graph = lambda name, network, graph, device: graph  # noqa: E731
    published = SimpleNamespace(read=read_weights, scorer_on=on_graph)
    monkeypatch.setattr(later_links, "PUBLISHED", {"ultra": published, "trix": published})
    monkeypatch.setattr(later_links, "train_baseline", lambda benchmark, settings, **options: benchmark.graph)
    monkeypatch.setattr(later_links, "learning_free", lambda model, graph: graph)
    return calls


@pytest.mark.parametrize("model", ["trail", "ultra", "complex", "rules"])
def test_no_model_sees_the_pairs_of_a_relation_that_is_asked_about_as_a_new_one(
    model: str, asked: list[dict[str, Any]]
) -> None:
    frozen, name = frozen_attack(), BUILT_IN if model == "trail" else model
    later_links.rank_relation(
        name, model, Setting(3, 1), RELATION, frozen, Place(Path("unused"), checkpoint=Path("unused"))
    )
    (call,) = asked
    number = frozen.graph.relations.find(RELATION)
    assert (frozen.graph.triples()[:, 1] == number).any()
    for graph in (call["graph"], call["scorer"]):  # the scorer stands for the graph that it reads
        assert not (graph.triples()[:, 1] == number).any()
    assert len(call["references"]) == 3


def test_all_pairs_are_references_and_in_the_graph_of_models_that_read_few(asked: list[dict[str, Any]]) -> None:
    frozen, place = frozen_attack(), Place(Path("unused"), checkpoint=Path("unused"))
    for model, there in (("trail", False), ("rules", True), ("ultra", False)):
        later_links.rank_relation(BUILT_IN, model, Setting(ALL, 0), RELATION, frozen, place)
        graph, references = asked[-1]["scorer"], asked[-1]["references"]
        assert bool((graph.triples()[:, 1] == frozen.graph.relations.find(RELATION)).any()) == there, model
        assert len(references) == len(frozen.task(RELATION).pairs) and asked[-1]["calibration"] is None


def small_frozen() -> FrozenGraph:
    lines = ("g uses t", "g uses m", "h uses t", "k uses m", "h uses m", "k uses t", "g has t", "h has m", "k has t")
    return freeze(graph_of(*lines), ["2020-01-01"] * 4 + ["2024-01-01"] * 2 + ["2020-01-01"] * 3, "2023-12-31")


def test_recall_is_that_of_the_list_that_an_analyst_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = small_frozen()
    frozen = FrozenGraph(frozen.graph, {**frozen.later, "has": frozen.later["uses"][:1]}, frozen.days)
    ranks = {"uses": ([1.0, 4.0], [2.0, 21.0]), "has": ([2.0], [30.0])}

    def ranked(name: str, model: str, setting: Setting, relation: str, *_: object) -> LaterRanks:
        own, listed = map(np.array, ranks[relation])
        return LaterRanks(TaskRanks(relation, frozen.later[relation], own, np.full(len(own), 50), 50), listed, {})

    monkeypatch.setattr(later_links, "rank_relation", ranked)
    record, stored = later_links.measure("popularity", "popularity", Setting(3, 1), frozen, Place(Path("unused")))
    assert {name: row["recall@20"] for name, row in record.relations.items()} == {"uses": 0.5, "has": 0.0}
    assert (record.metrics["micro"]["recall@20"], record.metrics["macro"]["recall@20"]) == (1 / 3, 0.25)
    assert record.metrics["micro"]["mrr"] == pytest.approx((1 + 1 / 4 + 1 / 2) / 3)
    assert (record.shots, record.references, record.data_sha256) == (3, "draw-1", frozen.fingerprint)
    assert stored.ranks.tolist() == [1.0, 4.0, 2.0]


def test_tables_show_records_of_this_graph_and_the_worth_of_probabilities() -> None:
    frozen = small_frozen()
    record, _ = later_links.measure("popularity", "popularity", Setting(3, 1), frozen, Place(Path("unused")))
    chances = {"sure": 8, "sure_right": 6, "first": 10, "first_right": 4, "expected": 5.0}
    record = record.model_copy(update={"relations": {"uses": {**record.relations["uses"], **chances}}})
    other = record.model_copy(update={"data_sha256": "0" * 64, "model": "rules"})
    store: Any = SimpleNamespace(records=[record, other], places=[])
    few, known, sure = stored_tables(store, [3], frozen)
    assert [row[0] for row in few.rows] == ["popularity"] and not known.rows
    assert sure.rows == [["popularity", "3", "8", "6", "10", ".400", ".500"]]


def test_references_are_drawn_from_what_was_known() -> None:
    task = frozen_attack().task("group_uses_tool")
    known = {(h, t) for h, t in task.pairs.tolist()}
    drawn = Setting(3, 1).references(task)
    assert len(drawn) == 3 and {(h, t) for h, t in drawn.tolist()} <= known
    assert len(Setting(ALL, 0).references(task)) == len(known)
    assert [Setting(3, 1).chosen, Setting(ALL, 0).chosen] == ["draw-1", "all"]


def test_the_weights_of_the_study_never_saw_attack() -> None:
    graphs = shipped().facts["graphs"]
    assert graphs and not [name for name in graphs if "attack" in name]


@pytest.mark.slow
def test_a_stored_record_is_measured_again() -> None:
    record, _ = later_links.measure(BUILT_IN, "trail", Setting(3, 1), frozen_attack(), Place(Path("unused")))
    (stored,) = (
        r
        for r in RecordStore(RESULTS / later_links.NAME).records
        if (r.model, r.shots, r.references) == (BUILT_IN, 3, "draw-1")
    )
    assert record.data_sha256 == stored.data_sha256
    assert record.metrics["micro"] == pytest.approx(stored.metrics["micro"], abs=2e-3)


def test_stored_links_have_names_days_and_ranks() -> None:
    links = found_links(RecordStore(RESULTS / later_links.NAME), PREDECESSOR)
    assert len(links) == 696
    assert any((link.head, link.tail) == ("Scattered Spider", "Spearphishing Voice") for link in links[:30])
    assert [link.rank for link in links] == sorted(link.rank for link in links)


def test_a_model_that_the_study_does_not_name_is_shown_last(tmp_path: Path) -> None:
    (record,) = (
        r for r in RecordStore(RESULTS / later_links.NAME).records if (r.model, r.shots) == ("popularity", ALL)
    )
    store = RecordStore(tmp_path)
    for model in ("mine", "popularity"):
        store.add(record.model_copy(update={"model": model}))
    assert [row[0] for row in stored_tables(store, (), frozen_attack())[0].rows] == ["popularity", "mine"]
