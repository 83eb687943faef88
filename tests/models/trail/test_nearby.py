"""TRAIL near each head: what a walk takes, what is worth passing, and scores equal to the network's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import network_of, random_graph
from tests.models.trail.test_scorer import SHAPE, by_network, question_of, scorer_of

from fewlink.models.contract import Question
from fewlink.models.trail import nearby
from fewlink.models.trail import scorer as module
from fewlink.models.trail.nearby import LEAST, Near, Surroundings, Worth
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.propagation.edges import EdgeTable

# 0 -r0- 1 -r0- 2 -r1- 3, and 4 to 9 joined to 1 by r1
CHAIN = [(0, 0, 1), (1, 0, 2), (2, 1, 3), *((leaf, 1, 1) for leaf in range(4, 10))]


def surroundings(worth: Worth | None = None, most_edges: int = 1000) -> Surroundings:
    graph = id_graph(CHAIN, 11, 2)
    return Surroundings(graph, np.array([[3, 10]]), worth or Worth(None, np.ones(11)), most_edges)


def messages(near: Near) -> set[tuple[int, int, int]]:
    """The edges between entities, as (source, relation, target)."""
    edges = near.edges
    targets = np.repeat(np.arange(len(near.entities)), edges.edges[edges.pairs].diff())
    relations = np.repeat(edges.relations.numpy(), edges.edges.diff())
    return {
        (int(near.entities[source]), int(relation), int(near.entities[target]))
        for source, relation, target in zip(edges.sources, relations, targets, strict=True)
    }


def test_a_walk_takes_the_edges_of_one_entity_after_the_other() -> None:
    near = Near.of(surroundings(), np.array([0]))
    assert near.begins.tolist() == [0] and near.entities.tolist() == list(range(11))
    forward = {*CHAIN, (3, 4, 10)}  # the reference is an edge of relation 2R
    assert messages(near) == forward | {(t, r + 2 if r < 2 else 5, h) for h, r, t in forward}


def test_parts_of_several_heads_are_side_by_side() -> None:
    near = Near.of(surroundings(), np.array([3, 0, 3]))
    assert near.heads[near.begins].tolist() == [0, 1, 2] and near.entities[near.begins].tolist() == [3, 0, 3]
    targets = np.repeat(np.arange(len(near.entities)), near.edges.edges[near.edges.pairs].diff())
    assert (near.heads[near.edges.sources] == near.heads[targets]).all()
    assert sorted(near.entities[near.heads == 0]) == sorted(near.entities[near.heads == 2])


def test_few_edges_are_those_on_the_way_to_worthy_entities() -> None:
    worth = np.full(11, LEAST)
    worth[[2, 3]] = 1.0
    near = Near.of(surroundings(Worth(None, worth), 14), np.array([0]))  # 1 edge of 0, 8 of 1, 2 of 2, 2 of 3
    assert {(2, 1, 3), (3, 3, 2)} <= messages(near) and (4, 1, 1) in messages(near)


def test_of_an_entity_with_very_many_edges_the_worthiest_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "FEWEST", 3)
    worth = np.ones(11)
    worth[[5, 8]] = 50.0
    around = surroundings(Worth(None, worth), 30)
    assert around.sizes(np.array([1, 2, 3])).tolist() == [3, 2, 2]
    assert sorted(around.edges(np.array([1])).targets.tolist()) == [2, 5, 8]  # 2 is alone with its relation, as 0 is


def test_worth_is_the_share_of_walks_that_soon_end_at_what_the_references_suggest() -> None:
    """Of 0 - 1 - 2 with a reference (2, 3): from 2, half of the walks step to 3, and from 1 half to 2."""
    edges = EdgeTable.of(id_graph([(0, 0, 1), (1, 1, 2)], 5, 2)).by_head
    suggested = torch.tensor([0.0, 0.0, 0.0, 30.0, 0.0])  # a softmax of 1 at entity 3
    worth = Worth.of(None, edges, np.array([[2, 3]]), suggested)
    steps = np.array([[0, 0, 0, 2, 0], [0, 0, 1, 0, 0], [0, 0.5, 0, 1, 0], [0.5, 0, 0.75, 0, 0]])
    total = steps.sum(0)
    np.testing.assert_allclose(worth.at(np.arange(5)), total / total.mean() + LEAST, atol=1e-6)
    part = Worth(np.array([2, 7]), np.array([1.5, 2.5]))
    assert part.at(np.array([7, 3, 2])).tolist() == [2.5, LEAST, 1.5]


def near_scorer(seed: int, edges: int = 1_000_000, **graph: int) -> TrailScorer:
    scorer = scorer_of(seed, **graph)
    scorer.limit_edges(edges)
    return scorer


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges near heads are chosen in small graphs, too."""
    monkeypatch.setattr(module, "NEARBY", 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shots", [1, 40])
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_parts_with_everything_in_reach_have_the_scores_of_the_network(
    seed: int, shots: int, few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEADS_NEARBY", 3)
    monkeypatch.setattr(nearby, "CANDIDATES_AT_ONCE", 4)
    monkeypatch.setattr(nearby, "FEW", few)
    scorer, question = near_scorer(seed), question_of(seed, shots)
    torch.testing.assert_close(scorer(question), by_network(scorer, question), rtol=1e-4, atol=1e-5)


def test_names_are_read_near_heads_too() -> None:
    graph = random_graph(3, relations=4, triples=60, entities=25)
    vectors = np.random.default_rng(0).normal(size=(25, 96)).astype(np.float16)
    scorer = TrailScorer("trail", network_of(SHAPE, 3), ReadGraph.of(graph)).with_vectors(vectors)
    question = question_of(3)
    expected = scorer(question)
    scorer.limit_edges(1_000_000)
    torch.testing.assert_close(scorer(question), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("whole", [0, 10**9])
def test_a_score_depends_on_no_other_head_or_candidate(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", whole)
    monkeypatch.setattr(module, "PART_EDGES", 60)
    scorer, question = near_scorer(5, 40, triples=400, entities=120), question_of(5, entities=120)
    expected = scorer(question)
    assert torch.isfinite(expected).all()
    for place, head in enumerate(question.heads):
        alone = scorer(Question("", question.references, np.array([head]), question.candidates[::3]))
        torch.testing.assert_close(alone[0], expected[place, ::3], rtol=1e-4, atol=1e-5)
    twice = scorer(Question("", question.references, question.heads, np.repeat(question.candidates[::-1], 2)))
    torch.testing.assert_close(twice, expected.flip(1).repeat_interleave(2, 1), rtol=1e-4, atol=1e-5)
    assert torch.equal(pickle.loads(pickle.dumps(scorer))(question), expected)  # noqa: S301


@pytest.mark.parametrize("most_edges", [20, 100])
def test_a_part_is_bounded(most_edges: int) -> None:
    graph = random_graph(7, relations=4, triples=3000, entities=300)
    around = Surroundings(graph, np.array([[1, 2]]), Worth(None, np.ones(300)), most_edges)
    near = Near.of(around, np.arange(10))
    of_heads = around.sizes(np.arange(10))
    targets = np.repeat(np.arange(len(near.entities)), near.edges.edges[near.edges.pairs].diff())
    assert (np.bincount(near.heads[targets]) <= 2 * np.maximum(of_heads, most_edges)).all()


def test_a_graph_that_is_not_much_larger_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEARBY", 12)
    scorer, question = scorer_of(2, triples=300, entities=200), question_of(2, entities=200)
    whole = scorer(question)
    count = 2 * (scorer.graph.graph.triple_count + len(question.references))
    scorer.limit_edges(count // module.NEARBY + 1)
    assert torch.equal(scorer(question), whole)
    scorer.limit_edges(count // module.NEARBY)
    assert not torch.equal(scorer(question), whole)
