"""Neighbour encoders (Eq. 2), which compute an entity's vector from its neighbours in the background graph.

Each takes vectors of `dim` numbers and maps entity ids (…,) and the neighbourhood to (…, `width`). Unless an equation
says otherwise, padding is ignored, and an entity without neighbours is encoded as tanh of its own vector. In training,
dropout applies to the input vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.models.embeddings.table import rows
from fewlink.models.fsrl.neighbourhood import Neighbourhood


class Encoder(nn.Module):
    """A neighbour encoder, which maps entities (…,) to vectors (…, width).

    `reads_padding` says whether empty slots change the result.
    """

    reads_padding = False

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = dim
        self.dropout = nn.Dropout(dropout)

    def weights(self, ids: Tensor, around: Neighbourhood) -> Tensor | None:
        """α (…, N) of the neighbours of entities (…,), 0 for padding; None for an encoder without attention."""
        return None


class NeighbourAttention(nn.Module):
    """Σ α_i e_ti, α = softmax_i u·(W[e_ri ; e_ti] + b) over the real neighbours; zeros where there is none.

    The logit u·(W[e_r ; e_t] + b) is linear: one number for the relation, computed once for all its neighbours, plus
    one for the entity. The constant u·b, which cancels in the softmax, follows the equation. All neighbours by a
    relation share the dropout of its vector, so that the sum also holds in training.
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * dim, dim)
        self.u = nn.Parameter(torch.empty(dim).normal_(0, dim**-0.5))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, around: Neighbourhood) -> tuple[Tensor, Tensor]:
        """The weighted sum (…, d), and whether an entity has neighbours (…, 1)."""
        weights, vectors, any_present = self._weighed(ids, around)
        return (weights.unsqueeze(-2) @ vectors).squeeze(-2) * any_present, any_present

    def weights(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        """α (…, N), 0 for padding."""
        weights, _, any_present = self._weighed(ids, around)
        return weights * any_present

    def _weighed(self, ids: Tensor, around: Neighbourhood) -> tuple[Tensor, Tensor, Tensor]:
        """α (…, N), the neighbours' vectors (…, N, d), and whether an entity has neighbours (…, 1)."""
        direction = self.u @ self.projection.weight  # (2d,)
        by_relation = self.dropout(around.relations) @ direction[: around.dim] + self.u @ self.projection.bias  # (2R,)
        relations, entities, present = around.neighbours_of(ids)  # (…, N) each
        vectors = self.dropout(rows(around.entities, entities))  # (…, N, d)
        logits = rows(by_relation, relations) + vectors @ direction[around.dim :]
        any_present = present.any(-1, keepdim=True)
        weights = logits.masked_fill(~present & any_present, -torch.inf).softmax(-1)  # unused without neighbours
        return weights, vectors, any_present


class AttentiveNeighbours(Encoder):
    """The paper's Eq. 2: tanh(Σ α_i e_ti), α = softmax_i u·(W[e_ri ; e_ti] + b) over the real neighbours."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, dropout)
        self.attention = NeighbourAttention(dim, dropout)

    def forward(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        summary, any_present = self.attention(ids, around)
        return torch.where(any_present, summary, rows(around.entities, ids)).tanh()

    def weights(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        return self.attention.weights(ids, around)


class OwnAndNeighbours(AttentiveNeighbours):
    """tanh [V e + c ; Σ α_i e_ti]: Eq. 2 with the entity's own vector beside its neighbours, twice as wide."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, dropout)
        self.width = 2 * dim
        self.own = nn.Linear(dim, dim)

    def forward(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        summary, _ = self.attention(ids, around)
        own = self.own(self.dropout(rows(around.entities, ids)))
        return torch.cat([own, summary], -1).tanh()


class MeanNeighbours(Encoder):
    """The ablation AS1: tanh of the mean of the neighbours' vectors."""

    def forward(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        _, entities, present = around.neighbours_of(ids)
        summary = _masked_mean(self.dropout(rows(around.entities, entities)), present)
        return _or_own(summary, ids, present, around).tanh()


class ProjectedMean(Encoder):
    """GMatching (Xiong et al., EMNLP 2018): tanh((1/n) Σ (W[e_ri ; e_ti] + b)) over the n real neighbours.

    The map is affine, so it is applied once, to the mean of the pairs.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, dropout)
        self.projection = nn.Linear(2 * dim, dim)

    def forward(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        relations, entities, present = around.neighbours_of(ids)
        tables = self.dropout(rows(around.relations, relations)), self.dropout(rows(around.entities, entities))
        halves = [_masked_mean(vectors, present) for vectors in tables]
        return _or_own(self.projection(torch.cat(halves, -1)), ids, present, around).tanh()


class ReleasedNeighbours(Encoder):
    """The authors' program: tanh(Σ α_i e_ti), α = softmax_i u·tanh(W[e_ri ; e_ti] + b) + c over all slots.

    Padding has zero vectors and takes its share of the attention.
    """

    reads_padding = True

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__(dim, dropout)
        self.projection = nn.Linear(2 * dim, dim)
        self.u = nn.Linear(dim, 1)
        nn.init.xavier_normal_(self.projection.weight)
        nn.init.xavier_normal_(self.u.weight)

    def forward(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        weights, vectors = self._weighed(ids, around)
        return (weights * vectors).sum(-2).tanh()

    def weights(self, ids: Tensor, around: Neighbourhood) -> Tensor:
        """α (…, N) of the neighbours alone, without the share of padding: the sum may be less than 1."""
        return self._weighed(ids, around)[0].squeeze(-1) * around.neighbours_of(ids)[2]

    def _weighed(self, ids: Tensor, around: Neighbourhood) -> tuple[Tensor, Tensor]:
        """α of all slots (…, N, 1) and their vectors (…, N, d)."""
        relations, entities, present = around.neighbours_of(ids)
        there = present.unsqueeze(-1)  # (…, N, 1)
        kinds = self.dropout(rows(around.relations, relations) * there)  # (…, N, d)
        vectors = self.dropout(rows(around.entities, entities) * there)
        logits = self.u(self.projection(torch.cat([kinds, vectors], -1)).tanh())  # (…, N, 1)
        return logits.softmax(-2), vectors


def _masked_mean(vectors: Tensor, present: Tensor) -> Tensor:
    """The mean (…, d) of the vectors (…, N, d) that are present; zeros if none is."""
    weights = present.to(vectors.dtype)
    total = (weights.unsqueeze(-2) @ vectors).squeeze(-2)
    return total / weights.sum(-1, keepdim=True).clamp_min(1)


def _or_own(summary: Tensor, ids: Tensor, present: Tensor, around: Neighbourhood) -> Tensor:
    """The summary (…, d), or the entity's own vector if it has no neighbours."""
    return torch.where(present.any(-1, keepdim=True), summary, rows(around.entities, ids))
