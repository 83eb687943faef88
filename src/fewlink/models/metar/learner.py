"""The tasks that MetaR learns from, their episodes, and its training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.core.machine import use_device
from fewlink.core.seeds import derive
from fewlink.graph import Graph
from fewlink.graph.groups import Groups
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import RunState, StepResult
from fewlink.models.metar.model import ENTITIES
from fewlink.models.metar.scorer import MetaRScorer, assemble
from fewlink.models.metar.settings import TRAIN_ONLY, MetaRSettings
from fewlink.models.weights import moments_of, restore_moments
from fewlink.tasks.benchmark import Benchmark, Task, sorted_pairs
from fewlink.tasks.candidates import likely_tails
from fewlink.tasks.episodes import ContrastedEpisodes, ContrastedSampler

STEPS_AT_ONCE = {"cpu": 16, "cuda": 128}  # steps whose episodes are sampled together


class MetaRLearner:
    """Trains one run on contrasted episodes.

    The entities' vectors have the learning rate `embedding_rate`, and all other weights `learning_rate`. A step never
    waits for the device.
    """

    def __init__(self, benchmark: Benchmark, vectors: Embeddings, settings: MetaRSettings) -> None:
        self.graph: Graph = benchmark.graph
        self.settings = settings
        self.model = assemble(vectors, settings)
        self.sampler = sampler(benchmark, settings)
        on_gpu = use_device(settings.device) != "cpu"
        rates: dict[float, list[nn.Parameter]] = {}
        for name, parameter in self.model.named_parameters():
            rate = settings.embedding_rate if name == ENTITIES else settings.learning_rate
            rates.setdefault(rate, []).append(parameter)
        groups = [{"params": parameters, "lr": rate} for rate, parameters in rates.items()]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=on_gpu)
        self.share = settings.relations // distributed.count()
        self.steps_at_once = STEPS_AT_ONCE["cuda" if on_gpu else "cpu"]

    @property
    def weights(self) -> Mapping[str, Tensor]:
        return {name: value.unsqueeze(0) for name, value in self.model.state_dict().items()}

    def episodes(self, first: int, count: int) -> list[ContrastedEpisodes]:
        """This process's share of the episodes of each of `count` steps, beginning with step `first`."""
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
        for step, share in enumerate(episodes, first):
            torch.manual_seed(derive(self.settings.seed, "step", step, distributed.rank()))  # for dropout
            losses.append(self.step(share))
        return StepResult({"loss": torch.stack(losses).unsqueeze(-1)}, sampling_seconds)

    def step(self, episodes: ContrastedEpisodes) -> Tensor:
        """Run one step of the optimizer; return the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*episodes)
        loss.backward()
        value: Tensor = loss.detach().clone()
        distributed.average_([value, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        self.optimizer.step()
        return value

    def scorer(self, run: int) -> MetaRScorer:
        return MetaRScorer(self.model, self.graph, self.settings)

    def state(self, run: int) -> RunState:
        """The weights and the optimizer's moments."""
        weights = {name: value.detach() for name, value in self.model.state_dict().items()}
        return RunState(weights, moments_of(self.model, self.optimizer))

    def load_state(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.model.load_state_dict(weights)
        restore_moments(self.model, self.optimizer, moments)


def sampler(benchmark: Benchmark, settings: MetaRSettings) -> ContrastedSampler:
    """The sampler of episodes of the train relations and, except for `metar`, of the background relations."""
    tasks = list(benchmark.split("train"))
    if settings.model != TRAIN_ONLY:
        tasks += [task for task in benchmark.once(_background_tasks) if len(task.pairs) > settings.shots]
        if not tasks:
            raise FewlinkError(f"{benchmark.name} has no relation with more than {settings.shots} pairs: lower shots")
    return ContrastedSampler(
        tasks,
        len(benchmark.graph.entities),
        shots=settings.shots,
        batch=settings.batch,
        negatives=settings.negatives,
        seeds=[settings.seed],
        device=settings.device,
    )


def _background_tasks(benchmark: Benchmark) -> list[Task]:
    """The background relations as tasks, except those whose range has one entity."""
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
