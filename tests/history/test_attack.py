"""The proof in time: what is frozen, what is asked, how it is ranked, and what the stored records say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Fewlink, graph_of

from fewlink.base.errors import FewlinkError
from fewlink.data.benchmark import Task
from fewlink.data.carving import freeze
from fewlink.evaluation.records import RecordStore
from fewlink.graph import Graph
from fewlink.history import attack
from fewlink.history.attack import ALL, Place, Setting, ask, frozen_attack
from fewlink.history.tables import found_links, stored_tables
from fewlink.scorers import Question

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
    with pytest.raises(FewlinkError, match="no link is as old as 2010-01-01"):
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
    answers = ask(ByNumber(), graph, task, known, np.array([[0, 3], [0, 1], [1, 4]], np.int32))
    assert answers.tasks.ranks.tolist() == [1, 2, 1]  # 4 is known of head 0, and 3 does not compete with 1
    assert answers.listed.tolist() == [1, 3, 1]
    assert answers.tasks.candidates.tolist() == [3, 3, 5]
    assert answers.chances == {}


def test_references_are_drawn_from_what_was_known() -> None:
    task = frozen_attack().task("group_uses_tool")
    known = {(h, t) for h, t in task.pairs.tolist()}
    drawn = Setting(3, 1).references(task)
    assert len(drawn) == 3 and {(h, t) for h, t in drawn.tolist()} <= known
    assert len(Setting(ALL, 0).references(task)) == len(known)
    assert len(Setting(ALL, 2).references(task)) == 16  # as many as TRAIL reads
    assert [Setting(3, 1).chosen, Setting(ALL, 2).chosen, Setting(ALL, 0).chosen] == ["draw-1", "draw-2", "all"]


def test_the_weights_of_the_study_never_saw_attack() -> None:
    assert "attack-few" not in attack.weights_of().facts["graphs"]
    assert attack.calibration_without_attack().relations == 87


def test_a_tiny_study_runs_and_is_not_run_again(fewlink: Fewlink) -> None:
    words = ("study", "attack", "--tiny")
    assert fewlink(*words, "--todo").out.splitlines()[:2] == [
        "popularity, all known pairs",
        "popularity, K = 3, draw 1",
    ]
    done = fewlink(*words, "--json")
    assert done.code == 0, done.err
    tables = json.loads(done.out)["tables"]
    assert [row[0] for row in tables[0]["rows"]] == ["popularity", "rules"]
    assert fewlink(*words, "--todo").out.strip() == "nothing: everything is finished"
    refused = fewlink("study", "attack", "--checkpoint", "nowhere.pth")
    assert (refused.code, "nowhere.pth" in refused.err) == (2, True)


@pytest.mark.slow
def test_a_stored_record_is_measured_again() -> None:
    record, _ = attack.measure(attack.WITHOUT_ATTACK, "trail", Setting(3, 1), frozen_attack(), Place(Path("unused")))
    (stored,) = (
        r
        for r in RecordStore(RESULTS / attack.NAME).records
        if (r.model, r.shots, r.references) == (attack.WITHOUT_ATTACK, 3, "draw-1")
    )
    assert record.data_sha256 == stored.data_sha256
    assert record.metrics["micro"] == pytest.approx(stored.metrics["micro"], abs=2e-3)


def test_stored_links_have_names_days_and_ranks() -> None:
    links = found_links(RecordStore(RESULTS / attack.NAME))
    assert len(links) == 696
    assert any((link.head, link.tail) == ("Scattered Spider", "Spearphishing Voice") for link in links[:30])
    assert [link.rank for link in links] == sorted(link.rank for link in links)


def test_a_model_that_the_study_does_not_name_is_shown_last(tmp_path: Path) -> None:
    (record,) = (r for r in RecordStore(RESULTS / attack.NAME).records if (r.model, r.shots) == ("popularity", ALL))
    store = RecordStore(tmp_path)
    for model in ("mine", "popularity"):
        store.add(record.model_copy(update={"model": model}))
    assert [row[0] for row in stored_tables(store, (), frozen_attack())[0].rows] == ["popularity", "mine"]
