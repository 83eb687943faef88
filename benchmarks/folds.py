"""Folds: benchmarks for choosing settings, whose dev relations are known relations that are held out."""

from __future__ import annotations

import dataclasses

import numpy as np

from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.tasks.benchmark import Benchmark, Task
from fewlink.tasks.candidates import task_of_pairs

MIN_BACKGROUND_PAIRS = 50
MAX_BACKGROUND_PAIRS = 500  # of a background relation that a fold may hold out
MIN_CONNECTED_PAIRS = 20  # of a held-out relation: pairs whose entities have other edges


def fold_benchmark(benchmark: Benchmark, index: int, count: int = 2, background: int = 20) -> Benchmark:
    """Make a benchmark for choosing settings: its dev relations are relations that the benchmark may train on.

    Fold `index` of `count` holds out every count-th train relation and up to `background` background relations of the
    usual size of a task. Neither the graph nor a training triple contains them. The benchmark's dev and test relations
    are left out.
    """
    train = list(benchmark.split("train"))
    triples = benchmark.graph.triples()
    names = benchmark.graph.relations
    sizes = np.bincount(triples[:, 1], minlength=len(names))
    medium = np.flatnonzero((sizes >= MIN_BACKGROUND_PAIRS) & (sizes <= MAX_BACKGROUND_PAIRS))
    chosen = generator(0, "fold").permutation(medium)[: background * count][index::count]
    graph = benchmark.graph.without(chosen)
    tasks = [with_connected_pairs(graph, task) for task in train[index::count]]
    for relation in np.sort(chosen).tolist():
        pairs = triples[triples[:, 1] == relation][:, [0, 2]]
        pairs = generator(0, "fold", names[relation]).permutation(pairs)
        tasks.append(with_connected_pairs(graph, task_of_pairs(graph, names[relation], pairs)))
    kept = [task for at, task in enumerate(train) if at % count != index]
    dev = [task for task in tasks if len(task.pairs) >= MIN_CONNECTED_PAIRS]
    return Benchmark(f"{benchmark.name}-fold-{index}-of-{count}", graph, {"train": kept, "dev": dev, "test": []})


def with_connected_pairs(graph: Graph, task: Task) -> Task:
    """The task with only the pairs whose entities both have edges in the graph."""
    return dataclasses.replace(task, pairs=task.pairs[(graph.degrees[task.pairs] > 0).all(1)])
