"""The MetaR family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.core.machine import PROGRAM, Parts
from fewlink.graph import Graph
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import Learner
from fewlink.models.metar.model import ENTITIES
from fewlink.models.metar.scorer import MetaRScorer, assemble
from fewlink.models.metar.settings import MODELS, MetaRSettings
from fewlink.models.vectors import OneTableFamily
from fewlink.models.weights import check_weights
from fewlink.tasks.benchmark import Benchmark


class MetaRFamily(OneTableFamily[MetaRSettings]):
    """MetaR."""

    name = "metar"
    settings = MetaRSettings
    memory_advice = "relations=256"

    @property
    def models(self) -> Mapping[str, str]:
        return MODELS

    def check(self, benchmark: Benchmark, settings: MetaRSettings) -> None:
        from fewlink.models.metar.learner import sampler

        sampler(benchmark, settings)

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        if ENTITIES in weights:
            raise InputError(run, "has tuned its vectors and has none for new entities: train again")

    def memory(
        self, graph: Graph, vectors: Embeddings, settings: MetaRSettings, *, runs: int = 1, training: bool = False
    ) -> Parts:
        table = 4.0 * len(graph.entities) * vectors.dim
        pairs = settings.relations * (settings.shots + settings.batch)
        episode = 4.0 * pairs * (4 + 2 * settings.negatives) * vectors.dim
        layers = 12.0 * settings.relations * settings.shots * (settings.hidden_1 + settings.hidden_2)
        tuned = training and settings.embedding_rate > 0
        return {
            "vectors": table * (5 if tuned else 1),  # with a gradient and two moments
            "episodes": 4 * (episode + layers) if training else 0.0,
            "the program": PROGRAM,
        }

    def learner(
        self, benchmark: Benchmark, vectors: Embeddings, settings: MetaRSettings, seeds: Sequence[int]
    ) -> Learner:
        from fewlink.models.metar.learner import MetaRLearner

        (seed,) = seeds
        return MetaRLearner(benchmark, vectors, settings.replace(seed=seed))

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Embeddings,
        settings: MetaRSettings,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> MetaRScorer:
        model = assemble(vectors, settings)
        check_weights(model.state_dict(), weights, run)
        model.load_state_dict(weights)
        return MetaRScorer(model, benchmark.graph, settings)


FAMILY = MetaRFamily()
