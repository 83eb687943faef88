"""The triples a model may read: training triples, the known graph, and masked views to learn from.

Known are the triples of the background and all pairs of the train relations; never a pair of a dev or test query. A
masked view hides some known relations and makes tasks of them: its graph has no triple of its hidden relations, so
neither paths in it nor vectors trained on it can give an answer away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.data.benchmark import SPLITS, Benchmark, Task, sorted_pairs
from fewlink.data.candidates import likely_tails, task_of_pairs
from fewlink.graph import Graph
from fewlink.graph.graph import Groups

SMALLEST, LARGEST = 20, 2000  # pairs of a hidden relation
HIDDEN = 0.12  # share of the triples that a view hides at most, unless its train relations have more
MOST_PAIRS = 500  # of a task
FOLD_SMALLEST, FOLD_LARGEST = 50, 500  # pairs of a background relation that a fold holds out
INVERSE = "⁻¹"


@dataclass(frozen=True)
class TrainingTriples:
    """Shapes: `triples` (n, 3) int32; `background` (n,) bool; `relations`: the name of each relation id.

    The relations of the background keep their ids; those of the tasks follow.
    """

    triples: np.ndarray
    background: np.ndarray
    relations: list[str]


@dataclass(frozen=True, eq=False)
class View:
    """A graph and, as tasks in both directions, relations that it does not have."""

    graph: Graph
    tasks: Sequence[Task]


def training_triples(
    benchmark: Benchmark, *, with_train_tasks: bool = False, shots: int = 0, draw: int = 0, seed: int = 0
) -> TrainingTriples:
    """The background triples, optionally with all pairs of the train relations and K references of dev and test ones.

    `shots` 0 leaves out the dev and test relations. `draw` and `seed` choose the references as in evaluation.
    """
    graph = benchmark.graph
    parts, names = [graph.triples()], list(graph.relations)
    for split in SPLITS:
        for task in benchmark.tasks[split]:
            if split == "train":
                pairs = task.pairs if with_train_tasks else task.pairs[:0]
            else:
                pairs = task.split(shots, draw, seed)[0] if shots else task.pairs[:0]
            if len(pairs):
                parts.append(np.insert(pairs, 1, len(names), axis=1))
                names.append(task.name)
    triples = np.concatenate(parts).astype(np.int32)
    return TrainingTriples(triples, np.arange(len(triples)) < graph.triple_count, names)


def known_graph(benchmark: Benchmark) -> Graph:
    """The background with the train relations added: what a model may read to answer dev or test queries.

    Computed once for each benchmark; without train relations it is the background itself.
    """
    return benchmark.once(_known_graph)


def _known_graph(benchmark: Benchmark) -> Graph:
    graph = benchmark.graph
    if not benchmark.split("train"):
        return graph
    data = training_triples(benchmark, with_train_tasks=True)
    return graph.with_relations(data.relations[len(graph.relations) :], data.triples[~data.background])


def masked_views(benchmark: Benchmark, count: int) -> list[View]:
    """`count` views, always the same, computed once for each benchmark.

    Each train relation is hidden in one view, and so are background relations of medium size, the smallest first,
    until each view hides its share of the triples.
    """
    return benchmark.once(_masked_views, count)


def _masked_views(benchmark: Benchmark, count: int) -> list[View]:
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
    tasks = [_usable(graph, task) for task in train[index::count]]
    for relation in np.sort(chosen).tolist():
        pairs = triples[triples[:, 1] == relation][:, [0, 2]]
        pairs = generator(0, "fold", names[relation]).permutation(pairs)
        tasks.append(_usable(graph, task_of_pairs(graph, names[relation], pairs)))
    kept = [task for at, task in enumerate(train) if at % count != index]
    dev = [task for task in tasks if len(task.pairs) >= SMALLEST]
    return Benchmark(f"{benchmark.name}-fold-{index}-of-{count}", graph, {"train": kept, "dev": dev, "test": []})


def _usable(graph: Graph, task: Task) -> Task:
    """The task with the pairs whose entities both have edges in the graph."""
    return dataclasses.replace(task, pairs=task.pairs[(graph.degrees[task.pairs] > 0).all(1)])


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
    pairs = _usable(graph, task).pairs
    if len(pairs) < SMALLEST:
        return []
    pairs = generator(0, "view", task.name).permutation(pairs)[:MOST_PAIRS]
    back = task.known[:, ::-1]
    directions = [
        Task(task.name, pairs, sorted_pairs(task.known), task.range.astype(np.int32)),
        Task(task.name + INVERSE, pairs[:, ::-1], sorted_pairs(back), likely_tails(graph, back[:, 1]).astype(np.int32)),
    ]
    return [each for each in directions if len(each.range) > 1]
