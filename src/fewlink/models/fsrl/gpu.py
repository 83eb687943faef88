"""What training does differently on a GPU: torch's fused kernel of an LSTM cell, and a step as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FORWARD = torch.ops.aten._thnn_fused_lstm_cell
BACKWARD = torch.ops.aten._thnn_fused_lstm_cell_backward_impl
WARM_UP_STEPS = 3  # that torch asks for before a capture


class FusedCell(torch.autograd.Function):
    """The fused kernel of torch's LSTM cell, which takes rows; leading dimensions and runs are flattened."""

    @staticmethod
    def forward(gates: Tensor, more: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = (x.reshape(-1, x.shape[-1]).contiguous() for x in (gates, more, memory))
        state, kept, workspace = FORWARD(*flat)
        return state.view(memory.shape), kept.view(memory.shape), workspace

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, kept, workspace = output
        ctx.mark_non_differentiable(workspace)
        ctx.save_for_backward(inputs[2], kept, workspace)

    @staticmethod
    def backward(ctx: Any, to_state: Tensor, to_kept: Tensor, _: Any) -> tuple[Tensor, Tensor, Tensor]:
        memory, kept, workspace = ctx.saved_tensors
        flat = [x.reshape(-1, memory.shape[-1]).contiguous() for x in (to_state, to_kept, memory, kept)]
        gates, before, _ = BACKWARD(*flat, workspace, False)
        gates = gates.view(*memory.shape[:-1], 4 * memory.shape[-1])
        return gates, gates, before.view(memory.shape)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Any, tuple[int, int, int]]:
        runs = [
            x.expand(info.batch_size, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(inputs, in_dims, strict=True)
        ]
        state, kept, workspace = FusedCell.apply(*runs)  # type: ignore[no-untyped-call]
        return (state, kept, workspace.unflatten(0, (info.batch_size, -1))), (0, 0, 0)


class CapturedStep:
    """A step of training as a CUDA graph, which reads its entities and its number from tensors on the device."""

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor], ids: Tensor) -> None:
        """Capture a step for blocks of up to ids.shape[1] steps, after a few that are run to warm up.

        `step` takes its number (1,) and its entities (S, U) and returns losses (3, S).
        """
        self.step = step
        self.ids = ids.clone()
        self.max_steps = ids.shape[1]
        self.position = torch.zeros(1, dtype=torch.int64, device=ids.device)  # of the step in its block
        self.number = torch.zeros(1, dtype=torch.int64, device=ids.device)
        self.losses = torch.zeros(self.max_steps, 3, len(ids), device=ids.device)
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
        """Run steps on entities (S, steps, U), beginning with step `first`; return losses (steps, 3, S)."""
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
