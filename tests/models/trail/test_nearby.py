"""TRAIL near each head: what a walk takes, what is worth passing, and scores equal to the network's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import network_of, random_graph
from tests.models.trail.test_scorer import SHAPE, by_network, on_parts, question_of, scorer_of

from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.nearby import LEAST, Surroundings, Worth
from fewlink.models.trail.scorer import TrailScorer
from fewlink.propagation.edges import EdgeTable

# 0 -r0- 1 -r0- 2 -r1- 3, and 4 to 9 joined to 1 by r1
CHAIN = [(0, 0, 1), (1, 0, 2), (2, 1, 3), *((leaf, 1, 1) for leaf in range(4, 10))]


def surroundings(worth: Worth | None = None, most_edges: int = 1000) -> Surroundings:
    graph = id_graph(CHAIN, 11, 2)
    return Surroundings(graph, np.array([[3, 10]]), worth or Worth(None, np.ones(11)), most_edges)


def messages(around: Surroundings, head: int) -> set[tuple[int, int, int]]:
    """The edges near a head as (source, relation, target)."""
    entities, edges = around.near(head)
    targets = np.repeat(np.arange(len(entities)), edges.edges[edges.pairs].diff())
    relations = np.repeat(edges.relations.numpy(), edges.edges.diff())
    return {
        (int(entities[source]), int(relation), int(entities[target]))
        for source, relation, target in zip(edges.sources, relations, targets, strict=True)
    }


def test_a_walk_takes_the_edges_of_one_entity_after_the_other() -> None:
    assert surroundings().near(0)[0].tolist() == list(range(11))
    forward = {*CHAIN, (3, 4, 10)}  # the reference is an edge of relation 2R
    assert messages(surroundings(), 0) == forward | {(t, r + 2 if r < 2 else 5, h) for h, r, t in forward}


def test_few_edges_are_those_on_the_way_to_worthy_entities() -> None:
    worth = np.full(11, LEAST)
    worth[[2, 3]] = 1.0
    near = messages(surroundings(Worth(None, worth), 14), 0)  # 1 edge of 0, 8 of 1, 2 of 2, 2 of 3
    assert {(2, 1, 3), (3, 3, 2), (4, 1, 1)} <= near


def test_of_an_entity_with_very_many_edges_the_worthiest_are_taken() -> None:
    graph = id_graph([(0, 0, tail) for tail in range(1, 40)], 41, 1)
    worth = np.ones(41)
    worth[[5, 8]] = 50.0
    around = Surroundings(graph, np.array([[1, 40]]), Worth(None, worth), 100)
    taken = around.edges(np.array([0])).targets.tolist()
    assert len(taken) == around.sizes(np.array([0]))[0] == 10 and {5, 8} < set(taken)


def test_worth_is_the_share_of_walks_that_soon_end_at_what_the_references_suggest() -> None:
    """Of 0 - 1 - 2 with a reference (2, 3): from 2, half of the walks step to 3, and from 1 half to 2."""
    edges = EdgeTable.of(id_graph([(0, 0, 1), (1, 1, 2)], 5, 2)).by_head
    suggested = torch.tensor([0.0, 0.0, 0.0, 30.0, 0.0])  # a softmax of 1 at entity 3
    worth = Worth.of(None, edges, np.ones(4), np.array([[2, 3]]), suggested)
    steps = np.array([[0, 0, 0, 2, 0], [0, 0, 1, 0, 0], [0, 0.5, 0, 1, 0], [0.5, 0, 0.75, 0, 0]])
    total = steps.sum(0)
    np.testing.assert_allclose(worth.at(np.arange(5)), total / total.mean() + LEAST, atol=1e-6)
    part = Worth(np.array([2, 7]), np.array([1.5, 2.5]))
    assert part.at(np.array([7, 3, 2])).tolist() == [2.5, LEAST, 1.5]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shots", [1, 40])
def test_parts_with_everything_in_reach_have_the_scores_of_the_network(seed: int, shots: int) -> None:
    scorer = on_parts(scorer_of(seed), None, 1_000_000)
    question = question_of(seed, shots)
    torch.testing.assert_close(scorer(question), by_network(scorer, question), rtol=1e-4, atol=1e-5)


def test_names_are_read_near_heads_too() -> None:
    graph = random_graph(3, relations=4, triples=60, entities=25)
    vectors = np.random.default_rng(0).normal(size=(25, 96)).astype(np.float16)
    scorer = TrailScorer("trail", network_of(SHAPE, 3), ReadGraph.of(graph)).with_vectors(vectors)
    question = question_of(3)
    expected = scorer(question)
    torch.testing.assert_close(on_parts(scorer, None, 1_000_000)(question), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most_edges", [20, 100])
def test_a_part_is_bounded(most_edges: int) -> None:
    graph = random_graph(7, relations=4, triples=3000, entities=300)
    around = Surroundings(graph, np.array([[1, 2]]), Worth(None, np.ones(300)), most_edges)
    for head in range(10):
        of_head = int(around.sizes(np.array([head]))[0])
        assert len(around.near(head)[1].sources) <= 2 * max(of_head, most_edges)
