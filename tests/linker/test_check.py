"""`check`: planted errors come first, with a reason; what cannot be compared is left out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.linker.graphs import people

from fewlink.linker.check import (
    FITS,
    WORDS,
    CheckedTriple,
    check_relations,
    odd_triples,
)
from fewlink.linker.predictions import Answers


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
    relation = graph.relations.id(wrong.split()[1])
    (odd,) = check_relations(graph, [relation])
    head, tail = (graph.entities[int(ends[0])] for ends in (odd.heads, odd.tails))
    assert f"{head} {wrong.split()[1]} {tail}" == wrong
    assert odd.oddness[0] > 0.6 and np.median(odd.oddness) < 0.3
    assert (np.diff(odd.oddness) <= 0).all() and odd.reasons[0] in WORDS


def test_the_same_seed_gives_the_same_oddness() -> None:
    graph = people("person0x3 speaks lang4")
    first, second = (check_relations(graph, [graph.relations.id("speaks")])[0] for _ in range(2))
    assert first.oddness.tolist() == second.oddness.tolist()


def test_all_relations_of_three_triples_or_more_are_checked() -> None:
    graph = people("country0 rules country1")
    done: list[int] = []
    checked = check_relations(graph, on_relation=done.append)
    assert {graph.relations[each.relation] for each in checked} == {"in", "language", "lives", "speaks", "is", "likes"}
    assert done == list(range(1, 7))


def test_a_table_of_the_oddest_of_all() -> None:
    graph = people("person0x3 speaks lang4", without="person0x3 speaks lang0")
    table = odd_triples(graph, check_relations(graph), 5)
    odd = {(row.head, row.relation, row.tail) for row in table[:2]}  # where they live does not go with it either
    assert len(table) == 5 and odd == {("person0x3", "speaks", "lang4"), ("person0x3", "lives", "town01")}
    assert table.to_tsv().startswith("oddness\thead\thead_name\trelation\t")
    assert "person0x3" in repr(table) and table.to_dicts()[0]["reason"] in WORDS.values()
    rest = odd_triples(graph, check_relations(graph))
    assert [row.reason == FITS for row in rest] == [row.oddness < 0.5 for row in rest]
    nothing = odd_triples(graph_of("a in b"), check_relations(graph_of("a in b")))
    assert not nothing and nothing.notes
    assert nothing.notes[0] in repr(nothing)


def test_answers_as_html() -> None:
    odd = CheckedTriple(0.875, "h", "<script>&", "r", "works for", "t", "t", "entities like the head have other tails")
    page = Answers((odd,) * 21, ("a note",))._repr_html_()
    assert "0.875" in page and "&lt;script&gt;" in page and "a note" in page and page.count("<tr>") == 21
