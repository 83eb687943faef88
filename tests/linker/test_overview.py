"""The overview of a graph's relations: counts, examples, and the kind of their heads."""

from __future__ import annotations

import numpy as np
from tests.conftest import benchmark_of, graph_of

from fewlink.graph import Graph, TypeTable
from fewlink.linker.relations import overview

ROWS = (
    "ann lives oslo",
    "bob lives rome",
    "cy lives oslo",
    "dan lives rome",
    "eve lives rome",
    "ann knows bob",
    "bob knows cy",
    "oslo near rome",
)


def test_counts_and_examples_by_hand() -> None:
    facts = {one.relation.name: one for one in overview(benchmark_of(graph_of(*ROWS)))}
    lives, knows = facts["lives"], facts["knows"]
    assert (lives.pairs, lives.heads, knows.pairs, knows.heads) == (5, 5, 2, 2)
    assert lives.type is None and knows.of_kind >= 2
    graph = lives.relation.graph
    assert [graph.entities[end] for end in lives.example] == ["bob", "rome"]  # the ends with most edges


def test_types_name_the_kind_and_decide_who_lacks_a_tail() -> None:
    plain = graph_of(*ROWS)
    people = np.array([plain.entities.id(name) for name in ("ann", "bob", "cy", "dan", "eve")])
    places = np.setdiff1d(np.arange(7), people)
    kinds = TypeTable.of([b"person", b"place"], np.append(people, places), np.repeat([0, 1], [5, 2]), 7)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=kinds)
    facts = {one.relation.name: one for one in overview(benchmark_of(graph))}
    assert [(one.type, one.lacking) for one in facts.values()] == [("person", 0), ("person", 3), ("place", 1)]
