"""Reference-set aggregators: the few encoded references to the vectors a query is compared with.

Each takes references (…, K, w), w = 2d, and gives a `Summary`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Summary(NamedTuple):
    """Shapes: `vectors` (…, M, w), M = 1 where the references are summed up in one; `reconstruction` (…,) of Eq. 6."""

    vectors: Tensor
    reconstruction: Tensor


class ResidualRecurrence(nn.Module):
    """m'_k = m_k + E_k with m_k the states of an LSTM over the references (Eqs. 4, 5 and the first line of 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(width, width, batch_first=True)

    def forward(self, references: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """m' (…, K, w), and the last state m_K and cell c_K (…, w)."""
        lead = references.shape[:-2]
        states, (last, cell) = self.encoder(references.reshape(-1, *references.shape[-2:]))
        width = references.shape[-1]
        return states.reshape(references.shape) + references, last.reshape(*lead, width), cell.reshape(*lead, width)


class ReferenceAttention(nn.Module):
    """Σ β_k m'_k, β = softmax_k u·(W m'_k + b) (Eq. 7)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width // 2)
        self.u = nn.Parameter(torch.empty(width // 2).normal_(0, (width // 2) ** -0.5))

    def forward(self, states: Tensor) -> Tensor:
        weights = (self.projection(states) @ self.u).softmax(-1)  # (…, K)
        pooled: Tensor = weights.unsqueeze(-2) @ states  # (…, 1, w)
        return pooled


class Reconstruction(nn.Module):
    """Σ_k ‖d_k − E_k‖², the decoder running back from the last state: m_K → d_K → … → d_1 (Eqs. 4–6)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.decoder = nn.LSTMCell(width, width)

    def forward(self, references: Tensor, last: Tensor, cell: Tensor) -> Tensor:
        lead, (count, width) = references.shape[:-2], references.shape[-2:]
        flat = references.reshape(-1, count, width)
        state, memory = last.reshape(-1, width), cell.reshape(-1, width)
        loss = flat.new_zeros(len(flat))
        for k in range(count - 1, -1, -1):
            state, memory = self.decoder(state, (state, memory))
            loss = loss + (state - flat[:, k]).square().sum(-1)
        return loss.reshape(lead)


class RecurrentAutoencoder(nn.Module):
    """The paper's aggregator (Eqs. 4–7): recurrence with residual, attention, and a decoder that keeps it honest."""

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


def _nothing(references: Tensor) -> Tensor:
    return references.new_zeros(references.shape[:-2])
