"""TRAIL learns: lessons from the views of a benchmark, the loss of each, and the step that moves the parameters."""

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
from fewlink.trail.context import Known
from fewlink.trail.episodes import Lesson, LessonBook
from fewlink.trail.model import Trail, build_trail
from fewlink.trail.scorer import TrailScorer
from fewlink.trail.settings import TrailSettings
from fewlink.trail.vectors import TrailVectors
from fewlink.training.family import RunState

MEASURED_BY = 64  # lessons that the scale of findings is taken from


class TrailLearner:
    """One run of TRAIL; several seeds train one after another.

    `weights` maps each parameter's and buffer's name to a tensor (1, …), as those of runs side by side have.
    """

    most = 8  # steps between looks at the loss

    def __init__(
        self, benchmark: Benchmark, vectors: TrailVectors, settings: TrailSettings, seeds: Sequence[int]
    ) -> None:
        if len(seeds) > 1:
            raise FewlinkError("runs of trail train one after another")
        self.settings = settings = replace(settings, seed=seeds[0])
        self.device = settings.device
        made = masked_views(benchmark, settings.views)
        self.known = Known(known_graph(benchmark), *vectors.known).to(self.device)
        seen = [Known(view.graph, *tables) for view, tables in zip(made, vectors.views, strict=True)]
        self.book = LessonBook([(known, view.tasks) for known, view in zip(seen, made, strict=True)], settings)
        self.views = [known.on(self.device) for known in seen]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(settings.seed, "start"))
            self.model = build_trail(settings.model, settings.dropout).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._measured = False

    @property
    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.unsqueeze(0) for name, tensor in self.model.state_dict().items()}

    def advance(self, first: int, count: int) -> tuple[Tensor, float]:
        """Make steps from step `first` on; losses (count, 3, 1), and the seconds that went into making lessons."""
        if not self._measured:
            self._measure()
        began = time.perf_counter()
        wanted = [
            self.book.numbers(step)[distributed.rank() :: distributed.count()] for step in range(first, first + count)
        ]
        self.book.open(list(itertools.chain.from_iterable(wanted)))
        making = time.perf_counter() - began
        losses = [self.step(first + n, self.book.open(numbers)) for n, numbers in enumerate(wanted)]
        return torch.stack(losses), making

    def step(self, number: int, lessons: Sequence[Lesson]) -> Tensor:
        """Move the parameters along some lessons; the losses (3, 1) before the move."""
        self.model.train()
        torch.manual_seed(derive(self.settings.seed, "step", number, distributed.rank()))  # for dropout
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([self.loss(lesson) for lesson in lessons]).mean()
        loss.backward()
        told = loss.detach().clone()
        distributed.average_([told, *(p.grad for p in self.model.parameters() if p.grad is not None)])
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or torch.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * self.settings.decay_at(number)
        self.optimizer.step()
        return torch.stack([told, told, torch.zeros_like(told)]).unsqueeze(1)

    def loss(self, lesson: Lesson) -> Tensor:
        """−log of the softmax of each query's answer among its candidates, the mean over queries."""
        scores = self.model(lesson.asked, self.views[lesson.view])[lesson.rows]  # (Q, C)
        return cross_entropy(scores.masked_fill(lesson.excluded, -torch.inf), lesson.columns)

    def scorer(self, run: int) -> TrailScorer:
        return TrailScorer(self.settings.model, self.model, self.known)

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
        self._measured = True
        for name, parameter in self.model.named_parameters():
            own = {k.rpartition(".")[2]: v for k, v in moments.items() if k.rpartition(".")[0] == name}
            if own:
                self.optimizer.state[parameter] = {
                    part: value.clone() if part == "step" else value.to(self.device) for part, value in own.items()
                }

    def _measure(self) -> None:
        """Bring findings to one scale, as they are in the first lessons."""
        numbers: list[int] = []
        while len(numbers) < min(MEASURED_BY, len(self.book.index)):
            numbers += self.book.numbers(len(numbers) // self.settings.relations)
        self.model.set_by([lesson.asked.findings for lesson in self.book.open(numbers)])
        self._measured = True


def open_trail(
    benchmark: Benchmark, vectors: TrailVectors, settings: TrailSettings, device: str
) -> tuple[Trail, Known]:
    """A model to put weights into, and what it looks at."""
    return build_trail(settings.model).to(device), Known(known_graph(benchmark), *vectors.known).to(device)
