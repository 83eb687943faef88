"""`check`: planted errors come first, with a reason; what cannot be compared is left out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.linker.graphs import people

from fewlink.graph import Graph
from fewlink.linker import Linker
from fewlink.linker.check import CheckedTriple, check_relations
from fewlink.linker.predictions import Answers
from fewlink.models.baselines import learning_free
from fewlink.tasks import SPLITS, Benchmark


def linker_of(graph: Graph) -> Linker:
    return Linker(Benchmark("people", graph, {split: [] for split in SPLITS}), learning_free("rules", graph))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("person0x3 speaks lang4", "person0x3 speaks lang0"),
        ("person2x7 speaks town10", "person2x7 speaks lang2"),
        ("town40 lives town41", ""),
    ],
)
def test_a_planted_error_is_the_oddest(wrong: str, right: str) -> None:
    graph = people(wrong, without=right)
    odd = check_relations(graph, [graph.relations.id(wrong.split()[1])])
    head, relation, tail = odd.triples[0].tolist()
    assert f"{graph.entities[head]} {graph.relations[relation]} {graph.entities[tail]}" == wrong
    assert odd.oddness[0] > 0.6 and np.median(odd.oddness) < 0.3
    assert (np.diff(odd.oddness) <= 0).all()


def test_the_same_graph_gives_the_same_answer() -> None:
    graph = people("person0x3 speaks lang4")
    first, second = (linker_of(graph).check("speaks").to_dicts() for _ in range(2))
    assert first == second


def test_all_relations_of_three_triples_or_more_are_checked() -> None:
    graph = people("country0 rules country1")
    done: list[int] = []
    checked = linker_of(graph).check(on_relation=done.append)
    assert {row.relation for row in checked} == {"in", "language", "lives", "speaks", "is", "likes"}
    assert done == list(range(1, 7))


def test_odd_triples_have_a_drawn_reason() -> None:
    graph = people("person0x3 speaks lang4", without="person0x3 speaks lang0")
    table = linker_of(graph).check(top=5)
    odd = {(row.head, row.relation, row.tail) for row in table[:2]}  # where they live does not go with it either
    assert len(table) == 5 and odd == {("person0x3", "speaks", "lang4"), ("person0x3", "lives", "town01")}
    assert table.to_tsv().startswith("oddness\thead\thead_name\trelation\t") and "person0x3" in repr(table)
    drawn = next(row.reason for row in table if row.relation == "speaks")
    assert ("person0x3 —" in drawn and "—speaks→ lang0" in drawn) or "lang4 ←speaks—" in drawn
    reasons = {row.oddness >= 0.5: set[str]() for row in linker_of(graph).check()}
    for row in linker_of(graph).check():
        reasons[row.oddness >= 0.5].add(row.reason)
    assert len(reasons[False]) == 1 and not reasons[False] & reasons[True]


def test_a_graph_with_nothing_to_check_says_so() -> None:
    nothing = linker_of(graph_of("a in b")).check()
    assert not nothing and nothing.notes and nothing.notes[0] in repr(nothing)


def test_answers_as_html() -> None:
    odd = CheckedTriple(0.875, "h", "<script>&", "r", "works for", "t", "t", "entities like the head have other tails")
    page = Answers((odd,) * 21, ("a note",))._repr_html_()
    assert "0.875" in page and "&lt;script&gt;" in page and "a note" in page and page.count("<tr>") == 21
