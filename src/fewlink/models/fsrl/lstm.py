"""A step of an LSTM cell: in plain torch on the CPU, by torch's fused kernel on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

FORWARD = torch.ops.aten._thnn_fused_lstm_cell
BACKWARD = torch.ops.aten._thnn_fused_lstm_cell_backward_impl


def lstm_step(gates: Tensor, more: Tensor | None = None, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The next hidden state and cell state of an LSTM, (…, w) each, from its gates (…, 4w) before their activations.

    The input, forget, cell and output gates are in torch's order; `more` is added to them. Without a cell state
    `memory` (…, w), the LSTM starts from zeros.
    """
    if gates.is_cuda:
        more = torch.zeros_like(gates) if more is None else more.to(gates.dtype)
        empty = gates.new_zeros(*gates.shape[:-1], gates.shape[-1] // 4)
        memory = empty if memory is None else memory.to(gates.dtype)
        state, kept, _ = FusedCell.apply(gates, more, memory)  # type: ignore[no-untyped-call]
        return state, kept
    enter, keep, new, leave = (gates if more is None else gates + more).chunk(4, -1)
    added = enter.sigmoid() * _tanh(new)
    kept = added if memory is None else keep.sigmoid() * memory + added
    return leave.sigmoid() * _tanh(kept), kept


def _tanh(x: Tensor) -> Tensor:
    """tanh(x) = 2σ(2x) − 1: on the CPU torch computes the sigmoid seven times as fast."""
    return torch.rsub((2 * x).sigmoid(), -1, alpha=-2)


def unrolled(decoder: nn.LSTMCell, state: Tensor, memory: Tensor, count: int) -> Tensor:
    """The outputs (…, count, w) of an LSTM that reads its own output, starting with `state`.

    Input and state are equal, so one product with the sum of their weights suffices.
    """
    weight = decoder.weight_ih + decoder.weight_hh
    bias = decoder.bias_ih + decoder.bias_hh
    outputs = []
    for _ in range(count):
        state, memory = lstm_step(linear(state, weight, bias), None, memory)
        outputs.append(state)
    return torch.stack(outputs, -2)


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
