"""The evaluator: ranks by hand and against a literal loop, shards, and errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import benchmark_of, graph_of, id_graph, id_triples, task_of

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, InputError, MissingExtra, ScoreError
from fewlink.evaluation import Protocol, TaskRanks, evaluate, rank_task
from fewlink.graph import Graph
from fewlink.models.baselines import learning_free
from fewlink.models.contract import Question
from fewlink.tasks import PROTOCOLS, Task, candidates_of, likely_tails, open_benchmark

GRAPH = graph_of("a r b", "a r c", "b r d", "c q d", "d q e")  # a 0, b 1, c 2, d 3, e 4


class By:
    """A scorer from a function of head and candidate."""

    name = "by"

    def __init__(self, score: Callable[[int, int], float]) -> None:
        self.score = score

    def __call__(self, question: Question) -> np.ndarray:
        return np.array([[self.score(int(h), int(c)) for c in question.candidates] for h in question.heads])


Ranks = dict[tuple[str, int, int], tuple[float, int]]


def by_query(tasks: Sequence[TaskRanks]) -> Ranks:
    """Rank and number of candidates of each query."""
    return {
        (t.relation, int(h), int(o)): (float(r), int(c))
        for t in tasks
        for (h, o), r, c in zip(t.queries, t.ranks, t.candidates, strict=True)
    }


def literal_ranks(graph: Graph, task: Task, protocol: Protocol, score: Callable[[int, int], float]) -> Ranks:
    """Query by query; under `open` every entity is a candidate, and those outside the range tie behind all others."""
    references, queries = task.split(protocol.shots, protocol.draw, protocol.seed)
    pool = candidates_of(protocol.candidates, task, references, graph)
    scored, rivals_of_all = set(pool.ids.tolist()), set(pool.ids[pool.counted].tolist())
    if protocol.candidates == "open":
        rivals_of_all = set(range(len(graph.entities)))
    ranks: Ranks = {}
    for head, tail in queries.tolist():
        rivals = rivals_of_all - set(task.known_tails[head].tolist())
        true_score, *others = (score(head, c) if c in scored else -1e9 for c in (tail, *rivals))
        rank = 1 + sum(s > true_score for s in others) + sum(s == true_score for s in others) / 2
        ranks[task.name, head, tail] = (rank, len(rivals) + 1)
    return ranks


def test_ranks_of_three_queries_by_hand() -> None:
    task = task_of([(4, 0), (0, 1), (0, 2), (1, 3)], range=[0, 1, 2, 3], known=[(1, 0)])
    ranked = rank_task(GRAPH, By(lambda h, c: c), task, Protocol(shots=1))
    # (0, 1): 2 is known too, 3 is higher. (0, 2): 1 is known too, 3 is higher. (1, 3): highest; 0 is known too.
    assert by_query([ranked]) == {("task", 0, 1): (2, 3), ("task", 0, 2): (2, 3), ("task", 1, 3): (1, 3)}
    assert ranked.row()["queries"] == 3
    assert ranked.row()["candidates"] == 4


def test_references_are_no_queries_but_known_answers() -> None:
    task = task_of([(0, 3), (0, 1), (2, 3)], range=[1, 2, 3])
    ranked = by_query([rank_task(GRAPH, By(lambda h, c: c), task, Protocol(shots=1))])
    assert ranked == {("task", 0, 1): (2, 2), ("task", 2, 3): (1, 3)}


def test_micro_averages_over_queries_and_macro_over_relations() -> None:
    easy = task_of([(4, 3), (0, 3), (1, 3), (2, 3)], range=[1, 3], name="easy")
    hard = task_of([(4, 1), (0, 1)], range=[1, 3], name="hard")
    evaluation = evaluate(benchmark_of(GRAPH, test=[easy, hard]), By(lambda h, c: c), Protocol(shots=1))
    assert evaluation.queries == 4
    assert evaluation.metrics()["micro"]["mrr"] == pytest.approx((3 + 0.5) / 4)
    assert evaluation.metrics()["macro"]["mrr"] == pytest.approx((1 + 0.5) / 2)
    assert list(evaluation.relations()) == ["easy", "hard"]


@pytest.mark.parametrize("candidates", ["paper", "full"])
def test_a_constant_scorer_has_the_metrics_of_chance(candidates: str) -> None:
    evaluation = evaluate(open_benchmark("umls"), By(lambda h, c: 0.0), Protocol(candidates=candidates))
    ranks = np.concatenate([t.ranks for t in evaluation.tasks])
    counts = np.concatenate([t.candidates for t in evaluation.tasks])
    assert np.array_equal(ranks, (counts + 1) / 2)
    micro = evaluation.metrics()["micro"]
    assert micro["mrr"] == pytest.approx(float(np.mean(2 / (counts + 1))))
    assert micro["amri"] == pytest.approx(0)


pairs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=2, max_size=10, unique=True)


@pytest.mark.parametrize("candidates", PROTOCOLS)
@given(id_triples, pairs, pairs, st.integers(0, 2), st.integers(0, 3))
def test_ranks_equal_a_literal_loop(
    candidates: str,
    triples: list[tuple[int, int, int]],
    task_pairs: list[tuple[int, int]],
    known: list[tuple[int, int]],
    draw: int,
    seed: int,
) -> None:
    graph = id_graph(triples)
    task = task_of(task_pairs, likely_tails(graph, np.array([t for _, t in task_pairs])).tolist(), known)
    protocol = Protocol(shots=1, candidates=candidates, draw=draw, seed=seed)

    def score(head: int, tail: int) -> float:
        return float((head * 5 + tail * 3) % 4)

    ranked = rank_task(graph, By(score), task, protocol)
    assert by_query([ranked]) == literal_ranks(graph, task, protocol, score)


def test_paper_ranks_among_at_most_a_thousand_candidates() -> None:
    graph = id_graph([(0, 0, 1)], entities=3000)
    task = task_of([(i, 29 * i) for i in range(100)], range=range(3000))
    ranked = rank_task(graph, By(lambda h, c: c), task, Protocol(candidates="paper"))
    assert ranked.candidates.max() <= 1001  # a thousand rivals where the answer is not among them
    assert ranked.row()["candidates"] == 1000


def test_paper_ranks_equal_a_literal_loop_over_the_sample() -> None:
    graph = id_graph([(0, 0, 1)], entities=3000)
    task = task_of([(i % 7, 29 * i) for i in range(20)], range=range(3000))
    protocol = Protocol(candidates="paper")

    def score(head: int, tail: int) -> float:
        return float((head * 1009 + tail * 769) % 501)

    assert by_query([rank_task(graph, By(score), task, protocol)]) == literal_ranks(graph, task, protocol, score)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_not_finite_raises_and_says_where(wrong: float) -> None:
    task = task_of([(0, 1), (0, 2), (1, 3)], range=[1, 2, 3], name="visits")
    scorer = By(lambda h, c: wrong if (h, c) == (1, 2) else 0.0)
    with pytest.raises(ScoreError, match=r"'by' .*visits, head 1, candidate 2"):
        rank_task(GRAPH, scorer, task, Protocol(shots=1))


def test_scores_of_the_wrong_shape_raise() -> None:
    class Flat:
        name = "flat"

        def __call__(self, question: Question) -> torch.Tensor:
            return torch.zeros(len(question.candidates))

    with pytest.raises(ScoreError, match=r"'flat' .*\(3,\).*\(2, 3\)"):
        rank_task(GRAPH, Flat(), task_of([(0, 1), (0, 2), (1, 3)], range=[1, 2, 3]), Protocol(shots=1))


def test_scores_may_have_any_numeric_type() -> None:
    task = task_of([(0, 1), (0, 2), (1, 3)], range=[1, 2, 3])
    for kind in (torch.float16, torch.bfloat16, torch.float64, torch.int64):

        class Typed:
            name = "typed"

            def __call__(self, question: Question, kind: torch.dtype = kind) -> torch.Tensor:
                return torch.as_tensor(question.candidates, dtype=kind).expand(len(question.heads), -1)

        assert rank_task(GRAPH, Typed(), task, Protocol(shots=1)).ranks.tolist() == [2, 1]


def test_a_true_tail_outside_a_closed_range_raises() -> None:
    task = task_of([(0, 1), (1, 4)], range=[1, 2])
    with pytest.raises(FewlinkError):
        rank_task(GRAPH, By(lambda h, c: c), task, Protocol(shots=1))


@pytest.mark.slow
def test_two_processes_give_the_metrics_of_one() -> None:
    tasks = [task_of([(h, t) for h in range(5) for t in range(h % 2, 5, 2)], range=range(5), name=n) for n in "xy"]
    benchmark = benchmark_of(GRAPH, test=tasks)
    scorer = learning_free("rules", GRAPH)
    one, two = (evaluate(benchmark, scorer, engine=engine) for engine in (None, Engine("processes:2", seconds_here=0)))
    assert by_query(one.tasks) == by_query(two.tasks)
    assert one.metrics() == two.metrics()


@pytest.mark.parametrize(
    "error", [FewlinkError("x"), InputError("file", "is bad", 3), MissingExtra("this", "that"), ScoreError("y")]
)
def test_errors_can_be_pickled(error: FewlinkError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize(
    ("protocol", "token"),
    [
        ({"shots": 0}, "shots"),
        ({"shots": 9}, "task has 3 pairs"),
        ({"split": "dev"}, "dev"),
        ({"split": "tets"}, "'test'"),
        ({"candidates": "al"}, "'al'"),
        ({"draw": -1}, "draw"),
    ],
)
def test_an_invalid_protocol_raises(protocol: dict[str, Any], token: str) -> None:
    benchmark = benchmark_of(GRAPH, test=[task_of([(0, 1), (0, 2), (0, 3)], range=[1, 2, 3])])
    with pytest.raises(FewlinkError, match=token):
        evaluate(benchmark, By(lambda h, c: 0.0), Protocol(**{"shots": 1, **protocol}))


def test_random_scores_have_an_amri_of_zero_on_average() -> None:
    benchmark = open_benchmark("umls")
    figures = [evaluate(benchmark, learning_free("random", benchmark.graph, s)).metrics()["micro"] for s in range(3)]
    assert abs(float(np.mean([f["amri"] for f in figures]))) < 0.1
