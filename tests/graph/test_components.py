"""Paths join entities."""

from __future__ import annotations

import numpy as np

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
