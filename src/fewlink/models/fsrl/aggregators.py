"""Reference-set aggregators: the few encoded references to the vectors a query is compared with.

Each takes references (…, K, w), w = 2d, and gives a `Summary`. The step of their LSTMs (`gated`) is at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

# The kernel of an LSTM's step on a GPU.
FORWARD, BACKWARD = torch.ops.aten._thnn_fused_lstm_cell, torch.ops.aten._thnn_fused_lstm_cell_backward_impl


class Summary(NamedTuple):
    """Shapes: `vectors` (…, M, w), M = 1 where the references are summed up in one; `reconstruction` (…,) of Eq. 6."""

    vectors: Tensor
    reconstruction: Tensor


class ResidualRecurrence(nn.Module):
    """m'_k = m_k + E_k with m_k the states of an LSTM over the references (Eqs. 4, 5 and the first line of 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m' (…, K, w), and the last state m_K and cell c_K (…, w)."""
        cell = self.encoder
        from_pairs = linear(references, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # (…, K, 4w)
        state, memory = gated(from_pairs[..., 0, :])
        states = [state]
        for gates in from_pairs.unbind(-2)[1:]:
            state, memory = gated(gates, linear(state, cell.weight_hh), memory)
            states.append(state)
        return torch.stack(states, -2) + references, state, memory


class ReferenceAttention(nn.Module):
    """Σ β_k m'_k, β = softmax_k u·(W m'_k + b) (Eq. 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width // 2)
        self.u = nn.Parameter(torch.empty(width // 2).normal_(0, (width // 2) ** -0.5))

    def forward(self, states: Tensor) -> Tensor:
        pooled: Tensor = self.weights(states).unsqueeze(-2) @ states  # (…, 1, w)
        return pooled

    def weights(self, states: Tensor) -> Tensor:
        """β (…, K)."""
        weights: Tensor = (self.projection(states) @ self.u).softmax(-1)
        return weights


class Reconstruction(nn.Module):
    """Σ_k ‖d_k − E_k‖², the decoder running back from the last state: m_K → d_K → … → d_1 (Eqs. 4–6)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.decoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor, last: Tensor, cell: Tensor) -> Tensor:
        decoded = unrolled(self.decoder, last, cell, references.shape[-2])  # d_K … d_1
        return (decoded.flip(-2) - references).square().sum((-1, -2))


def unrolled(decoder: nn.LSTMCell, state: Tensor, memory: Tensor, count: int) -> Tensor:
    """`count` outputs (…, count, w) of an LSTM that reads its own output, first the state it starts from.

    Input and state are the same, so their weights act as one.
    """
    weight, bias = decoder.weight_ih + decoder.weight_hh, decoder.bias_ih + decoder.bias_hh
    outputs = []
    for _ in range(count):
        state, memory = gated(linear(state, weight, bias), None, memory)
        outputs.append(state)
    return torch.stack(outputs, -2)


class RecurrentAutoencoder(nn.Module):
    """The paper's aggregator (Eqs. 4–7): recurrence with residual, attention, and a decoder of the references."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.attention = ReferenceAttention(width)
        self.reconstruction = Reconstruction(width)

    def forward(self, references: Tensor) -> Summary:
        states, last, cell = self.recurrence(references)
        return Summary(self.attention(states), self.reconstruction(references, last, cell))


class RecurrentWithoutAttention(nn.Module):
    """The ablation AS2b: the mean of m'_k in place of the attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.reconstruction = Reconstruction(width)

    def forward(self, references: Tensor) -> Summary:
        states, last, cell = self.recurrence(references)
        return Summary(states.mean(-2, keepdim=True), self.reconstruction(references, last, cell))


class RecurrentWithoutDecoder(nn.Module):
    """The ablation AS2c: the encoder alone, nothing reconstructed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.attention = ReferenceAttention(width)

    def forward(self, references: Tensor) -> Summary:
        states, _, _ = self.recurrence(references)
        return Summary(self.attention(states), _nothing(references))


class MeanPooling(nn.Module):
    """The mean of the references: the ablation AS2a, and GMatching (MeanP)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references.mean(-2, keepdim=True), _nothing(references))


class MaxPooling(nn.Module):
    """The elementwise maximum of the references: GMatching (MaxP)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references.amax(-2, keepdim=True), _nothing(references))


class EveryReference(nn.Module):
    """The references as they are; a query's score is the best against any of them: GMatching (Max)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references, _nothing(references))


class ReleasedReferences(nn.Module):
    """The authors' program: Σ_k m'_k, and the references drawn to a decoder that never trains.

    The reconstruction is the mean of (d_k − E_k)², d_k detached and in the order the decoder gives them.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.decoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor) -> Summary:
        states, last, cell = self.recurrence(references)
        decoded = unrolled(self.decoder, last, cell, references.shape[-2]).detach()
        return Summary(states.sum(-2, keepdim=True), (decoded - references).square().mean((-1, -2)))


def reference_weights(aggregator: nn.Module, references: Tensor) -> Tensor | None:
    """β (…, K) of references (…, K, w); None where no attention weighs them."""
    attention, recurrence = getattr(aggregator, "attention", None), getattr(aggregator, "recurrence", None)
    if isinstance(attention, ReferenceAttention) and isinstance(recurrence, ResidualRecurrence):
        return attention.weights(recurrence(references)[0])
    return None


def _nothing(references: Tensor) -> Tensor:
    return references.new_zeros(references.shape[:-2])


def gated(gates: Tensor, more: Tensor | None = None, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The next state and memory, (…, w) each.

    The gates (…, 4w) lie behind each other as enter, keep, new, leave and may be given as two summands; without a
    memory (…, w) the LSTM starts from nothing.
    """
    if gates.is_cuda:
        more = torch.zeros_like(gates) if more is None else more.to(gates.dtype)
        empty = gates.new_zeros(*gates.shape[:-1], gates.shape[-1] // 4)
        state, kept, _ = _Fused.apply(gates, more, empty if memory is None else memory.to(gates.dtype))  # type: ignore[no-untyped-call]
        return state, kept
    enter, keep, new, leave = (gates if more is None else gates + more).chunk(4, -1)
    added = enter.sigmoid() * _tanh(new)
    kept = added if memory is None else keep.sigmoid() * memory + added
    return leave.sigmoid() * _tanh(kept), kept


def _tanh(x: Tensor) -> Tensor:
    """tanh by way of the sigmoid, which torch computes seven times as fast on the CPU."""
    return torch.rsub((2 * x).sigmoid(), -1, alpha=-2)  # 2σ(2x) − 1


class _Fused(torch.autograd.Function):
    """The kernel behind torch's own LSTM cell, which only sees the last dimension: runs are more rows of it."""

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
        state, kept, workspace = _Fused.apply(*runs)  # type: ignore[no-untyped-call]
        return (state, kept, workspace.unflatten(0, (info.batch_size, -1))), (0, 0, 0)
