"""Queries to a trained model: candidates, known pairs, ranks as in evaluation, notes and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import benchmark_of, graph_of, task_of
from tests.linker.linkers import REFERENCES, fsrl, references_of, trail, trail_run, umls

import fewlink
from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.evaluation import Protocol, rank_task
from fewlink.graph import Graph, TypeTable
from fewlink.linker import Linker
from fewlink.linker.ranking import score_heads
from fewlink.models.contract import Question

every_model = pytest.mark.parametrize("linker", [trail, fsrl], ids=["trail", "fsrl"])
LinkerMaker = Callable[[], Linker]


class Fixed:
    """The score of a tail is its number divided by `step`, rounded down: larger steps give ties."""

    name = "fixed"

    def __init__(self, step: int = 1) -> None:
        self.step, self.calls = step, 0

    def __call__(self, question: Question) -> torch.Tensor:
        self.calls += 1
        scores = torch.from_numpy(question.candidates.astype(np.float32) // self.step)
        return scores.expand(len(question.heads), -1)


def small(types: TypeTable | None = None, step: int = 1) -> Linker:
    """ann, bob and cy live in oslo, rome and oslo; visited is a task."""
    rows = ("ann lives oslo", "bob lives rome", "cy lives oslo", "oslo near rome", "ann knows bob")
    plain = graph_of(*rows)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=types)
    task = task_of([(0, 1), (2, 3), (4, 3)], [1, 3], known=[(0, 3)], name="visited")
    return Linker(benchmark_of(graph, test=[task]), Fixed(step))


def typed() -> TypeTable:
    """ann, oslo, bob, rome, cy: persons and cities; the type ghost has no members."""
    return TypeTable.of([b"person", b"city", b"ghost"], np.arange(5), np.array([0, 1, 0, 1, 0]), 5)


def tails(linker: Linker, *args: Any, **kwargs: Any) -> list[str]:
    return [row.tail for row in linker.predict(*args, **kwargs)]


@every_model
@pytest.mark.parametrize("shots", [1, 3, 20])
@pytest.mark.parametrize("candidates", ["full", "open"])
def test_ranks_of_a_test_relation_equal_the_evaluators(linker: LinkerMaker, shots: int, candidates: str) -> None:
    model, names = linker(), umls().graph.entities
    task = umls().split("test")[5]
    measured = rank_task(umls().graph, model.scorer, task, Protocol("test", shots, candidates))
    heads = [names[int(h)] for h in np.unique(measured.queries[:, 0])]
    options = {"relation": task.name, "shots": shots, "candidates": candidates, "exclude_known": False}
    predictions = model.predict(None, heads, 1000, constraints="none", **options)  # type: ignore[arg-type]
    ranks = {(row.head, row.tail): row.rank for row in predictions}
    for (head, tail), rank in zip(measured.queries.tolist(), measured.ranks, strict=True):
        assert ranks.get((names[head], names[tail]), rank) == rank  # `open` leaves some tails out
    assert all(
        row.known for row in predictions if (row.head, row.tail) in {(names[h], names[t]) for h, t in task.known}
    )
    if candidates == "full":
        assert len(predictions) == len(heads) * len(task.range)


@every_model
@pytest.mark.parametrize(
    "references", [REFERENCES[:1], [("virus", "virus")], [("alga", "cell"), ("virus", "alga")]], ids=str
)
def test_a_single_reference_and_a_self_loop_are_allowed(
    linker: LinkerMaker, references: Sequence[tuple[str, str]]
) -> None:
    found = linker().predict(references, ["alga"], 3)
    assert len(found) == 3 and all(np.isfinite(row.score) for row in found)
    assert ("alga", "cell") not in {(row.head, row.tail) for row in found} or ("alga", "cell") not in references


def test_known_pairs_are_excluded_or_shown() -> None:
    linker = small()
    assert tails(linker, [("bob", "rome")], ["bob"], candidates="all") == ["cy", "oslo", "ann"]
    shown = linker.predict([("bob", "rome")], ["bob"], candidates="all", exclude_known=False)
    assert [(row.tail, row.rank, row.known) for row in shown[:2]] == [("cy", 1, False), ("rome", 2, True)]
    # a task relation, a relation of the graph, and an unknown relation
    assert tails(linker, [("bob", "rome")], ["ann"], candidates="all", relation="visited") == ["cy", "bob"]
    assert tails(linker, [("bob", "rome")], ["ann"], candidates="all", relation="knows") == ["cy", "rome", "oslo"]
    with pytest.raises(UnknownName, match=r"'visitd'.*'visited'"):
        linker.predict([("bob", "rome")], ["ann"], relation="visitd")


def test_a_relation_gives_its_first_pairs_as_references() -> None:
    linker = small()
    assert references_of(linker, "visited", 2) == [("ann", "oslo"), ("bob", "rome")]
    assert references_of(linker, "lives", 2) == [("ann", "oslo"), ("bob", "rome")]
    found = linker.predict(heads=["cy"], relation="visited", candidates="full", exclude_known=False)
    assert [(row.tail, row.known) for row in found] == [("rome", True), ("oslo", False)]
    with pytest.raises(FewlinkError, match="shots"):
        linker.predict(heads=["cy"], relation="visited", shots=0)


def test_candidates_by_type_and_list() -> None:
    linker, references = small(typed()), [("ann", "rome")]
    assert tails(linker, references, ["bob"], candidates="city") == ["rome", "oslo"]
    assert tails(linker, references, ["bob"], candidates="PERSON") == ["cy", "ann"]
    assert tails(linker, references, ["bob"], candidates=["oslo", "Rome", "oslo"]) == ["rome", "oslo"]
    assert tails(linker, references, ["bob"], k=2, candidates=iter(["cy"])) == ["cy"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"references": []}, "no references"),
        ({"references": None}, "no references"),
        ({"references": "ann"}, "'ann'"),
        ({"references": ["ab"]}, "'ab'"),
        ({"references": [("ann", "bob", "cy")]}, "'cy'"),
        ({"references": [("an", "bob")]}, "head .*'an'.*'ann'"),
        ({"references": [("ann", "bbo")]}, "tail .*'bbo'"),
        ({"heads": []}, "no heads"),
        ({"heads": ["romee"]}, "head 'romee'.*'rome'"),
        ({"k": 0}, "^k .*0"),
        ({"k": 2.5}, "^k .*2.5"),
        ({"k": True}, "^k .*True"),
        ({"candidates": "ghost"}, "'ghost'"),
        ({"candidates": "cty"}, "'cty'.*'city'"),
        ({"candidates": []}, "no candidates"),
        ({"candidates": ["osl"]}, "candidate 'osl'"),
        ({"candidates": "full"}, "'full'"),
    ],
)
def test_an_invalid_query_raises_a_one_line_error(changes: dict[str, Any], message: str) -> None:
    arguments = {"references": [("ann", "oslo")], "heads": ["bob"], **changes}
    with pytest.raises(FewlinkError, match=message) as error:
        small(typed()).predict(**arguments)
    assert "\n" not in str(error.value)


def test_a_type_in_a_graph_without_types_raises() -> None:
    with pytest.raises(FewlinkError, match="'city'"):
        small().predict([("ann", "oslo")], ["bob"], candidates="city")
    with pytest.raises(FewlinkError, match="'person'"):
        small().predict_pairs([("ann", "oslo")], "person")


def test_duplicates_count_once_and_are_noted() -> None:
    linker = small()
    found = linker.predict([("ann", "oslo"), ("Ann", "OSLO")], ["bob", "cy", "bob"], 1)
    assert [row.head for row in found] == ["bob", "cy"]
    assert any("reference 'ann' → 'oslo' is given twice" in note for note in found.notes)
    assert any("head 'bob' is given twice" in note for note in found.notes)


def test_a_head_without_candidates_left_is_noted() -> None:
    found = small().predict([("bob", "oslo")], ["bob", "cy"], candidates=["oslo"])
    assert [row.head for row in found] == ["cy"]
    assert found.notes == ("'bob' has no candidate left: all of them are known answers or ruled out",)


def test_heads_are_scored_in_batches_that_fit_into_memory() -> None:
    scorer = Fixed()
    question = Question("", np.zeros((1, 2), np.int32), np.arange(4), np.arange(1 << 22))
    assert [place for place, _ in score_heads(scorer, question)] == [0, 1, 2, 3]
    assert 1 < scorer.calls <= 4


def test_predict_pairs_ranks_pairs_of_all_heads() -> None:
    linker = small(typed())
    found = linker.predict_pairs([("ann", "rome")], "person", 3, candidates="city")
    assert [(row.head, row.tail) for row in found] == [("bob", "rome"), ("cy", "rome"), ("ann", "oslo")]
    assert len(linker.predict_pairs([("ann", "rome")], ["bob", "cy"], 100, candidates="city")) == 4
    with pytest.raises(FewlinkError, match="'ghost'"):
        linker.predict_pairs([("ann", "rome")], "ghost")


@every_model
def test_predictions_of_a_head_do_not_depend_on_other_heads(linker: LinkerMaker) -> None:
    alone = linker().predict(REFERENCES, ["alga"], 5)
    together = linker().predict(REFERENCES, ["bacterium", "alga"], 5)
    assert [row.tail for row in alone] == [row.tail for row in together if row.head == "alga"]


def test_a_trained_relation_is_noted() -> None:
    name = umls().split("train")[0].name
    found = fsrl().predict(heads=["alga"], relation=name, k=1)
    assert any("was trained on" in note for note in found.notes)


def test_references_of_a_relation_that_the_graph_has_are_noted() -> None:
    linker = small()
    cities = ["oslo", "rome"]
    (note,) = linker.predict([("ann", "oslo"), ("bob", "rome")], ["cy"], candidates=cities).notes
    assert note.startswith("the graph has the relation lives between all references: name it as the relation to")
    assert note.endswith("to get percentages that do not rely on it")
    assert not linker.predict([("bob", "rome")], ["ann"], candidates=["rome"], relation="lives").notes
    assert not linker.predict([("ann", "oslo"), ("ann", "bob")], ["cy"], candidates=cities).notes
    assert not linker.predict([("oslo", "ann")], ["cy"], candidates=cities).notes  # the inverse


def test_opening_a_run() -> None:
    linker = fewlink.load(str(trail_run()))
    assert "trail on umls" in repr(linker)
    for name in ("/nowhere", "x" * 300, "a\0b"):
        with pytest.raises(FewlinkError, match="does not exist"):
            fewlink.load(name)
    with pytest.raises(FewlinkError, match="neither a file"):
        fewlink.load(trail_run(), bench="nothing")
    with pytest.raises(FewlinkError, match=r"leave out types$"):
        fewlink.load(trail_run(), types="types.tsv")


def test_a_folder_of_runs_raises_and_names_one(tmp_path: Path) -> None:
    (tmp_path / "seed-0").symlink_to(trail_run())
    with pytest.raises(FewlinkError, match="seed-0"):
        fewlink.load(tmp_path)
