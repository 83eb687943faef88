"""Views of a benchmark: graphs without some known relations, which become tasks in both directions.

The graph of a view has no triple of its hidden relations, so no path in it can give an answer away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.graph import Graph
from fewlink.graph.groups import Groups
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import likely_tails
from fewlink.tasks.folds import with_connected_pairs
from fewlink.tasks.training_graph import known_graph

SMALLEST, LARGEST = 20, 2000  # pairs of a hidden relation
HIDDEN = 0.12  # share of the triples that a view hides at most, unless its train relations have more
MOST_PAIRS = 500  # of a task
INVERSE = "⁻¹"


@dataclass(frozen=True, eq=False)
class View:
    """A graph and, as tasks in both directions, relations that it does not have."""

    graph: Graph
    tasks: Sequence[Task]


def masked_views(benchmark: Benchmark, count: int) -> list[View]:
    """`count` views, always the same.

    Each train relation is hidden in one view, and so are background relations of medium size, the smallest first,
    until each view hides its share of the triples.
    """
    known = known_graph(benchmark)
    triples, relations = known.triples(), known.relations
    folds = _folds(triples, len(benchmark.graph.relations), count)
    train_tasks = {task.name: task for task in benchmark.split("train")}
    pairs = Groups.of(triples[:, 1], triples[:, [0, 2]], len(relations))
    views = []
    for fold in range(count):
        hidden = np.flatnonzero(folds == fold)
        graph = known.without(hidden)
        tasks = []
        for relation in hidden.tolist():
            name, every = relations[relation], pairs[relation]
            task = train_tasks.get(name) or Task(name, every, every, likely_tails(graph, every[:, 1]))
            tasks += _both_directions(graph, task)
        views.append(View(graph, tasks))
    if not any(view.tasks for view in views):
        raise FewlinkError(
            f"{benchmark.name} has nothing to learn on: no relation of {SMALLEST} to {LARGEST} pairs can be hidden"
        )
    return views


def _folds(triples: np.ndarray, background: int, count: int) -> np.ndarray:
    """The view that hides each relation, or -1: (relations,); those from id `background` on are train relations."""
    sizes = np.bincount(triples[:, 1])
    train = np.arange(background, len(sizes))
    medium = [r for r in np.argsort(sizes, kind="stable") if SMALLEST <= sizes[r] <= LARGEST and r < background]
    folds, hidden = np.full(len(sizes), -1), np.zeros(count)
    for relation in (*generator(0, "views").permutation(train), *medium):
        fold = int(hidden.argmin())
        if relation >= background or hidden[fold] + sizes[relation] <= HIDDEN * len(triples):
            folds[relation] = fold
            hidden[fold] += sizes[relation]
    return folds


def _both_directions(graph: Graph, task: Task) -> list[Task]:
    """A hidden relation and its inverse, with the pairs whose entities both have edges in the graph."""
    pairs = with_connected_pairs(graph, task).pairs
    if len(pairs) < SMALLEST:
        return []
    pairs = generator(0, "view", task.name).permutation(pairs)[:MOST_PAIRS]
    back = task.known[:, ::-1]
    directions = [
        Task(task.name, pairs, sorted_pairs(task.known), task.range.astype(np.int32)),
        Task(task.name + INVERSE, pairs[:, ::-1], sorted_pairs(back), likely_tails(graph, back[:, 1]).astype(np.int32)),
    ]
    return [each for each in directions if len(each.range) > 1]
