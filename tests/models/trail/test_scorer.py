"""TRAIL as a scorer: equal to the network, one head at a time, on the whole graph and on parts of it."""

from __future__ import annotations

import dataclasses
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.models.trail.cases import network_of, random_graph

from fewlink.core.errors import FewlinkError
from fewlink.models.contract import Question, Reasons
from fewlink.models.trail import answering
from fewlink.models.trail import scorer as module
from fewlink.models.trail.network import Shape, Tasks
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.models.trail.references import distinct_pairs, read_references
from fewlink.models.trail.scorer import TrailScorer
from fewlink.propagation import edges as edges_module
from fewlink.propagation import product as product_module
from fewlink.propagation.edges import RowEdges
from fewlink.propagation.product import Norms, row_sums

SHAPE = Shape(width=16, layers=4, relation_layers=2)
GIB = 1 << 30


def scorer_of(seed: int, *, triples: int = 60, entities: int = 25) -> TrailScorer:
    graph = random_graph(seed, relations=4, triples=triples, entities=entities)
    return TrailScorer("trail", network_of(SHAPE, seed), ReadGraph.of(graph))


def question_of(seed: int, shots: int = 3, entities: int = 25) -> Question:
    rng = np.random.default_rng(seed)
    references = rng.integers(0, entities, (shots, 2)).astype(np.int32)
    heads, candidates = (rng.permutation(entities)[:n].astype(np.int32) for n in (4, 11))
    return Question("new", references, heads, candidates)


