"""A training step as a CUDA graph, recorded once and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fewlink.core.seeds import derive
from fewlink.models.family import RunState
from fewlink.tasks.episodes import EpisodeBatch, Layout

WARM_UP_STEPS = 3


class CapturableLearner(Protocol):
    """A learner whose step takes its number as a tensor and never waits for the device."""

    seeds: Sequence[int]
    layout: Layout

    def step(self, number: int | Tensor, batch: EpisodeBatch) -> Tensor: ...
    def state(self, run: int) -> RunState: ...
    def load_state(self, states: Sequence[RunState]) -> None: ...


class CapturedStep:
    """A step of a learner as a CUDA graph, which reads its entities and its number from tensors on the device."""

    def __init__(self, learner: CapturableLearner, ids: Tensor) -> None:
        """Capture a step for blocks of up to ids.shape[1] steps; the learner keeps its state."""
        self.learner = learner
        self.ids = ids.clone()
        self.max_steps = ids.shape[1]
        self.position = torch.zeros(1, dtype=torch.int64, device=ids.device)  # of the step in its block
        self.number = torch.zeros(1, dtype=torch.int64, device=ids.device)
        self.losses = torch.zeros(self.max_steps, 3, len(learner.seeds), device=ids.device)
        self.graph = torch.cuda.CUDAGraph()
        states = [_copy(learner.state(run)) for run in range(len(learner.seeds))]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.position.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph, stream=stream):
            self._step()
        learner.load_state(states)

    def replay(self, first: int, ids: Tensor) -> Tensor:
        """Run steps on entities (S, steps, U), beginning with step `first`; return losses (steps, 3, S)."""
        count = ids.shape[1]
        self.ids[:, :count].copy_(ids)
        self.position.zero_()
        self.number.fill_(first)
        torch.manual_seed(derive(self.learner.seeds[0], "step", first))  # for dropout
        for _ in range(count):
            self.graph.replay()
        return self.losses[:count].clone()

    def _step(self) -> None:
        batch = self.learner.layout.batch(self.ids.index_select(1, self.position).squeeze(1))
        losses = self.learner.step(self.number, batch)
        self.losses.index_copy_(0, self.position, losses.unsqueeze(0))
        self.position += 1
        self.number += 1


def _copy(state: RunState) -> RunState:
    weights = {name: tensor.clone() for name, tensor in state.weights.items()}
    optimizer = {name: tensor.clone() for name, tensor in state.optimizer.items()}
    return RunState(weights, optimizer)
