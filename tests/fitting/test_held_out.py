"""Held-out relations: which they are, how many fit the time, and when one scorer is better than another."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import quickly
from tests.fitting.fits import graph_file

from fewlink.data import Benchmark, open_benchmark
from fewlink.data.carving import carve_any
from fewlink.data.training_graph import known_graph
from fewlink.evaluation import Protocol, evaluate
from fewlink.fitting import held_out, time_plan
from fewlink.fitting.held_out import MAX_HIDDEN, figures_of, gain, hold_out, measure, score_relations
from fewlink.fitting.time_plan import Plan, plan_measuring
from fewlink.graph import compile_graph
from fewlink.linker.calibration import calibrate_on_dev
from fewlink.scorers import Question
from fewlink.scorers.cached import CachedScorer


class Counted:
    """Scores that depend on head and candidate alone, and the number of times they were asked for."""

    name = "counted"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, question: Question) -> torch.Tensor:
        self.asked += 1
        mixed = question.heads[:, None].astype(np.int64) * 7919 + question.candidates[None]
        return torch.from_numpy(mixed * 104729 % 1009 / 1009)


def towns() -> Benchmark:
    return carve_any(compile_graph([graph_file()]), "towns", seed=0, check=lambda carved: None)[0]


@pytest.mark.parametrize("relations, expected", [(1, 1), (2, 2), (3, 3), (16, 5)])
def test_known_relations_are_held_out_where_dev_has_few(relations: int, expected: int) -> None:
    benchmark = towns()
    held = hold_out(benchmark, Plan(relations, 6, True, 1.0, 0.1, 1), 3)
    names = [task.name for task in held.split("dev")]
    assert len(names) == expected and {task.name for task in benchmark.split("dev")} <= {*names}
    assert all(len(task.pairs) == 9 for task in held.split("dev"))
    known = known_graph(held)
    assert not {*names} & {*known.relations} and not {*names} & {task.name for task in benchmark.split("test")}
    assert known.triple_count >= (1 - MAX_HIDDEN) * known_graph(benchmark).triple_count


def test_the_benchmark_of_umls_has_ten_or_more() -> None:
    held = hold_out(open_benchmark("umls"), Plan(16, 20, True, 1.0, 0.1, 1), 3)
    assert len(held.split("dev")) >= 10


@pytest.mark.parametrize(
    "seconds, relations, queries, tuning",
    [(1e6, 16, 50, True), (34 * 2 / 0.4, 16, 10, True), (34, 16, 4, False), (25, 10, 5, False), (0.1, 2, 2, False)],
)
def test_as_many_queries_as_fit_the_time(
    seconds: float, relations: int, queries: int, tuning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_plan, "_timings", lambda *_: (1.0, 0.1))
    plan = plan_measuring(towns(), Counted(), 3, seconds, 1000)
    assert (plan.relations, plan.queries, plan.tuning) == (relations, queries, tuning)
    assert plan.head == 0.1 and plan.seconds == pytest.approx(1 + 0.1 * queries)


def test_the_quicker_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch, two_threads: None) -> None:
    for quicker in (1, 2):
        timings = {1: (1.0, 0.1), 2: (1.0, 0.1), quicker: (0.1, 0.01)}
        monkeypatch.setattr(time_plan, "_timings", lambda *args, timings=timings: timings[args[3]])
        assert plan_measuring(towns(), Counted(), 3, 1e6, 0).threads == quicker
        assert torch.get_num_threads() == 2


def test_questions_are_timed() -> None:
    with quickly():
        plan = plan_measuring(towns(), Counted(), 3, 1e6, 0)
        assert time_plan._timings(towns(), Counted(), 3, 1, 1e-9) == (np.inf, np.inf)
    assert (plan.relations, plan.queries) == (16, 50) and 0 < plan.seconds < 5


def test_scores_are_asked_for_once_and_are_the_same() -> None:
    benchmark, scorer = towns(), Counted()
    once = CachedScorer(scorer)
    assert score_relations(benchmark, [once], 3, ("dev", "test"), math.inf).fingerprint == benchmark.fingerprint
    asked = scorer.asked
    protocols = [Protocol(split, 3, candidates) for split in ("dev", "test") for candidates in ("full", "open")]
    ranks = [evaluate(benchmark, once, each).tasks[0].ranks for each in protocols]
    calibrate_on_dev(benchmark, once, 3, 10, 0)
    assert asked == 2 and scorer.asked == asked + 3  # references are held out one at a time
    for own, each in zip(ranks, protocols, strict=True):
        np.testing.assert_array_equal(own, evaluate(benchmark, Counted(), each).tasks[0].ranks)


def test_relations_are_asked_in_turn_until_the_time_or_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = open_benchmark("umls")

    def asked(until: float) -> tuple[int, int]:
        some = score_relations(benchmark, [CachedScorer(Counted())], 3, ("dev", "test"), until)
        assert some.split("train") == benchmark.split("train")
        return len(some.split("dev")), len(some.split("test"))

    dev, test = len(benchmark.split("dev")), len(benchmark.split("test"))
    assert asked(math.inf) == (dev, test) and asked(time.monotonic() - 1) == (1, 0)
    monkeypatch.setattr(held_out, "MAX_SCORES", 10)
    assert asked(math.inf) == (1, 0)


def test_a_first_question_that_takes_too_long_leaves_the_least_to_measure() -> None:
    class Slow(Counted):
        def __call__(self, question: Question) -> torch.Tensor:
            time.sleep(0.05)
            return super().__call__(question)

    slow = Slow()
    plan = plan_measuring(towns(), slow, 3, 0.1, 0)
    assert (plan.relations, plan.queries, plan.tuning, slow.asked) == (2, 2, False, 1)


def test_figures_are_those_of_the_evaluation() -> None:
    evaluation = measure(open_benchmark("umls"), Counted(), 3)
    macro = evaluation.metrics()["macro"]
    figures = figures_of([task.ranks for task in evaluation.tasks])
    assert figures == pytest.approx({name: macro[name] for name in ("mrr", "hits@1", "hits@10")})


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ([[2, 2], [1]], [[1, 2], [2]], (-0.125, 0.375)),
        ([[2, 2]], [[1, 2]], (0.25, 0.25)),
        ([[2]], [[1]], (0.5, 0.0)),
    ],
)
def test_gain_is_a_mean_over_relations_with_its_standard_error(before: Any, after: Any, expected: Any) -> None:
    assert gain(before, after) == pytest.approx(expected)


def test_a_scorer_has_no_gain_over_itself() -> None:
    ranks = [task.ranks for task in measure(towns(), Counted(), 3).tasks]
    assert gain(ranks, ranks) == (0.0, 0.0)
