"""A step of training that is captured once as a CUDA graph and replayed, so that no kernel waits for the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP_STEPS = 3  # that torch asks for before a capture


class CapturedStep:
    """A step of training as a CUDA graph, which reads its ids and its number from tensors on the device."""

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor], ids: Tensor, terms: int) -> None:
        """Capture a step for blocks of up to ids.shape[1] steps, after a few that are run to warm up.

        `step` takes its number (1,) and its ids (S, U) and returns losses (terms, S).
        """
        self.step = step
        self.ids = ids.clone()
        self.max_steps = ids.shape[1]
        self.position = torch.zeros(1, dtype=torch.int64, device=ids.device)  # of the step in its block
        self.number = torch.zeros(1, dtype=torch.int64, device=ids.device)
        self.losses = torch.zeros(self.max_steps, terms, len(ids), device=ids.device)
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.position.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph, stream=stream):
            self._step()

    def replay(self, first: int, ids: Tensor) -> Tensor:
        """Run steps on ids (S, steps, U), beginning with step `first`; return losses (steps, terms, S)."""
        count = ids.shape[1]
        self.ids[:, :count].copy_(ids)
        self.position.zero_()
        self.number.fill_(first)
        for _ in range(count):
            self.graph.replay()
        return self.losses[:count].clone()

    def _step(self) -> None:
        losses = self.step(self.number, self.ids.index_select(1, self.position).squeeze(1))
        self.losses.index_copy_(0, self.position, losses.unsqueeze(0))
        self.position += 1
        self.number += 1
