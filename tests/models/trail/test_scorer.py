"""TRAIL as a scorer: equal to the network, one head at a time, on the whole graph and on parts of it."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.models.trail.cases import network_of, random_graph

from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph, distinct_pairs, read_references
from fewlink.models.trail.network import Shape, Tasks
from fewlink.models.trail.scorer import TrailScorer

SHAPE = Shape(width=16, layers=4, relation_layers=2)


def scorer_of(seed: int, *, triples: int = 60, entities: int = 25) -> TrailScorer:
    graph = random_graph(seed, relations=4, triples=triples, entities=entities)
    return TrailScorer("trail", network_of(SHAPE, seed), ReadGraph.of(graph))


def question_of(seed: int, shots: int = 3, entities: int = 25) -> Question:
    rng = np.random.default_rng(seed)
    references = rng.integers(0, entities, (shots, 2)).astype(np.int32)
    heads, candidates = (rng.permutation(entities)[:n].astype(np.int32) for n in (4, 11))
    return Question("new", references, heads, candidates)


def on_parts(scorer: TrailScorer, around_references: int | None, near: int) -> TrailScorer:
    """The scorer, which reads so many edges around the references and near each head."""
    scorer.part_edges = around_references
    scorer.near_edges = near
    return scorer


def by_network(scorer: TrailScorer, question: Question) -> torch.Tensor:
    """All heads and candidates through the network's own `forward`."""
    heads, candidates = (torch.from_numpy(a.astype(np.int64))[None] for a in (question.heads, question.candidates))
    references = read_references(scorer.graph, distinct_pairs(question.references))
    with torch.no_grad():
        return scorer.network(scorer.graph, Tasks(references, heads, candidates))[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shots", [1, 40])
@pytest.mark.parametrize(("triples", "entities"), [(60, 25), (300, 400), (4000, 400)])
def test_scores_are_those_of_the_network(seed: int, shots: int, triples: int, entities: int) -> None:
    """Whether layers follow the edges of what is reached, or read those of what the candidates depend on, or all."""
    scorer = scorer_of(seed, triples=triples, entities=entities)
    question = question_of(seed, shots, entities)
    torch.testing.assert_close(scorer(question), by_network(scorer, question), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("around_references", [None, 100_000])
def test_parts_that_hold_everything_in_reach_give_the_same_scores(around_references: int | None) -> None:
    whole = scorer_of(1, triples=400, entities=80)
    question = question_of(1, entities=80)
    parts = on_parts(scorer_of(1, triples=400, entities=80), around_references, 100_000)
    torch.testing.assert_close(parts(question), whole(question), rtol=1e-4, atol=1e-5)


def test_names_tell_tails_outside_of_a_small_part_apart() -> None:
    scorer = on_parts(scorer_of(2, triples=300, entities=200), 12, 12)
    question = question_of(2, entities=200)
    scores = scorer(question)
    assert scores.shape == (4, 11) and torch.isfinite(scores).all() and not scores.requires_grad
    assert len(scores[0].unique()) < len(question.candidates)  # those that are reached from nowhere have the same
    vectors = np.random.default_rng(0).normal(size=(200, 96)).astype(np.float16)
    named = scorer.with_vectors(vectors)(question)
    assert len(named[0].unique()) == len(question.candidates)


@pytest.mark.parametrize("around_references", [None, 60])
def test_a_score_on_parts_depends_on_no_other_question_head_or_candidate(around_references: int | None) -> None:
    scorer = on_parts(scorer_of(5, triples=400, entities=120), around_references, 40)
    question = question_of(5, entities=120)
    expected = scorer(question)
    for place, head in enumerate(question.heads):
        alone = scorer(Question("", question.references, np.array([head]), question.candidates[::3]))
        torch.testing.assert_close(alone[0], expected[place, ::3], rtol=1e-4, atol=1e-5)
    twice = scorer(Question("", question.references, question.heads, np.repeat(question.candidates[::-1], 2)))
    torch.testing.assert_close(twice, expected.flip(1).repeat_interleave(2, 1), rtol=1e-4, atol=1e-5)
    _, again = scorer.each([question_of(6, entities=120), question])
    torch.testing.assert_close(again, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(pickle.loads(pickle.dumps(scorer))(question), expected)  # noqa: S301
    assert scorer.each([]) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("triples", "entities"), [(60, 25), (4000, 400)])
def test_questions_side_by_side_have_the_scores_of_the_network(seed: int, triples: int, entities: int) -> None:
    """References of their own or shared ones, other heads and candidates, and groups with heads of two questions."""
    scorer = scorer_of(seed, triples=triples, entities=entities)
    whole = question_of(seed, 6)
    questions = [
        whole,
        dataclasses.replace(whole, references=whole.references[1:], heads=whole.heads[:1]),
        dataclasses.replace(whole, references=whole.references[:2], candidates=whole.candidates[:5]),
        question_of(seed + 10, 1),
        dataclasses.replace(whole, heads=whole.heads[:0]),
    ]
    found = scorer.each(questions)
    assert [each.shape for each in found] == [(len(q.heads), len(q.candidates)) for q in questions]
    for scores, question in zip(found[:-1], questions, strict=False):
        torch.testing.assert_close(scores, by_network(scorer, question), rtol=1e-4, atol=1e-5)


def test_references_that_join_the_same_entities_otherwise_are_another_task() -> None:
    scorer, question = scorer_of(0), question_of(0)
    for pairs in ([[1, 2], [3, 4]], [[1, 4], [3, 2]]):
        asked = dataclasses.replace(question, references=np.array(pairs, np.int32))
        torch.testing.assert_close(scorer(asked), by_network(scorer, asked), rtol=1e-4, atol=1e-5)


def test_scores_do_not_depend_on_other_heads_and_candidates() -> None:
    scorer, question = scorer_of(3), question_of(3)
    all_scores = scorer(question)
    one = Question("new", question.references, question.heads[2:3], question.candidates[4:6])
    torch.testing.assert_close(scorer(one), all_scores[2:3, 4:6], rtol=1e-5, atol=1e-6)


def test_further_candidates_of_a_task_have_the_scores_of_the_network() -> None:
    scorer = scorer_of(3)
    question = question_of(3)
    for few in (question.candidates[:2], question.candidates[1:2], question.candidates, question.candidates[5:]):
        one = dataclasses.replace(question, candidates=few)
        torch.testing.assert_close(scorer(one), by_network(scorer, one), rtol=1e-4, atol=1e-5)


def test_threads_that_ask_about_one_task_get_its_scores() -> None:
    scorer = scorer_of(0)
    question = question_of(0)
    expected = scorer_of(0)(question)
    heads = [Question("new", question.references, question.heads[at : at + 1], question.candidates) for at in range(4)]
    with ThreadPoolExecutor(4) as pool:
        torch.testing.assert_close(torch.cat([*pool.map(scorer, heads)]), expected, rtol=1e-4, atol=1e-5)


def test_a_reference_given_twice_counts_once() -> None:
    scorer, question = scorer_of(0), question_of(0)
    twice = Question("new", np.repeat(question.references, 2, axis=0), question.heads, question.candidates)
    torch.testing.assert_close(scorer(twice), scorer(question))
    assert scorer.capabilities.most_references is None


@pytest.mark.parametrize("shots", [3, 50])
def test_the_order_of_references_does_not_matter(shots: int) -> None:
    question = question_of(0, shots)
    turned = dataclasses.replace(question, references=question.references[::-1].copy())
    assert torch.equal(scorer_of(0)(question), scorer_of(0)(turned))


def test_threads_do_not_disturb_each_other() -> None:
    scorer, questions = scorer_of(4, triples=300, entities=60), [question_of(seed, entities=60) for seed in range(8)]
    expected = [scorer(question) for question in questions]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for scores, right in zip(pool.map(scorer, questions), expected, strict=True):
                torch.testing.assert_close(scores, right)


def test_a_scorer_travels_to_another_process() -> None:
    scorer, question = scorer_of(5), question_of(5)
    expected = scorer(question)
    torch.testing.assert_close(pickle.loads(pickle.dumps(scorer))(question), expected)  # noqa: S301


def test_a_candidate_given_twice_has_one_score() -> None:
    scorer, question = scorer_of(6), question_of(6)
    twice = np.repeat(question.candidates, 2)
    scores = scorer(Question("new", question.references, question.heads, twice))
    torch.testing.assert_close(scores[:, ::2], scores[:, 1::2], rtol=1e-5, atol=1e-5)


def test_a_question_without_heads() -> None:
    question = question_of(0)
    assert scorer_of(0)(Question("new", question.references, question.heads[:0], question.candidates)).shape == (0, 11)


def test_many_heads_of_a_large_graph_are_answered_from_the_edges_near_them() -> None:
    small = scorer_of(2)
    assert small.for_many_heads() is small
    large = scorer_of(2, triples=61_000, entities=30_000)
    many = large.for_many_heads()
    assert many.capabilities.edges_read and not large.capabilities.edges_read
    assert many.for_many_heads().capabilities == many.capabilities


def test_a_relation_can_be_left_out() -> None:
    scorer, question = scorer_of(3), question_of(3)
    graph, name = scorer.graph.graph, scorer.graph.graph.relations[1]
    before, rest = scorer(question), scorer.without(name)
    without = TrailScorer("trail", scorer.network, ReadGraph.of(graph.without(np.array([1]))))
    torch.testing.assert_close(rest(question), without(question), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rest(question), by_network(rest, question), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(rest(question), before) and torch.equal(scorer(question), before)
    torch.testing.assert_close(scorer.without("no such relation")(question), before)


def test_an_explanation_compares_references_by_the_scores_of_answers() -> None:
    """Also if an answer reads fewer edges than the explanation."""
    scorer = on_parts(scorer_of(2, triples=300, entities=60), None, 20)
    question = question_of(2, entities=60)
    head, tail = question.heads[:1], question.candidates[:1]

    def score(pairs: np.ndarray) -> float:
        return float(scorer(Question("", pairs, head, tail)))

    pairs = question.references
    expected = [score(pairs) - score(np.delete(pairs, place, 0)) for place in range(len(pairs))]
    assert scorer.explain(pairs, int(head[0]), int(tail[0])).references == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("relation", range(4))
@pytest.mark.parametrize("around_references", [None, 40])
def test_what_is_hidden_leaves_no_trace_in_a_part(relation: int, around_references: int | None) -> None:
    graph, question = random_graph(1, relations=4, triples=400, entities=120), question_of(1, entities=120)
    network = network_of(SHAPE, 1)
    hiding = ReadGraph.of(graph).without(graph.relations[relation])
    rest = ReadGraph.of(graph.without(np.array([relation])))
    one, other = (on_parts(TrailScorer("", network, read), around_references, 30)(question) for read in (rest, hiding))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
