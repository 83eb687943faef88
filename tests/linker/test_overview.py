"""The overview of a graph's relations: counts, examples, and the kind of their heads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.graph import Graph, TypeTable
from fewlink.linker.complete import plausible_heads
from fewlink.linker.query import References
from fewlink.linker.relations import overview
from fewlink.tasks import Benchmark, open_benchmark

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


def test_tasks_follow_the_relations_of_the_graph() -> None:
    graph = graph_of(*ROWS)
    listed = overview(benchmark_of(graph, test=[task_of([(0, 1), (2, 3)], [1, 3], name="visited")]))
    assert [(one.relation.name, one.split) for one in listed][-1] == ("visited", "test")
    assert listed[-1].pairs == 2


@pytest.mark.parametrize("name", ["umls", "attack-few"])
def test_the_kind_is_that_of_complete(name: str) -> None:
    graph = open_benchmark(name).graph
    for one in overview(Benchmark(name, graph, {})):
        pairs = [(head, tail) for head, tail in one.relation.pairs().tolist()]
        asked = plausible_heads(graph, References(tuple(pairs), one.relation))
        assert one.of_kind == len(asked)
        assert one.heads == len({head for head, _ in pairs}) == one.of_kind - one.lacking
