"""Reference-set aggregators (Eqs. 3 to 7), which map encoded references to the vectors that queries are compared with.

Each maps references (…, K, w), w = 2d, to a `Summary`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fewlink.models.fsrl.gpu import FusedCell


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


class Summary(NamedTuple):
    """The result of an aggregator.

    vectors         (…, M, w), where M is 1 unless the aggregator keeps every reference
    reconstruction  (…,) the loss of Eq. 6
    """

    vectors: Tensor
    reconstruction: Tensor


class ResidualRecurrence(nn.Module):
    """m'_k = m_k + E_k, where m_k are the states of an LSTM over the references (Eqs. 4, 5 and the first line of 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m' (…, K, w), and the last state m_K and cell c_K (…, w)."""
        cell = self.encoder
        from_pairs = linear(references, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # (…, K, 4w)
        state, memory = lstm_step(from_pairs[..., 0, :])
        states = [state]
        for gates in from_pairs.unbind(-2)[1:]:
            state, memory = lstm_step(gates, linear(state, cell.weight_hh), memory)
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
    """Σ_k ‖d_k − E_k‖² (Eq. 6); the decoder runs backwards from the last state: m_K → d_K → … → d_1 (Eqs. 4 and 5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.decoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor, last: Tensor, cell: Tensor) -> Tensor:
        decoded = unrolled(self.decoder, last, cell, references.shape[-2])  # d_K … d_1
        return (decoded.flip(-2) - references).square().sum((-1, -2))


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


class RecurrentAutoencoder(nn.Module):
    """The paper's aggregator (Eqs. 4–7): a residual recurrence, attention, and a decoder of the references."""

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
    """The ablation AS2c: the encoder alone, without a reconstruction loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.attention = ReferenceAttention(width)

    def forward(self, references: Tensor) -> Summary:
        states, _, _ = self.recurrence(references)
        return Summary(self.attention(states), _no_loss(references))


class MeanPooling(nn.Module):
    """The mean of the references: the ablation AS2a, and GMatching (MeanP)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references.mean(-2, keepdim=True), _no_loss(references))


class MaxPooling(nn.Module):
    """The elementwise maximum of the references: GMatching (MaxP)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references.amax(-2, keepdim=True), _no_loss(references))


class EveryReference(nn.Module):
    """The references as they are; a query's score is the best against any of them: GMatching (Max)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(references, _no_loss(references))


class ReleasedReferences(nn.Module):
    """The authors' program: Σ_k m'_k, and a reconstruction loss that trains the references but not the decoder.

    The loss is the mean of (d_k − E_k)², with d_k detached and in the order of the decoder's outputs.
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
    """β (…, K) of references (…, K, w); None for an aggregator without attention."""
    attention = getattr(aggregator, "attention", None)
    recurrence = getattr(aggregator, "recurrence", None)
    if isinstance(attention, ReferenceAttention) and isinstance(recurrence, ResidualRecurrence):
        return attention.weights(recurrence(references)[0])
    return None


def _no_loss(references: Tensor) -> Tensor:
    return references.new_zeros(references.shape[:-2])
