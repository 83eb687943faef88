"""The reference-tails scorer against literal cosines."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, graph_of, id_graph, id_triples

from fewlink.graph import Graph
from fewlink.models.baselines import ReferenceTailsScorer
from fewlink.models.contract import Question

Edge = tuple[int, int]


def scores(graph: Graph, tails: list[int], candidates: list[int]) -> np.ndarray:
    references = np.array([(0, t) for t in tails], np.int32)
    question = Question("t", references, np.array([0, 1], np.int32), np.array(candidates, np.int32))
    return ReferenceTailsScorer(graph)(question)


def edges(triples: list[tuple[int, int, int]], entity: int) -> set[Edge]:
    forward = {(r, t) for h, r, t in triples if h == entity}
    return forward | {(r + RELATIONS, h) for h, r, t in triples if t == entity}


def literal_score(triples: list[tuple[int, int, int]], tail: int, candidate: int) -> float:
    first, second = edges(triples, tail), edges(triples, candidate)
    if not first or not second:
        return 0.0
    a, b = ({r: math.log(1 + n) for r, n in Counter(r for r, _ in e).items()} for e in (first, second))
    norm = math.sqrt(sum(v * v for v in a.values()) * sum(v * v for v in b.values()))
    profiles = sum(a[r] * b.get(r, 0) for r in a) / norm
    shared = 0.0
    for edge in first & second:
        sharing = sum(edge in edges(triples, e) for e in range(ENTITIES))
        shared += 1 / math.log(1 + sharing)
    return profiles + shared / math.sqrt(len(first) * len(second))


def test_an_entity_with_the_same_edges_scores_highest() -> None:
    graph = graph_of("ann in oslo", "bob in oslo", "cy in rome", "rome near oslo")
    ann, oslo, bob, cy, rome = range(5)
    row = scores(graph, [ann], [ann, bob, cy, rome])[0]
    # one edge each; ann, bob and the reference share (in, oslo), which two entities have; cy shares the relation alone
    assert row == pytest.approx([1 + 1 / math.log(3), 1 + 1 / math.log(3), 1, 0], abs=1e-8)
    assert oslo not in (ann, bob, cy, rome)


def test_all_heads_have_the_same_scores() -> None:
    rows = scores(graph_of("a r b", "b r c"), [1], [0, 1, 2])
    assert np.array_equal(rows[0], rows[1])


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=3))
def test_scores_are_the_mean_of_literal_cosines(triples: list[tuple[int, int, int]], tails: list[int]) -> None:
    expected = [np.mean([literal_score(triples, t, c) for t in tails]) for c in range(ENTITIES)]
    np.testing.assert_allclose(scores(id_graph(triples), tails, list(range(ENTITIES)))[0], expected, atol=1e-8)


@given(id_triples)
def test_scores_do_not_depend_on_the_other_candidates(triples: list[tuple[int, int, int]]) -> None:
    graph, everything = id_graph(triples), list(range(ENTITIES))
    whole = scores(graph, [0, 1, 1], everything)
    for each in everything:
        assert np.array_equal(scores(graph, [0, 1, 1], [each]), whole[:, [each]])


def test_there_may_be_no_candidates() -> None:
    assert scores(graph_of("a r b"), [1], []).shape == (2, 0)
