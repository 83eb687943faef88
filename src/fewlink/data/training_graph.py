"""The triples a model may read: training triples, and the known graph.

Known are the triples of the background and all pairs of the train relations; never a pair of a dev or test query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.data.benchmark import SPLITS, Benchmark
from fewlink.graph import Graph


@dataclass(frozen=True)
class TrainingTriples:
    """Shapes: `triples` (n, 3) int32; `background` (n,) bool; `relations`: the name of each relation id.

    The relations of the background keep their ids; those of the tasks follow.
    """

    triples: np.ndarray
    background: np.ndarray
    relations: list[str]


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
