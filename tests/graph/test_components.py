"""Paths join entities."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from tests.conftest import ENTITIES, graph_of, id_graph, id_triples

from fewlink.graph import Graph
from fewlink.graph.vocabulary import Vocabulary


def test_a_reference_joins_entities_like_any_edge() -> None:
    # 0 – 1 – 2, 3 – 4, 5 alone; the reference joins 2 and 5
    triples = np.array([[0, 0, 1], [2, 0, 1], [3, 0, 4]], np.int32)
    graph = Graph.of(Vocabulary.of([f"n{i}".encode() for i in range(7)]), Vocabulary.of([b"knows"]), triples)
    heads = np.arange(7)
    assert graph.joined(np.array([[2, 5]]), heads).tolist() == [True, True, True, False, False, True, False]
    assert graph.joined(np.array([[2, 5], [4, 0]]), heads).tolist() == [True] * 6 + [False]


def test_a_long_path_is_found() -> None:
    count = 3000
    triples = np.array([[at, 0, at + 1] for at in range(count - 1)], np.int32)
    names = Vocabulary.of([str(i).encode() for i in range(count + 1)])
    graph = Graph.of(names, Vocabulary.of([b"next"]), triples)
    assert graph.joined(np.array([[0, 1]]), np.array([count - 1, count])).tolist() == [True, False]


def sizes_of(graph: Graph) -> list[int]:
    return sorted(np.unique(graph.components, return_counts=True)[1].tolist())


def test_components_of_a_chain_a_loop_and_an_isolated_entity() -> None:
    graph = graph_of("a r b", "c r b", "c r d", "x r y", "y r x", "z r z")
    assert sizes_of(graph) == [1, 2, 4]


@given(id_triples)
def test_components_equal_those_of_a_literal_flood_fill(triples: list[tuple[int, int, int]]) -> None:
    sizes, left = [], set(range(ENTITIES))
    while left:
        part, edge = set(), {left.pop()}
        while edge:
            part |= edge
            edge = {b for h, _, t in triples for a, b in ((h, t), (t, h)) if a in edge} - part
        left -= part
        sizes.append(len(part))
    assert sizes_of(id_graph(triples)) == sorted(sizes)
