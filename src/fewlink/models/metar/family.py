"""The MetaR family, and the base that GANA's family shares."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from fewlink.core.errors import InputError
from fewlink.core.memory import PROGRAM, Parts
from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.embeddings import Embeddings
from fewlink.models.metar.episodes import sampler
from fewlink.models.metar.learner import ENTITIES, MetaLearner
from fewlink.models.metar.model import MetaR
from fewlink.models.metar.scorer import MetaRScorer, MetaScorer
from fewlink.models.metar.settings import MODELS, MetaLearnerSettings, MetaRSettings
from fewlink.models.one_table import OneTableFamily
from fewlink.models.weights import check_weights
from fewlink.tasks.benchmark import Benchmark

MetaSettingsT = TypeVar("MetaSettingsT", bound=MetaLearnerSettings)


class MetaLearnerFamily(OneTableFamily[MetaSettingsT]):
    """Models that learn from contrasted episodes, as MetaR does."""

    scorer_class: ClassVar[type[MetaScorer[Any]]]

    def check(self, benchmark: Benchmark, settings: MetaSettingsT) -> None:
        sampler(benchmark, settings)

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        if ENTITIES in weights:
            raise InputError(run, "has tuned its vectors and has none for new entities: train again")

    @abstractmethod
    def assembled(
        self, benchmark: Benchmark, vectors: Embeddings, settings: MetaSettingsT, *, training: bool
    ) -> nn.Module:
        """A model with its initial parameters, for training on the benchmark's tasks or for scoring."""

    def learner(
        self, benchmark: Benchmark, vectors: Embeddings, settings: MetaSettingsT, seeds: Sequence[int]
    ) -> MetaLearner:
        (seed,) = seeds
        settings = settings.replace(seed=seed)
        model = self.assembled(benchmark, vectors, settings, training=True)
        return MetaLearner(
            model, sampler(benchmark, settings), settings, lambda: self._scorer_of(model, benchmark.graph, settings)
        )

    def scorer(
        self,
        benchmark: Benchmark,
        vectors: Embeddings,
        settings: MetaSettingsT,
        weights: dict[str, Tensor],
        *,
        run: Path,
    ) -> MetaScorer[Any]:
        model = self.assembled(benchmark, vectors, settings, training=False)
        check_weights(model.state_dict(), weights, run)
        model.load_state_dict(weights)
        return self._scorer_of(model, benchmark.graph, settings)

    def _scorer_of(self, model: nn.Module, graph: Graph, settings: MetaSettingsT) -> MetaScorer[Any]:
        return self.scorer_class(settings.model, model, graph, negatives=settings.negatives, seed=settings.seed)


class MetaRFamily(MetaLearnerFamily[MetaRSettings]):
    """MetaR."""

    name = "metar"
    settings = MetaRSettings
    memory_advice = "relations=256"
    scorer_class = MetaRScorer

    @property
    def models(self) -> Mapping[str, str]:
        return MODELS

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

    def assembled(self, benchmark: Benchmark, vectors: Embeddings, settings: MetaRSettings, *, training: bool) -> MetaR:
        return assemble(vectors, settings)


def assemble(vectors: Embeddings, settings: MetaRSettings) -> MetaR:
    """A model with its initial parameters, a pure function of the vectors and the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        if settings.start == "random":
            table = nn.init.xavier_uniform_(torch.empty_like(vectors.entities, dtype=torch.float32))
            vectors = dataclasses.replace(vectors, entities=table)
        model = MetaR(
            scaled(vectors, settings.scale).entities,
            (settings.hidden_1, settings.hidden_2),
            margin=settings.margin,
            beta=settings.beta,
            dropout=settings.dropout,
            tuned=settings.embedding_rate > 0,
        )
    return model.to(settings.device)


def scaled(vectors: Embeddings, length: float) -> Embeddings:
    """Vectors in single precision, scaled so that entities have this mean length; 0 does not scale them."""
    vectors = vectors.single_precision()
    if not length:
        return vectors
    factor = length / vectors.entities.norm(dim=1).mean()
    return dataclasses.replace(vectors, entities=vectors.entities * factor, relations=vectors.relations * factor)


FAMILY = MetaRFamily()
