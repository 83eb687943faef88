"""The few-shot family: FSRL, its ablations, the authors' program and GMatching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.core.machine import PROGRAM, Parts
from fewlink.graph import Graph
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import Learner
from fewlink.models.fsrl.model import COMPOSITIONS
from fewlink.models.fsrl.scorer import FewShotScorer, initial_model, inputs_of, load_weights
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.vectors import OneTableFamily, references_seen
from fewlink.tasks.benchmark import Benchmark

NEIGHBOUR_BYTES = 12
SORTED_EDGE_BYTES = 40  # while neighbours are chosen


class FewShotFamily(OneTableFamily[FewShotSettings]):
    """FSRL, its ablations, the authors' program and GMatching."""

    name = "fewshot"
    settings = FewShotSettings
    side_by_side = True
    knows_seen_references = True
    memory_advice = "batch=64 --set neighbours=10"

    @property
    def models(self) -> Mapping[str, str]:
        return {name: composition.about for name, composition in COMPOSITIONS.items()}

    def check(self, benchmark: Benchmark, settings: FewShotSettings) -> None:
        from fewlink.models.fsrl.learner import sampler

        sampler(benchmark, settings, [settings.seed])

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        if any(name.startswith("around.") for name in weights):
            raise InputError(run, "has tuned its vectors and has none for new entities: train again")

    def memory(
        self, graph: Graph, vectors: Embeddings, settings: FewShotSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        """On the CPU, vectors that are not tuned stay in their file, and only the rows in use are read."""
        table = 4.0 * len(graph.entities) * vectors.dim
        copied = settings.device != "cpu" or settings.standardise
        tuned = settings.embedding_rate > 0
        pairs = runs * settings.relations * settings.batch * (1 + settings.negatives)
        return {
            "vectors": table * (copied + 4 * tuned * runs),  # tuned ones have a gradient and two moments
            "neighbours": runs * neighbour_bytes(graph, settings.neighbours),
            "edges": SORTED_EDGE_BYTES * 2.0 * graph.triple_count,
            "episodes": pairs * pair_bytes(vectors.dim, settings.matching_steps) if training else 0.0,
            "the program": PROGRAM,
        }

    def learner(
        self, benchmark: Benchmark, vectors: Embeddings, settings: FewShotSettings, seeds: Sequence[int]
    ) -> Learner:
        from fewlink.models.fsrl.learner import FewShotLearner

        return FewShotLearner(benchmark, vectors, settings, seeds)

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Embeddings,
        settings: FewShotSettings,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> FewShotScorer:
        model = initial_model(vectors.dim, settings).to(settings.device)
        around = inputs_of(benchmark.graph, vectors, settings).to(settings.device)
        load_weights(model, around, weights, run)
        return FewShotScorer(settings.model, model, around, references_seen(vectors))


def pair_bytes(dim: int, steps: int) -> float:
    """Bytes of a pair [h ; t] in training, measured: four of its size, and 18 in each matching step with its gates."""
    return 4.0 * 2 * dim * (4 + 18 * steps)


def neighbour_bytes(graph: Graph, max_neighbours: int) -> float:
    """Bytes of the neighbours of all entities, including their offsets."""
    return float(NEIGHBOUR_BYTES * np.minimum(graph.degrees, max_neighbours).sum() + 8 * len(graph.entities))


FAMILY = FewShotFamily()
