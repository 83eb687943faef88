"""Neighbour encoders: an entity's vector from its neighbours in the background graph.

Each takes entity ids (…,) and the surroundings and gives (…, d). An entity without neighbours is tanh of its own
vector.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.models.surroundings import Surroundings


class AttentiveNeighbours(nn.Module):
    """The paper's Eq. 2: tanh(Σ α_i e_ti), α = softmax_i u·(W[e_ri ; e_ti] + b), padding left out.

    The logit is linear in the frozen vectors, so u·(W[e_r ; e_t] + b) is a number for each relation plus one for each
    entity, looked up for every neighbour; the constant u·b cancels in the softmax and is kept for its equation's sake.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * dim, dim)
        self.u = nn.Parameter(torch.empty(dim).normal_(0, dim**-0.5))

    def forward(self, ids: Tensor, around: Surroundings) -> Tensor:
        direction = self.u @ self.projection.weight  # (2d,)
        by_relation = around.relations @ direction[: around.dim] + self.u @ self.projection.bias  # (2R,)
        relations, entities, present = _neighbours(ids, around)  # (…, N) each
        vectors = around.entities[entities]  # (…, N, d)
        logits = by_relation[relations] + vectors @ direction[around.dim :]
        weights = _masked_softmax(logits, present)
        return _encoded((weights.unsqueeze(-2) @ vectors).squeeze(-2), ids, present, around)


class MeanNeighbours(nn.Module):
    """The ablation AS1: tanh of the mean of the neighbours' vectors."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, ids: Tensor, around: Surroundings) -> Tensor:
        _, entities, present = _neighbours(ids, around)
        return _encoded(_masked_mean(around.entities[entities], present), ids, present, around)


class ProjectedMean(nn.Module):
    """GMatching (Xiong et al., EMNLP 2018): tanh((1/n) Σ (W[e_ri ; e_ti] + b)) over the n real neighbours.

    The map is affine, so it is applied once, to the mean of the pairs.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(2 * dim, dim)

    def forward(self, ids: Tensor, around: Surroundings) -> Tensor:
        relations, entities, present = _neighbours(ids, around)
        halves = [_masked_mean(v, present) for v in (around.relations[relations], around.entities[entities])]
        return _encoded(self.projection(torch.cat(halves, -1)), ids, present, around)


def _neighbours(ids: Tensor, around: Surroundings) -> tuple[Tensor, Tensor, Tensor]:
    """Relations, entities and presence of the neighbours: (…, N) each."""
    return around.neighbour_relations[ids], around.neighbour_entities[ids], around.present[ids]


def _masked_softmax(logits: Tensor, present: Tensor) -> Tensor:
    """Softmax over the present slots (…, N); over all of them where none is, a row that is not used."""
    counted = present | ~present.any(-1, keepdim=True)
    return logits.masked_fill(~counted, -torch.inf).softmax(-1)


def _masked_mean(vectors: Tensor, present: Tensor) -> Tensor:
    """The mean of the present vectors (…, N, d) to (…, d); zeros where none is."""
    weights = present.to(vectors.dtype)
    total = (weights.unsqueeze(-2) @ vectors).squeeze(-2)
    return total / weights.sum(-1, keepdim=True).clamp_min(1)


def _encoded(summary: Tensor, ids: Tensor, present: Tensor, around: Surroundings) -> Tensor:
    return torch.where(present.any(-1, keepdim=True), summary, around.entities[ids]).tanh()
