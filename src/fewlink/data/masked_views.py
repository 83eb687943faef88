"""Views of what a benchmark knows, to learn from: in each, some known relations are hidden and become tasks.

What is known are the background's triples and all pairs of the train relations. A view's graph has none of the triples
of its hidden relations, so neither paths nor vectors that are made from it can give an answer away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.base.errors import FewlinkError
from fewlink.base.seeds import generator
from fewlink.data.benchmark import Benchmark, Task, sorted_pairs
from fewlink.data.candidates import likely_tails
from fewlink.data.triples import training_triples
from fewlink.graph import Graph
from fewlink.graph.csr import Groups
from fewlink.graph.vocabulary import Vocabulary

SMALLEST, LARGEST = 20, 2000  # pairs of a hidden relation
HIDDEN = 0.12  # share of the triples that a view hides, at most, unless its train relations are more
MOST_PAIRS = 500  # of a task
INVERSE = "⁻¹"


@dataclass(frozen=True, eq=False)
class View:
    """A graph and, as tasks in both directions, relations that it does not have."""

    graph: Graph
    tasks: Sequence[Task]


def known_graph(benchmark: Benchmark) -> Graph:
    """The background with the train relations as ordinary ones: what may be read to answer dev or test queries.

    It is made once and remembered by the benchmark; without train relations it is the background itself.
    """
    return benchmark.once(_known_graph)


def _known_graph(benchmark: Benchmark) -> Graph:
    if not benchmark.split("train"):
        return benchmark.graph
    data = training_triples(benchmark, with_train_tasks=True)
    return _graph(benchmark, data.triples, data.relations)


def masked_views(benchmark: Benchmark, count: int) -> list[View]:
    """`count` views, always the same, made once and remembered by the benchmark.

    Each train relation is hidden in one of them, and of the background relations of middling size as many as there is
    room for, the smallest first.
    """
    return benchmark.once(_masked_views, count)


def _masked_views(benchmark: Benchmark, count: int) -> list[View]:
    data = training_triples(benchmark, with_train_tasks=True)
    folds = _folds(data.triples, data.background, count)
    own = {task.name: task for task in benchmark.split("train")}
    places = Groups.of(data.triples[:, 1], np.arange(len(data.triples)), len(data.relations))
    made = []
    for fold in range(count):
        hidden = np.flatnonzero(folds == fold)
        graph = _graph(benchmark, data.triples[~np.isin(data.triples[:, 1], hidden)], data.relations)
        tasks = []
        for relation in hidden:
            name = data.relations[relation]
            known = data.triples[places[int(relation)]][:, [0, 2]]
            task = own.get(name) or Task(name, known, known, likely_tails(graph, known[:, 1]))
            tasks += _both_ways(graph, task)
        made.append(View(graph, tasks))
    if not any(view.tasks for view in made):
        raise FewlinkError(
            f"{benchmark.name} has nothing to learn on: no relation of {SMALLEST} to {LARGEST} pairs can be hidden"
        )
    return made


def _folds(triples: np.ndarray, background: np.ndarray, count: int) -> np.ndarray:
    """The view that hides each relation, or -1: (relations,)."""
    relations = int(triples[:, 1].max(initial=-1)) + 1
    sizes = np.bincount(triples[:, 1], minlength=relations)
    own = np.unique(triples[~background, 1])
    middling = [r for r in np.argsort(sizes, kind="stable") if SMALLEST <= sizes[r] <= LARGEST and r not in own]
    folds, hidden = np.full(relations, -1), np.zeros(count)
    for relation in (*generator(0, "views").permutation(own), *middling):
        fold = int(hidden.argmin())
        if relation in own or hidden[fold] + sizes[relation] <= HIDDEN * len(triples):
            folds[relation] = fold
            hidden[fold] += sizes[relation]
    return folds


def _graph(benchmark: Benchmark, triples: np.ndarray, relations: Sequence[str]) -> Graph:
    graph = benchmark.graph
    labels = None
    if graph.labels is not None:
        labels = Vocabulary.of([*graph.labels, *relations[len(graph.relations) :]])
    return Graph.of(graph.entities, Vocabulary.of(relations), triples, types=graph.types, labels=labels)


def _both_ways(graph: Graph, task: Task) -> list[Task]:
    """A hidden relation and its inverse, of the pairs that the graph knows both entities of."""
    pairs = task.pairs[(graph.degrees[task.pairs] > 0).all(1)]
    if len(pairs) < SMALLEST:
        return []
    pairs = generator(0, "view", task.name).permutation(pairs)[:MOST_PAIRS]
    back = task.known[:, ::-1]
    ways = [
        Task(task.name, pairs, sorted_pairs(task.known), task.range.astype(np.int32)),
        Task(task.name + INVERSE, pairs[:, ::-1], sorted_pairs(back), likely_tails(graph, back[:, 1]).astype(np.int32)),
    ]
    return [way for way in ways if len(way.range) > 1]
