"""Folds: benchmarks to choose settings on, whose dev relations are known relations that are held out."""

from __future__ import annotations

import dataclasses

import numpy as np

from fewlink.core.seeds import generator
from fewlink.data.benchmark import Benchmark, Task
from fewlink.data.candidates import task_of_pairs
from fewlink.graph import Graph

FOLD_SMALLEST, FOLD_LARGEST = 50, 500  # pairs of a background relation that a fold holds out
SMALLEST = 20  # pairs of a held-out relation whose entities have other edges


def fold_benchmark(benchmark: Benchmark, index: int, count: int = 2, background: int = 20) -> Benchmark:
    """A benchmark to choose settings on: its dev relations are known relations of the benchmark, held out.

    Fold `index` of `count` holds out every count-th train relation, and up to `background` background relations with
    as many pairs as tasks usually have. They are in no training triple and not in the graph. The dev and test
    relations of the benchmark are left out.
    """
    train = list(benchmark.split("train"))
    triples, names = benchmark.graph.triples(), benchmark.graph.relations
    sizes = np.bincount(triples[:, 1], minlength=len(names))
    medium = np.flatnonzero((sizes >= FOLD_SMALLEST) & (sizes <= FOLD_LARGEST))
    chosen = generator(0, "fold").permutation(medium)[: background * count][index::count]
    graph = benchmark.graph.without(chosen)
    tasks = [with_connected_pairs(graph, task) for task in train[index::count]]
    for relation in np.sort(chosen).tolist():
        pairs = triples[triples[:, 1] == relation][:, [0, 2]]
        pairs = generator(0, "fold", names[relation]).permutation(pairs)
        tasks.append(with_connected_pairs(graph, task_of_pairs(graph, names[relation], pairs)))
    kept = [task for at, task in enumerate(train) if at % count != index]
    dev = [task for task in tasks if len(task.pairs) >= SMALLEST]
    return Benchmark(f"{benchmark.name}-fold-{index}-of-{count}", graph, {"train": kept, "dev": dev, "test": []})


def with_connected_pairs(graph: Graph, task: Task) -> Task:
    """The task with only those pairs whose entities both have edges in the graph."""
    return dataclasses.replace(task, pairs=task.pairs[(graph.degrees[task.pairs] > 0).all(1)])
