"""The triples that a model may read: training triples, and the known graph.

The known graph has the background and all pairs of the train relations, but no pair of a dev or test query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.graph import Graph
from fewlink.tasks.benchmark import SPLITS, Benchmark


@dataclass(frozen=True)
class TrainingTriples:
    """Triples to train on: those of the background, whose relations keep their ids, then those of tasks.

    Shapes: `triples` (n, 3) int32; `background` (n,) bool; `relations`, the name of each relation id.
    """

    triples: np.ndarray
    background: np.ndarray
    relations: list[str]


def training_triples(
    benchmark: Benchmark, *, with_train_tasks: bool = False, shots: int = 0, draw: int = 0, seed: int = 0
) -> TrainingTriples:
    """The background triples, optionally with the pairs of train relations and K references of dev and test relations.

    With `shots` 0, dev and test relations are left out. `draw` and `seed` choose the references as in evaluation.
    """
    graph = benchmark.graph
    blocks = [graph.triples()]
    names = list(graph.relations)
    for split in SPLITS:
        for task in benchmark.tasks[split]:
            if split == "train":
                pairs = task.pairs if with_train_tasks else task.pairs[:0]
            else:
                pairs = task.split(shots, draw, seed)[0] if shots else task.pairs[:0]
            if len(pairs):
                blocks.append(np.insert(pairs, 1, len(names), axis=1))
                names.append(task.name)
    triples = np.concatenate(blocks).astype(np.int32)
    return TrainingTriples(triples, np.arange(len(triples)) < graph.triple_count, names)


def known_graph(benchmark: Benchmark) -> Graph:
    """The background with the train relations added, which a model may read to answer dev and test queries.

    It is computed once for each benchmark. Without train relations it is the background itself.
    """
    return benchmark.once(_known_graph)


def _known_graph(benchmark: Benchmark) -> Graph:
    graph = benchmark.graph
    if not benchmark.split("train"):
        return graph
    data = training_triples(benchmark, with_train_tasks=True)
    return graph.with_relations(data.relations[len(graph.relations) :], data.triples[~data.background])
