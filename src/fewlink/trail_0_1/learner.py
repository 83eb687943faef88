"""TRAIL learns: episodes from masked views of a benchmark, the loss of each, and the step that moves the parameters."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fewlink.base import distributed
from fewlink.base.errors import FewlinkError
from fewlink.base.seeds import derive
from fewlink.data.benchmark import Benchmark
from fewlink.data.training_graph import known_graph, masked_views
from fewlink.trail_0_1.context import GraphContext
from fewlink.trail_0_1.episodes import Episode, EpisodeStore
from fewlink.trail_0_1.model import build
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.trail_0_1.settings import Trail01Settings
from fewlink.trail_0_1.vectors import Trail01Vectors
from fewlink.training.family import RunState

SCALE_EPISODES = 64  # episodes that the scale of features is measured on


class Trail01Learner:
    """One run of TRAIL; several seeds train one after another.

    `weights` maps each parameter's and buffer's name to a tensor (1, …), as a learner of several runs has them.
    """

    most = 8  # steps between looks at the loss

    def __init__(
        self, benchmark: Benchmark, vectors: Trail01Vectors, settings: Trail01Settings, seeds: Sequence[int]
    ) -> None:
        if len(seeds) > 1:
            raise FewlinkError("runs of trail-0.1 train one after another")
        if len(vectors.views) != settings.views:
            raise FewlinkError(f"there are vectors of {len(vectors.views)} views, not {settings.views}: train others")
        self.settings = settings = replace(settings, seed=seeds[0])
        self.device = settings.device
        views = masked_views(benchmark, settings.views)
        self.graph = graph_context(benchmark, vectors).to(self.device)
        contexts = [GraphContext(view.graph, *tables) for view, tables in zip(views, vectors.views, strict=True)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(settings.seed, "start"))
            self.model = build(settings.model, settings.dropout).to(self.device)
        tasks = [(context, view.tasks) for context, view in zip(contexts, views, strict=True)]
        self.episodes = EpisodeStore(tasks, settings, self.model.composition)
        self.views = [context.on(self.device) for context in contexts]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._scaled = False

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.unsqueeze(0) for name, tensor in self.model.state_dict().items()}

    def advance(self, first: int, count: int) -> tuple[Tensor, float]:
        """Take steps from step `first` on; losses (count, 3, 1), and the seconds spent on making episodes."""
        if not self._scaled:
            self._fit_scale()
        began, rank, processes = time.perf_counter(), distributed.rank(), distributed.count()
        steps = [self.episodes.numbers(step)[rank::processes] for step in range(first, first + count)]
        self.episodes.get(list(itertools.chain.from_iterable(steps)))
        making = time.perf_counter() - began
        losses = [self.step(first + n, self.episodes.get(numbers)) for n, numbers in enumerate(steps)]
        return torch.stack(losses), making

    def step(self, number: int, episodes: Sequence[Episode]) -> Tensor:
        """Move the parameters along some episodes; the losses (3, 1) before the move."""
        self.model.train()
        torch.manual_seed(derive(self.settings.seed, "step", number, distributed.rank()))  # for dropout
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([self.loss(episode) for episode in episodes]).mean()
        loss.backward()
        value = loss.detach().clone()
        distributed.average_([value, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or torch.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self.settings.decay_at(number)
        self.optimizer.step()
        return torch.stack([value, value, torch.zeros_like(value)]).unsqueeze(1)

    def loss(self, episode: Episode) -> Tensor:
        """−log of the softmax of each query's answer among its candidates, the mean over queries."""
        scores = self.model(episode.inputs, self.views[episode.view])[episode.rows]  # (Q, C)
        return cross_entropy(scores.masked_fill(episode.excluded, -torch.inf), episode.columns)

    def scorer(self, run: int) -> Trail01Scorer:
        return Trail01Scorer(self.settings.model, self.model, self.graph)

    def state(self, run: int) -> RunState:
        """The parameters and the optimizer's moments."""
        moments = {
            f"{name}.{part}": value
            for name, parameter in self.model.named_parameters()
            for part, value in self.optimizer.state[parameter].items()
        }
        return dict(self.model.state_dict()), moments

    def take(self, states: Sequence[RunState]) -> None:
        """Continue from a state."""
        ((weights, moments),) = states
        self.model.load_state_dict({name: tensor.to(self.device) for name, tensor in weights.items()})
        self._scaled = True
        for name, parameter in self.model.named_parameters():
            own = {k.rpartition(".")[2]: v for k, v in moments.items() if k.rpartition(".")[0] == name}
            if own:
                self.optimizer.state[parameter] = {
                    part: value.clone() if part == "step" else value.to(self.device) for part, value in own.items()
                }

    def _fit_scale(self) -> None:
        """Set the scale of features from the first episodes."""
        numbers: list[int] = []
        while len(numbers) < min(SCALE_EPISODES, len(self.episodes.index)):
            numbers += self.episodes.numbers(len(numbers) // self.settings.relations)
        self.model.fit_scale([episode.inputs for episode in self.episodes.get(numbers)])
        self._scaled = True


def graph_context(benchmark: Benchmark, vectors: Trail01Vectors) -> GraphContext:
    """The known graph of a benchmark and its vectors, as the model reads them."""
    return GraphContext(known_graph(benchmark), *vectors.known)
