"""Reference-set aggregators (Eqs. 3 to 7), which map encoded references to the vectors that queries are compared with.

Each maps references (…, K, w), w = 2d, to a `Summary`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fewlink.models.fsrl.lstm import lstm_step, unrolled


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


class RecurrentAutoencoder(nn.Module):
    """The paper's aggregator (Eqs. 4–7): a residual recurrence, attention, and a decoder of the references."""

    attends = True
    decodes = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrence = ResidualRecurrence(width)
        self.attention = ReferenceAttention(width) if self.attends else None
        self.reconstruction = Reconstruction(width) if self.decodes else None

    def forward(self, references: Tensor) -> Summary:
        states, last, cell = self.recurrence(references)
        vectors = states.mean(-2, keepdim=True) if self.attention is None else self.attention(states)
        if self.reconstruction is None:
            return Summary(vectors, references.new_zeros(references.shape[:-2]))
        return Summary(vectors, self.reconstruction(references, last, cell))


class RecurrentWithoutAttention(RecurrentAutoencoder):
    """The ablation AS2b: the mean of m'_k in place of the attention."""

    attends = False


class RecurrentWithoutDecoder(RecurrentAutoencoder):
    """The ablation AS2c: the encoder alone, without a reconstruction loss."""

    decodes = False


class EveryReference(nn.Module):
    """The references as they are; a query's score is the best against any of them: GMatching (Max)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, references: Tensor) -> Summary:
        return Summary(self.pooled(references), references.new_zeros(references.shape[:-2]))

    def pooled(self, references: Tensor) -> Tensor:
        return references


class MeanPooling(EveryReference):
    """The mean of the references: the ablation AS2a, and GMatching (MeanP)."""

    def pooled(self, references: Tensor) -> Tensor:
        return references.mean(-2, keepdim=True)


class MaxPooling(EveryReference):
    """The elementwise maximum of the references: GMatching (MaxP)."""

    def pooled(self, references: Tensor) -> Tensor:
        return references.amax(-2, keepdim=True)


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
    if not isinstance(aggregator, RecurrentAutoencoder) or aggregator.attention is None:
        return None
    return aggregator.attention.weights(aggregator.recurrence(references)[0])
