"""`check`: planted errors come first, with a reason; what cannot be compared is left out."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.linker.graphs import people

from fewlink.linker.check import (
    ANY_ENTITY,
    FITS,
    SAME_KIND,
    TRUE,
    WORDS,
    CheckedTriple,
    _negatives,
    check_relations,
    odd_triples,
    read_relation,
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


def test_made_up_pairs_are_not_known_ones() -> None:
    graph = people()
    number = graph.relations.id("speaks")
    triples = graph.triples()
    pairs = triples[triples[:, 1] == number][:, [0, 2]]
    read = read_relation(graph, number, pairs, np.random.default_rng(0))
    assert set(read.kinds.tolist()) == {TRUE, SAME_KIND, ANY_ENTITY}
    assert (read.kinds == TRUE).sum() == len(pairs) and read.fitted[read.kinds != TRUE].all()
    assert np.isfinite(read.columns).all()


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


def test_made_up_pairs_are_wrong_and_leave_out_the_pair_they_were_made_from() -> None:
    pairs = np.array([(head, tail) for head in range(4) for tail in range(4, 8) if (head, tail) != (3, 7)])
    made, kinds = _negatives(pairs, np.arange(len(pairs)), 9, np.random.default_rng(0))
    known = {tuple(pair) for pair in pairs.tolist()}
    rows = list(zip(*(column.tolist() for column in made), strict=True))
    assert len(rows) == len(kinds) and {SAME_KIND, ANY_ENTITY} == set(kinds.tolist())
    for (head, tail, out_head, out_tail), kind in zip(rows, kinds.tolist(), strict=True):
        assert (head, tail) not in known and (out_head, out_tail) in known
        assert (head == out_head) != (tail == out_tail)
        assert kind == ANY_ENTITY or (head, tail) == (3, 7)  # the only pair of such a head and such a tail
