"""The overview of a graph's relations: counts, examples, and the kinds of their heads."""

from __future__ import annotations

from collections import Counter

import numpy as np
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.data import Benchmark, open_benchmark
from fewlink.graph import Graph, TypeTable
from fewlink.linker.overview import KIND_SHARE, Kind, overview

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


def test_counts_examples_and_kinds_by_hand() -> None:
    facts = {one.relation.name: one for one in overview(benchmark_of(graph_of(*ROWS)))}
    lives, knows, near = facts["lives"], facts["knows"], facts["near"]
    assert (lives.pairs, lives.heads, knows.pairs, knows.heads) == (5, 5, 2, 2)
    assert knows.kind == Kind("entities with lives", 5, 2)
    assert near.kind == Kind("tails of lives", 2, 1)
    assert lives.kind is None  # no other group has four of its five heads
    graph = lives.relation.graph
    assert [graph.entities[end] for end in lives.example] == ["bob", "rome"]  # the ends with most edges


def test_types_come_before_groups() -> None:
    plain = graph_of(*ROWS)
    people = np.array([plain.entities.id(name) for name in ("ann", "bob", "cy", "dan", "eve")])
    kinds = TypeTable.of([b"person", b"thing"], np.append(people, np.arange(7)), np.repeat([0, 1], [5, 7]), 7)
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=kinds)
    facts = {one.relation.name: one.kind for one in overview(benchmark_of(graph))}
    assert facts["knows"] == Kind("person", 5, 2) and facts["lives"] == Kind("person", 5, 5)
    assert facts["near"] == Kind("thing", 7, 1)


def test_tasks_follow_the_relations_of_the_graph() -> None:
    graph = graph_of(*ROWS)
    listed = overview(benchmark_of(graph, test=[task_of([(0, 1), (2, 3)], [1, 3], name="visited")]))
    assert [(one.relation.name, one.split) for one in listed][-1] == ("visited", "test")
    assert listed[-1].pairs == 2


def literal_kind(graph: Graph, relation: int) -> Kind | None:
    """The smallest other slot with enough of the heads, by sets."""
    triples = graph.triples().tolist()
    slots: dict[str, set[int]] = {}
    for head, middle, tail in triples:
        name = graph.relation_name(middle)
        if middle != relation:
            slots.setdefault(f"entities with {name}", set()).add(head)
        slots.setdefault(f"tails of {name}", set()).add(tail)
    heads = {head for head, middle, _ in triples if middle == relation}
    common = [(len(own), name) for name, own in slots.items() if len(own & heads) >= KIND_SHARE * len(heads)]
    sizes = Counter(size for size, _ in common)
    if not common:
        return None
    size, name = min(common)
    return None if sizes[size] > 1 else Kind(name, size, len(slots[name] & heads))


def test_kinds_equal_those_of_sets() -> None:
    umls = open_benchmark("umls")
    graph = Graph(**{**vars(umls.graph), "types": None}) if umls.graph.types else umls.graph
    compared = 0
    for one in overview(Benchmark("umls", graph, {})):
        literal = literal_kind(graph, one.relation.number)
        if literal is not None:
            compared += 1
            assert one.kind == literal
    assert compared > 5
