"""The GANA family, which is trained like MetaR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fewlink.core.memory import PROGRAM, Parts
from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.family import neighbour_bytes
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.gana.model import GANA
from fewlink.models.gana.scorer import GANAScorer
from fewlink.models.gana.settings import MODELS, GANASettings
from fewlink.models.metar.episodes import tasks_of
from fewlink.models.metar.family import MetaLearnerFamily, scaled
from fewlink.tasks.benchmark import Benchmark, Task


class GANAFamily(MetaLearnerFamily[GANASettings]):
    """GANA."""

    name = "gana"
    settings = GANASettings
    memory_advice = "relations=256"
    scorer_class = GANAScorer

    @property
    def models(self) -> Mapping[str, str]:
        return MODELS

    def memory(
        self, graph: Graph, vectors: Embeddings, settings: GANASettings, *, runs: int = 1, training: bool = False
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

    def assembled(self, benchmark: Benchmark, vectors: Embeddings, settings: GANASettings, *, training: bool) -> GANA:
        tasks = tasks_of(benchmark, settings) if training else ()
        return assemble(benchmark.graph, vectors, settings, tasks)


def assemble(graph: Graph, vectors: Embeddings, settings: GANASettings, tasks: Sequence[Task] = ()) -> GANA:
    """A model with its initial parameters, a pure function of vectors and seed, that learns from these tasks."""
    around = Neighbourhood.of(
        graph, scaled(vectors, settings.scale), max_neighbours=settings.neighbours, seed=settings.seed
    )
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


FAMILY = GANAFamily()