def by_network(scorer: TrailScorer, question: Question) -> torch.Tensor:
    """All heads and candidates through the network's own `forward`."""
    heads, candidates = (torch.from_numpy(a.astype(np.int64))[None] for a in (question.heads, question.candidates))
    references = read_references(scorer.graph, distinct_pairs(question.references))
    with torch.no_grad():
        return scorer.network(scorer.graph, Tasks(references, heads, candidates))[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shots", [1, 40])
@pytest.mark.parametrize("push", [0.0, 2.0, math.inf])
@pytest.mark.parametrize("most", [0.0, 0.5, 1.0])
def test_scores_are_those_of_the_network(
    seed: int, shots: int, push: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether layers follow the edges of what is reached, or read those of what the candidates depend on, or all."""
    monkeypatch.setattr(answering, "PUSH", push)
    monkeypatch.setattr(answering, "MOST", most)
    monkeypatch.setattr(answering, "REACHED", most)
    monkeypatch.setattr(edges_module, "CHUNK", 5)
    monkeypatch.setattr(module, "HEADS", 3)
    scorer, question = scorer_of(seed), question_of(seed, shots)
    torch.testing.assert_close(scorer(question), by_network(scorer, question), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "states", "copies"), [(1, GIB, 1), (3, GIB, 2), (11, GIB, 4), (11, 0, 1)])
def test_heads_are_answered_side_by_side_as_on_a_gpu(
    heads: int, states: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several copies of a task with some heads each, or in one if states would take too many bytes."""
    monkeypatch.setattr(module, "HEADS_ON_GPU", 2)
    monkeypatch.setattr(module, "STATES_ON_GPU", states)
    scorer, question = scorer_of(0), question_of(0, shots=5)
    question = dataclasses.replace(question, heads=np.arange(heads, dtype=np.int32))
    assert scorer._copies_on_gpu(heads, len(question.candidates)) == copies
    with torch.no_grad():
        found = scorer._on_gpu(question)
    torch.testing.assert_close(found, by_network(scorer, question), rtol=1e-4, atol=1e-5)


def test_a_part_that_holds_everything_in_reach_gives_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, question = scorer_of(1, triples=400, entities=80), question_of(1, entities=80)
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    parts = scorer_of(1, triples=400, entities=80)
    torch.testing.assert_close(parts(question), whole(question), rtol=1e-4, atol=1e-5)


def test_tails_outside_of_a_small_part_share_the_lowest_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr(module, "PART_EDGES", 12)
    scorer, question = scorer_of(2, triples=300, entities=200), question_of(2, entities=200)
    scores = scorer(question)
    assert scores.shape == (4, 11) and torch.isfinite(scores).all()
    values, counts = scores[0].unique(return_counts=True)
    assert counts.max() > 1 and len(values) < scores.shape[1]


def test_scores_on_parts_do_not_depend_on_other_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr(module, "PART_EDGES", 12)
    scorer, question = scorer_of(2, triples=300, entities=200), question_of(2, entities=200)
    scores = scorer(question)
    for place in range(len(question.candidates)):
        one = dataclasses.replace(question, candidates=question.candidates[place : place + 1])
        torch.testing.assert_close(scorer(one), scores[:, place : place + 1], rtol=1e-5, atol=1e-6)
    assert not scores.requires_grad


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("push", [0.0, 2.0, math.inf])
@pytest.mark.parametrize("most", [0.0, 0.5, 1.0])
def test_questions_side_by_side_have_the_scores_of_the_network(
    seed: int, push: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References of their own or shared ones, other heads and candidates, and groups with heads of two questions."""
    monkeypatch.setattr(answering, "PUSH", push)
    monkeypatch.setattr(answering, "MOST", most)
    monkeypatch.setattr(answering, "REACHED", most)
    monkeypatch.setattr(edges_module, "CHUNK", 5)
    monkeypatch.setattr(product_module, "SIDE_BY_SIDE", 40)
    monkeypatch.setattr(module, "HEADS", 3)
    scorer, whole = scorer_of(seed), question_of(seed, 6)
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


def test_names_tell_tails_outside_of_a_part_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr(module, "PART_EDGES", 12)
    scorer, question = scorer_of(2, triples=300, entities=200), question_of(2, entities=200)
    vectors = np.random.default_rng(0).normal(size=(200, 96)).astype(np.float16)
    scores = scorer.with_vectors(vectors)(question)
    assert len(scores[0].unique()) == len(question.candidates) > len(scorer(question)[0].unique())


def test_questions_about_parts_of_a_graph_have_the_same_scores_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr(module, "PART_EDGES", 50)
    scorer, questions = scorer_of(1, triples=400, entities=80), [question_of(seed, entities=80) for seed in range(3)]
    for scores, question in zip(scorer.each(questions), questions, strict=True):
        torch.testing.assert_close(scores, scorer_of(1, triples=400, entities=80)(question))
    assert scorer.each([]) == []


def test_a_question_without_heads_is_prepared_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, question = scorer_of(0), question_of(0)
    expected, calls = scorer_of(0)(question), []
    rest = dataclasses.replace(question, references=question.references[1:])
    scorer.each([rest, dataclasses.replace(question, heads=question.heads[:0])])
    read, states, reach = scorer.read_tasks, scorer._new_states, module.Reach.of
    monkeypatch.setattr(scorer, "read_tasks", lambda *given: calls.append(1) or read(*given))
    monkeypatch.setattr(scorer, "_new_states", lambda *given: calls.append(1) or states(*given))
    monkeypatch.setattr(module.Reach, "of", lambda *given: calls.append(1) or reach(*given))
    torch.testing.assert_close(scorer(question), expected, rtol=1e-4, atol=1e-5)
    assert not calls


def test_scores_do_not_depend_on_other_heads_and_candidates() -> None:
    scorer, question = scorer_of(3), question_of(3)
    all_scores = scorer(question)
    one = Question("new", question.references, question.heads[2:3], question.candidates[4:6])
    torch.testing.assert_close(scorer(one), all_scores[2:3, 4:6], rtol=1e-5, atol=1e-6)


def test_states_are_computed_for_the_first_candidates_and_for_all_entities_once_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scorer, question, asked = scorer_of(3), question_of(3), []
    states = scorer._new_states
    monkeypatch.setattr(scorer, "_new_states", lambda tasks, some: asked.append(some) or states(tasks, some))
    for few in (question.candidates[:2], question.candidates[1:2], question.candidates, question.candidates[5:]):
        one = dataclasses.replace(question, candidates=few)
        torch.testing.assert_close(scorer(one), by_network(scorer, one), rtol=1e-4, atol=1e-5)
    first, every = asked
    assert first.tolist() == sorted(question.candidates[:2].tolist()) and every is None


def test_what_follows_from_references_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, calls = scorer_of(0), []
    encode = scorer.network.encode
    monkeypatch.setattr(scorer.network, "encode", lambda *given: calls.append(1) or encode(*given))
    for seed in (0, 1, 0, 1):
        scorer(question_of(seed))
    assert len(calls) == 2


def test_what_is_kept_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASK_BYTES", "STATE_BYTES", "REACH_BYTES"):
        monkeypatch.setattr(module, name, 1)
    scorer = scorer_of(0)
    for seed in (0, 1, 2, 0):
        torch.testing.assert_close(
            scorer(question_of(seed)), by_network(scorer, question_of(seed)), rtol=1e-4, atol=1e-5
        )
    assert len(scorer._tasks) == len(scorer._first) == len(scorer._reaches) == 1


def test_the_bytes_of_a_way_to_candidates_are_those_of_its_arrays() -> None:
    scorer, question = scorer_of(0, triples=300, entities=200), question_of(0, entities=200)
    scorer(question)
    reach = scorer._reach(scorer.known_task(question.references).edges, np.unique(question.candidates))
    last = reach.rows[-1]
    list(row_sums(last.edges, torch.zeros(len(last.before), 1, 16), torch.zeros(8, 1, 16), Norms.FOUR))  # keeps powers

    def tensors(value: object) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        held = (
            vars(value).values() if isinstance(value, RowEdges) else value.values() if isinstance(value, dict) else ()
        )
        return [each for one in (value if isinstance(value, (tuple, list)) else held) for each in tensors(one)]

    distinct = {each.data_ptr(): each.untyped_storage().nbytes() for each in tensors(last)}
    assert len(distinct) > 12 and sum(distinct.values()) <= last.bytes() + 100
    assert last.bytes() <= reach.bytes()


def test_threads_that_ask_about_one_task_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, question, calls = scorer_of(0), question_of(0), []
    expected, encode = scorer_of(0)(question), scorer.network.encode
    monkeypatch.setattr(scorer.network, "encode", lambda *given: calls.append(1) or encode(*given))
    heads = [Question("new", question.references, question.heads[at : at + 1], question.candidates) for at in range(4)]
    with ThreadPoolExecutor(4) as pool:
        torch.testing.assert_close(torch.cat([*pool.map(scorer, heads)]), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 1


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
    scorer = scorer_of(0)
    assert scorer.known_task(question.references) is scorer.known_task(turned.references)


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


def test_a_limit_of_edges() -> None:
    scorer, question = scorer_of(2, triples=300, entities=200), question_of(2, entities=200)
    whole = scorer(question)
    scorer.limit_edges(10_000)
    torch.testing.assert_close(scorer(question), whole, rtol=1e-4, atol=1e-5)
    scorer.limit_edges(8)
    assert not torch.allclose(scorer(question), whole)
    with pytest.raises(FewlinkError, match="at least 1"):
        scorer.limit_edges(0)


def test_a_limit_of_edges_holds_for_references_that_were_read_before() -> None:
    question = question_of(2, entities=200)
    used, fresh = (scorer_of(2, triples=300, entities=200) for _ in range(2))
    used(question)
    for scorer in (used, fresh):
        scorer.limit_edges(8)
    torch.testing.assert_close(used(question), fresh(question))


def test_a_relation_can_be_left_out() -> None:
    scorer, question = scorer_of(3), question_of(3)
    graph, name = scorer.graph.graph, scorer.graph.graph.relations[1]
    before, rest = scorer(question), scorer.without(name)
    assert rest.graph.graph.triples().tolist() == graph.triples()[graph.triples()[:, 1] != 1].tolist()
    assert list(rest.graph.graph.relations) == list(graph.relations)  # ids stay
    torch.testing.assert_close(rest(question), by_network(rest, question), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(rest(question), before) and torch.equal(scorer(question), before)
    torch.testing.assert_close(scorer.without("no such relation")(question), before)


def test_a_long_explanation_does_not_hold_up_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, question, gate, began = scorer_of(1), question_of(1), threading.Event(), threading.Event()
    expected = scorer(question)

    def explain(*args: object, **more: object) -> Reasons:
        began.set()
        assert gate.wait(20)
        return Reasons(0.0)

    monkeypatch.setattr(module, "explain", explain)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(scorer.explain, question.references, 0, 1)
        assert began.wait(20)
        torch.testing.assert_close(pool.submit(scorer, question).result(20), expected)
        assert not long.done()
        gate.set()
        assert long.result(20).score == 0.0


def test_an_explanation_compares_references_by_the_scores_of_answers() -> None:
    """Also if an answer reads fewer edges than the explanation."""
    scorer, question = scorer_of(2, triples=300, entities=60), question_of(2, entities=60)
    scorer.limit_edges(20)
    head, tail = question.heads[:1], question.candidates[:1]

    def score(pairs: np.ndarray) -> float:
        return float(scorer(Question("", pairs, head, tail)))

    pairs = question.references
    expected = [score(pairs) - score(np.delete(pairs, place, 0)) for place in range(len(pairs))]
    assert scorer.explain(pairs, int(head[0]), int(tail[0])).references == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("relation", range(4))
def test_what_is_hidden_leaves_no_trace_in_a_part(relation: int, near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr(module, "PART_EDGES", 40)
    monkeypatch.setattr(module, "NEARBY", 0)
    graph, question = random_graph(1, relations=4, triples=400, entities=120), question_of(1, entities=120)
    network = network_of(SHAPE, 1)
    rest = ReadGraph.of(graph).without(graph.relations[relation])
    hiding = ReadGraph.of(graph).hiding(relation)
    hiding.sizes, hiding.together = rest.sizes, rest.together  # of a large graph these stay
    scorers = [TrailScorer("trail", network, read) for read in (rest, hiding)]
    for scorer in scorers if near else ():
        scorer.limit_edges(30)
    one, other = (scorer(question) for scorer in scorers)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("part", [None, 20])
def test_a_hidden_relation_is_not_read(part: int | None) -> None:
    whole, question = scorer_of(3), question_of(3)
    hiding = TrailScorer("trail", whole.network, whole.graph.hiding(1).to("cpu"))
    visible = np.array([1.0, 0.0, 1.0, 1.0] * 2)
    heads, candidates = (torch.from_numpy(a.astype(np.int64))[None] for a in (question.heads, question.candidates))
    references = read_references(whole.graph, distinct_pairs(question.references), visible=visible)
    with torch.no_grad():
        expected = whole.network(whole.graph, Tasks(references, heads, candidates))[0]
    torch.testing.assert_close(hiding(question), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(whole(question), expected, atol=1e-3)
    if part is not None:
        hiding.limit_edges(part)
        whole.limit_edges(part)
        assert not torch.allclose(whole(question), hiding(question), atol=1e-3)
