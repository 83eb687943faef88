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
from fewlink.metar.family import MetaLearner, MetaRFamily, sampler, scaled, tasks_of
from fewlink.training.family import ModelSettings
from fewlink.training.run import check_weights

MODELS = {"gana": "GANA: references with their neighbours give a relation's vector; it and a hyperplane take a step"}


@dataclass(frozen=True)
class GANASettings(ModelSettings):
    """How GANA is trained; the defaults are those of the authors' program for NELL-One, except beta and scale.

    model                a name of `fewlink models`
    shots                references of an episode (K), and of each dev relation
    relations            episodes of a step, each of a relation; shared out where several processes train together
    batch                queries of an episode
    negatives            false tails of each reference and of each query
    margin               γ of the hinge loss
    beta                 β: how far the relation's vector and the hyperplane's normal move against their gradients
    neighbours           neighbours of an entity that are read, at most
    hidden               numbers of an LSTM state, in each direction
    layers               layers of the LSTM
    dropout              share of the numbers of vectors dropped while training, where neighbours are read
    scale                mean length that the entities' vectors are brought to; 0 leaves them as they are
    learning_rate        of Adam
    embedding_rate       the same for the entities' vectors; 0 leaves them as they are
    steps                steps at most
    evaluate_every       steps between evaluations on dev; each one saves the run
    patience             evaluations without a better dev MRR before training stops
    evaluate_candidates  the candidates on dev: full or paper
    """

    model: str = "gana"
    shots: int = 3
    relations: int = 1024
    batch: int = 3
    negatives: int = 1
    margin: float = 1.0
    beta: float = 1.0
    neighbours: int = 50
    hidden: int = 450
    layers: int = 2
    dropout: float = 0.5
    scale: float = 1.0
    learning_rate: float = 1e-3
    embedding_rate: float = 1e-3
    steps: int = 100_000
    evaluate_every: int = 1000
    patience: int = 10
    evaluate_candidates: str = "full"
    seed: int = 0
    device: str = "cpu"

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "model": tuple(MODELS),
        "evaluate_candidates": ("full", "paper"),
    }
    AT_LEAST_ONE = (
        *("shots", "relations", "batch", "negatives", "neighbours", "hidden", "layers"),
        *("steps", "evaluate_every", "patience"),
    )
    POSITIVE = ("margin", "learning_rate")
    NOT_NEGATIVE = ("beta", "scale", "embedding_rate")

    def __post_init__(self) -> None:
        self.check()
        self.require("dropout", 0 <= self.dropout < 1, "0 or more and less than 1")

    def decay_at(self, step: int) -> float:
        """The learning rate stays as it is."""
        return 1.0


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
