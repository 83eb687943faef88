"""The triples that embeddings may be trained on: never a pair that a dev or test query asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.data.benchmark import SPLITS, Benchmark


@dataclass(frozen=True)
class TrainingTriples:
    """Shapes: `triples` (n, 3) int32; `background` (n,) bool; `relations`: the name of each relation id.

    The background's relations keep their ids; those of the tasks follow.
    """

    triples: np.ndarray
    background: np.ndarray
    relations: list[str]


def training_triples(
    benchmark: Benchmark, *, with_train_tasks: bool = False, shots: int = 0, draw: int = 0, seed: int = 0
) -> TrainingTriples:
    """Background triples; with all pairs of the meta-training relations; with K references of dev and test relations.

    `shots` 0 leaves dev and test relations out altogether. `draw` and `seed` choose the references as in evaluation.
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
