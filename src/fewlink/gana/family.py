"""The GANA family: its settings, and how it is trained and opened; the rest is as in MetaR's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewlink.base.memory import PROGRAM, Parts
from fewlink.base.seeds import derive
from fewlink.data.benchmark import Benchmark, Task
from fewlink.embeddings import Embeddings
from fewlink.fewshot.family import neighbour_bytes
from fewlink.fewshot.neighbourhood import Neighbourhood
from fewlink.gana.model import GANA, GANAScorer
from fewlink.graph import Graph
from fewlink.metar.family import MetaLearner, MetaLearnerSettings, MetaRFamily, sampler, scaled, tasks_of
from fewlink.training.checkpoints import check_weights

MODELS = {"gana": "GANA: references with their neighbours give a relation's vector; it and a hyperplane take a step"}


@dataclass(frozen=True)
class GANASettings(MetaLearnerSettings):
    """How GANA is trained; beta and scale are not the authors'. Dropout falls where neighbours are read.

    neighbours           neighbours of an entity that are read, at most
    hidden               numbers of an LSTM state, in each direction
    layers               layers of the LSTM
    """

    model: str = "gana"
    patience: int = 10
    neighbours: int = 50
    hidden: int = 450
    layers: int = 2

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {**MetaLearnerSettings.CHOICES, "model": tuple(MODELS)}
    AT_LEAST_ONE = (*MetaLearnerSettings.AT_LEAST_ONE, "neighbours", "hidden", "layers")


class GANAFamily(MetaRFamily):
    """GANA; its vectors are pretrained and opened, and its episodes drawn, as those of MetaR's family."""

    name = "gana"
    settings = GANASettings  # type: ignore[assignment]

    @property
    def models(self) -> Mapping[str, str]:
        return MODELS

    def memory(
        self, graph: Graph, vectors: Embeddings, settings: Any, *, runs: int = 1, training: bool = False
    ) -> Parts:
        table = 4.0 * len(graph.entities) * vectors.dim
        tuned = training and settings.embedding_rate > 0
        pairs = settings.relations * settings.shots
        states = 4.0 * pairs * settings.layers * 2 * settings.hidden * 6  # gates, state and output of an LSTM
        messages = 4.0 * pairs * 2 * settings.neighbours * vectors.dim
        return {
            "vectors": table * (6 if tuned else 2),  # as pretrained, and as learnt with a gradient and two moments
            "neighbours": neighbour_bytes(graph, settings.neighbours),
            "episodes": 6 * messages + 3 * states if training else 0.0,
            "the program": PROGRAM,
        }

    def learner(self, benchmark: Benchmark, vectors: Embeddings, settings: Any, seeds: Sequence[int]) -> MetaLearner:
        (seed,) = seeds
        settings = dataclasses.replace(settings, seed=seed)
        model = assemble(benchmark.graph, vectors, settings, tasks_of(benchmark, settings))
        return MetaLearner(
            model, sampler(benchmark, settings), settings, lambda: scorer_of(model, benchmark.graph, settings)
        )

    def scorer(  # type: ignore[override]
        self,
        benchmark: Benchmark,
        vectors: Embeddings,
        settings: Any,
        weights: dict[str, Tensor],
        *,
        parts: Mapping[str, Any],
        run: Path,
    ) -> GANAScorer:
        model = assemble(benchmark.graph, vectors, settings)
        check_weights(model.state_dict(), weights, run)
        model.load_state_dict(weights)
        return scorer_of(model, benchmark.graph, settings)


def assemble(graph: Graph, vectors: Embeddings, settings: GANASettings, tasks: Sequence[Task] = ()) -> GANA:
    """A model with its initial parameters, a pure function of the vectors and the seed; it learns from these tasks."""
    around = Neighbourhood.of(graph, scaled(vectors, settings.scale), most=settings.neighbours, seed=settings.seed)
    numbers = {name: number for number, name in enumerate(graph.relations)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "start"))
        model = GANA(
            around,
            hidden=settings.hidden,
            layers=settings.layers,
            margin=settings.margin,
            beta=settings.beta,
            dropout=settings.dropout,
            tuned=settings.embedding_rate > 0,
            task_relations=torch.tensor([numbers.get(task.name, -1) for task in tasks], dtype=torch.int64),
        )
    return model.to(settings.device)


def scorer_of(model: GANA, graph: Graph, settings: GANASettings) -> GANAScorer:
    return GANAScorer(settings.model, model, graph, negatives=settings.negatives, seed=settings.seed)


FAMILY = GANAFamily()
