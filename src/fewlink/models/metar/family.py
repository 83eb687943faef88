"""The MetaR family: its settings, how it learns, and how it is trained and opened."""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.memory import PROGRAM, Parts
from fewlink.core.seeds import derive
from fewlink.data.benchmark import Benchmark, Task, sorted_pairs
from fewlink.data.candidates import likely_tails
from fewlink.data.episodes import ContrastedEpisodes, ContrastedSampler
from fewlink.embeddings import Embeddings
from fewlink.graph import Graph
from fewlink.graph.graph import Groups
from fewlink.models.family import RunState, StepResult
from fewlink.models.metar.model import MetaR, MetaRScorer, MetaScorer
from fewlink.models.metar.settings import MODELS, TRAIN_ONLY, MetaLearnerSettings, MetaRSettings
from fewlink.models.one_table import OneTableFamily
from fewlink.models.weights import check_weights, moments_of, restore_moments
from fewlink.scorers import Scorer

ENTITIES = "entities"  # the name of the vectors among the weights
AT_ONCE = {"cpu": 16, "cuda": 128}  # steps whose episodes are drawn together


MetaSettingsT = TypeVar("MetaSettingsT", bound=MetaLearnerSettings)


class MetaLearner:
    """One run of a model whose forward pass gives the loss of contrasted episodes; a step never waits for the device.

    The model's entities learn by the rate `embedding_rate`, all else by `learning_rate`. `make_scorer` makes a scorer
    with the model's weights as they are then.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: ContrastedSampler,
        settings: MetaLearnerSettings,
        make_scorer: Callable[[], Scorer],
    ) -> None:
        self.model, self.sampler, self.settings, self.make_scorer = model, sampler, settings, make_scorer
        on_gpu = distributed.use_device(settings.device) != "cpu"
        rates: dict[float, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            rate = settings.embedding_rate if name == ENTITIES else settings.learning_rate
            rates.setdefault(rate, []).append(parameter)
        groups = [{"params": parameters, "lr": rate} for rate, parameters in rates.items()]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=on_gpu)
        self.share = settings.relations // distributed.count()
        self.steps_at_once = AT_ONCE["cuda" if on_gpu else "cpu"]

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {name: value.unsqueeze(0) for name, value in self.model.state_dict().items()}

    def episodes(self, first: int, count: int) -> list[ContrastedEpisodes]:
        """Those of each of `count` steps from step `first` on that are this process's share."""
        steps = torch.arange(first, first + count).unsqueeze(1) * self.settings.relations
        numbers = steps + distributed.rank() * self.share + torch.arange(self.share)
        drawn = self.sampler.contrasted(numbers.flatten())
        return [ContrastedEpisodes(*parts) for parts in zip(*(part.split(self.share) for part in drawn), strict=True)]

    def run_steps(self, first: int, count: int) -> StepResult:
        """Run `count` steps, beginning with step `first`."""
        self.model.train()
        began = time.perf_counter()
        episodes = self.episodes(first, count)
        sampling_seconds = time.perf_counter() - began
        losses = []
        for step, own in enumerate(episodes, first):
            torch.manual_seed(derive(self.settings.seed, "step", step, distributed.rank()))  # for dropout
            losses.append(self.step(step, own))
        return StepResult({"loss": torch.stack(losses).unsqueeze(-1)}, sampling_seconds)

    def step(self, number: int, episodes: ContrastedEpisodes) -> Tensor:
        """Move the weights along the episodes; their loss before the move."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*episodes)
        loss.backward()
        value: Tensor = loss.detach().clone()
        distributed.average_([value, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        self.optimizer.step()
        return value

    def scorer(self, run: int) -> Scorer:
        return self.make_scorer()

    def state(self, run: int) -> RunState:
        """The weights and the optimizer's moments."""
        weights = {name: value.detach() for name, value in self.model.state_dict().items()}
        return RunState(weights, moments_of(self.model, self.optimizer))

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.model.load_state_dict(weights)
        restore_moments(self.model, self.optimizer, moments)


class MetaLearnerFamily(OneTableFamily[MetaSettingsT]):
    """Models that learn from contrasted episodes as MetaR does."""

    scorer_class: ClassVar[type[MetaScorer[Any]]]

    def check(self, benchmark: Benchmark, settings: MetaSettingsT) -> None:
        sampler(benchmark, settings)

    def check_fold_in(self, run: Path, weights: Mapping[str, Tensor]) -> None:
        if ENTITIES in weights:
            raise InputError(run, "trained its vectors with the model, and has none for new entities: train it again")

    @abstractmethod
    def assembled(
        self, benchmark: Benchmark, vectors: Embeddings, settings: MetaSettingsT, *, training: bool
    ) -> nn.Module:
        """A model with its initial parameters, for training on the benchmark's tasks or for answering only."""

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
    """Vectors in single precision, multiplied so that entities have this mean length; 0 leaves them as they are."""
    vectors = vectors.single_precision()
    if not length:
        return vectors
    factor = length / vectors.entities.norm(dim=1).mean()
    return dataclasses.replace(vectors, entities=vectors.entities * factor, relations=vectors.relations * factor)


def sampler(benchmark: Benchmark, settings: MetaLearnerSettings) -> ContrastedSampler:
    """Episodes of the train relations, and of the background's where the model learns from them."""
    return ContrastedSampler(
        tasks_of(benchmark, settings),
        len(benchmark.graph.entities),
        shots=settings.shots,
        batch=settings.batch,
        negatives=settings.negatives,
        seeds=[settings.seed],
        device=settings.device,
    )


def tasks_of(benchmark: Benchmark, settings: MetaLearnerSettings) -> list[Task]:
    """The train relations and, for all models but `metar`, those of the background that have enough pairs."""
    tasks = list(benchmark.split("train"))
    if settings.model != TRAIN_ONLY:
        tasks += [task for task in benchmark.once(_background_tasks) if len(task.pairs) > settings.shots]
        if not tasks:
            raise FewlinkError(f"{benchmark.name} has no relation with more than {settings.shots} pairs to learn from")
    return tasks


def _background_tasks(benchmark: Benchmark) -> list[Task]:
    """The background's relations as tasks; none that holds between all entities of its range."""
    graph = benchmark.graph
    triples = graph.triples()
    pairs = Groups.of(triples[:, 1], triples[:, [0, 2]], len(graph.relations))
    tasks = []
    for relation, name in enumerate(graph.relations):
        known = sorted_pairs(pairs[relation])
        kind = likely_tails(graph, np.unique(known[:, 1]))
        if len(kind) > 1:
            tasks.append(Task(name, known, known, kind))
    return tasks


FAMILY = MetaRFamily()
