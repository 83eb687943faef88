"""A training step as a CUDA graph, recorded once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fewlink.core.seeds import derive
from fewlink.data.episodes import EpisodeBatch, Layout
from fewlink.models.family import RunState

WARM_UP_STEPS = 3


class CapturableLearner(Protocol):
    """What of a learner is captured: a step that takes its number as a tensor, and never waits for the device."""

    seeds: Sequence[int]
    layout: Layout

    def step(self, number: int | Tensor, batch: EpisodeBatch) -> Tensor: ...
    def state(self, run: int) -> RunState: ...
    def load_state(self, states: Sequence[RunState]) -> None: ...


class CapturedStep:
    """A step of a learner as a CUDA graph, which reads its entities and its number on the device."""

    def __init__(self, learner: CapturableLearner, ids: Tensor) -> None:
        """Capture a step for blocks of up to ids.shape[1] steps; the learner is left unchanged."""
        self.learner, device = learner, ids.device
        self.ids, self.most = ids.clone(), ids.shape[1]
        self.at, self.number = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.losses = torch.zeros(self.most, 3, len(learner.seeds), device=device)
        self.graph = torch.cuda.CUDAGraph()
        before = [_copied(learner.state(run)) for run in range(len(learner.seeds))]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP_STEPS):
                self.at.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph, stream=aside):
            self._step()
        learner.load_state(before)

    def replay(self, first: int, ids: Tensor) -> Tensor:
        """Run a step on each of the entities (S, steps, U), beginning with step `first`; losses (steps, 3, S)."""
        count = ids.shape[1]
        self.ids[:, :count].copy_(ids)
        self.at.zero_()
        self.number.fill_(first)
        torch.manual_seed(derive(self.learner.seeds[0], "step", first))  # for dropout
        for _ in range(count):
            self.graph.replay()
        return self.losses[:count].clone()

    def _step(self) -> None:
        now = self.learner.layout.batch(self.ids.index_select(1, self.at).squeeze(1))
        losses = self.learner.step(self.number, now)
        self.losses.index_copy_(0, self.at, losses.unsqueeze(0))
        self.at += 1
        self.number += 1


def _copied(state: RunState) -> RunState:
    weights, optimizer = ({name: tensor.clone() for name, tensor in tensors.items()} for tensors in state)
    return RunState(weights, optimizer)
