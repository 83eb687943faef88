"""Folds of a benchmark: known relations held out to choose settings on, in no graph and in no train task."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.conftest import benchmark_of, id_graph, task_of

from fewlink.tasks import Benchmark, open_benchmark
from folds import MIN_BACKGROUND_PAIRS, MIN_CONNECTED_PAIRS, fold_benchmark

UMLS = open_benchmark("umls")
COUNT = 60
GRAPH = id_graph(
    [(h, r, (h * (r + 2) + r) % COUNT) for r in range(8) for h in range(COUNT)]
    + [(h, 8, t) for h in range(COUNT) for t in range(h % 3, COUNT, 4)]  # more than a fold takes
    + [(h, 9, (h + 7) % COUNT) for h in range(MIN_BACKGROUND_PAIRS - 1)],  # fewer
    COUNT + 1,
    10,
)
SMALL = benchmark_of(
    GRAPH,
    train=[task_of([(h, (h + d) % COUNT) for h in range(30)], range(COUNT), name=f"{d} apart") for d in range(11, 16)],
    dev=[task_of([(h, (h + 20) % COUNT) for h in range(30)], range(COUNT), name="dev relation")],
    test=[task_of([(h, (h + 21) % COUNT) for h in range(30)], range(COUNT), name="test relation")],
)
every_benchmark = pytest.mark.parametrize("benchmark", [UMLS, SMALL], ids=["umls", "small"])
some_counts = pytest.mark.parametrize("count", [2, 3])


@functools.cache
def folds(benchmark: Benchmark, count: int) -> list[Benchmark]:
    return [fold_benchmark(benchmark, index, count, 3) for index in range(count)]


def content(benchmark: Benchmark) -> list[object]:
    splits = [[(t.name, t.pairs.tolist(), t.known.tolist(), t.range.tolist()) for t in benchmark.split(s)]
              for s in ("train", "dev", "test")]  # fmt: skip
    return [benchmark.name, benchmark.graph.fingerprint, splits]


def relations_in(benchmark: Benchmark) -> set[str]:
    """The relations with a triple in the known graph."""
    graph = benchmark.known_graph
    return {graph.relations[int(r)] for r in np.unique(graph.triples()[:, 1])}


@every_benchmark
@some_counts
def test_what_is_held_out_is_in_no_graph_and_no_train_task(benchmark: Benchmark, count: int) -> None:
    for fold in folds(benchmark, count):
        held = {task.name for task in fold.split("dev")}
        assert held and not held & relations_in(fold)
        assert not held & {task.name for task in fold.split("train")} and not fold.split("test")


@every_benchmark
@some_counts
def test_tasks_can_be_asked(benchmark: Benchmark, count: int) -> None:
    for fold in folds(benchmark, count):
        for task in fold.split("dev"):
            known = {tuple(pair) for pair in task.known.tolist()}
            assert {tuple(pair) for pair in task.pairs.tolist()} <= known and len(task.pairs) >= MIN_CONNECTED_PAIRS
            assert (fold.graph.degrees[task.pairs] > 0).all()
            assert np.isin(task.pairs[:, 1], task.range).all() and (np.diff(task.range) > 0).all()
            assert np.array_equal(task.known, task.known[np.lexsort((task.known[:, 1], task.known[:, 0]))])


@every_benchmark
def test_folds_do_not_read_dev_or_test_and_are_always_the_same(benchmark: Benchmark) -> None:
    asked = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    blind = Benchmark(benchmark.name, benchmark.graph, {**benchmark.tasks, "dev": [], "test": []})
    for index, fold in enumerate(folds(benchmark, 2)):
        names = {task.name for split in ("train", "dev") for task in fold.split(split)}
        assert not asked & (names | relations_in(fold))
        assert content(fold_benchmark(blind, index, 2, 3)) == content(fold)
        assert fold.name == f"{benchmark.name}-fold-{index}-of-2"
    assert content(folds(benchmark, 2)[0]) != content(folds(benchmark, 2)[1])
