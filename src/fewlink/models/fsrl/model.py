"""The few-shot models by name: a neighbour encoder, a pair encoder, a reference aggregator and a matcher."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fewlink.core.errors import choose
from fewlink.models.embeddings.table import rows
from fewlink.models.fsrl.aggregator import (
    EveryReference,
    MaxPooling,
    MeanPooling,
    RecurrentAutoencoder,
    RecurrentWithoutAttention,
    RecurrentWithoutDecoder,
    ReleasedReferences,
)
from fewlink.models.fsrl.encoder import (
    AttentiveNeighbours,
    Encoder,
    MeanNeighbours,
    OwnAndNeighbours,
    ProjectedMean,
    ReleasedNeighbours,
)
from fewlink.models.fsrl.matcher import (
    Concatenation,
    FeedForward,
    InnerProduct,
    RecurrentMatching,
    ZeroStartMatching,
)
from fewlink.models.fsrl.neighbourhood import Neighbourhood


class FewShotModel(nn.Module):
    """Scores query pairs of a relation, given a few reference pairs."""

    def __init__(self, encoder: Encoder, pair: Concatenation, aggregator: nn.Module, matcher: InnerProduct) -> None:
        super().__init__()
        self.encoder = encoder
        self.pair = pair
        self.aggregator = aggregator
        self.matcher = matcher

    def forward(self, ids: Tensor, references: Tensor, queries: Tensor, around: Neighbourhood) -> tuple[Tensor, Tensor]:
        """Scores (B, Q) of the queries of B episodes, and the reconstruction losses (B,) of their references.

        Each entity of `ids` (U,) is encoded once; `references` (B, K, 2) and `queries` (B, Q, 2) are indices into it.
        """
        encoded = self.encoder(ids, around)  # (U, d)
        summary = self.aggregator(self._pairs(encoded, references))
        return self.matcher(self._pairs(encoded, queries), summary.vectors), summary.reconstruction

    @torch.no_grad()
    def grid(self, encoded: Tensor, references: Tensor, heads: Tensor, candidates: Tensor) -> Tensor:
        """Scores (H, C) of every head with every candidate, from the vectors of all entities (E, d)."""
        summary = self.aggregator(self._pairs(encoded, references))  # (K, 2d) in
        return self.pair.grid(self.matcher, encoded[heads], encoded[candidates], summary.vectors)

    @torch.no_grad()
    def compared(self, encoded: Tensor, references: Tensor, queries: Tensor) -> Tensor:
        """The vectors (Q, w) of query pairs (Q, 2) as the matcher compares them with their most similar reference."""
        vectors = self.aggregator(self._pairs(encoded, references)).vectors  # (M, w)
        compared = self.matcher.compared(self._pairs(encoded, queries), vectors)  # (Q, M, w)
        best = (compared * vectors).sum(-1).argmax(-1)
        return compared[torch.arange(len(best), device=best.device), best]

    def _pairs(self, encoded: Tensor, positions: Tensor) -> Tensor:
        pairs: Tensor = self.pair(rows(encoded, positions))  # from (…, 2, d)
        return pairs


class Composition(NamedTuple):
    """The classes of a model's four components, and a one-line description."""

    encoder: Any
    aggregator: Any
    matcher: Any
    about: str
    pairs: Any = Concatenation


COMPOSITIONS = {
    "gmatching-maxp": Composition(ProjectedMean, MaxPooling, RecurrentMatching, "GMatching (MaxP)"),
    "gmatching-meanp": Composition(ProjectedMean, MeanPooling, RecurrentMatching, "GMatching (MeanP)"),
    "gmatching-max": Composition(ProjectedMean, EveryReference, RecurrentMatching, "GMatching (Max)"),
    "fsrl": Composition(AttentiveNeighbours, RecurrentAutoencoder, RecurrentMatching, "FSRL, Eqs. 2–10"),
    "fsrl-as1": Composition(MeanNeighbours, RecurrentAutoencoder, RecurrentMatching, "mean of neighbours (AS1)"),
    "fsrl-as2a": Composition(AttentiveNeighbours, MeanPooling, RecurrentMatching, "mean of references (AS2a)"),
    "fsrl-as2b": Composition(
        AttentiveNeighbours, RecurrentWithoutAttention, RecurrentMatching, "no attention weight (AS2b)"
    ),
    "fsrl-as2c": Composition(AttentiveNeighbours, RecurrentWithoutDecoder, RecurrentMatching, "no decoder (AS2c)"),
    "fsrl-as3": Composition(AttentiveNeighbours, RecurrentAutoencoder, InnerProduct, "inner product (AS3)"),
    "fsrl-released": Composition(
        ReleasedNeighbours,
        ReleasedReferences,
        ZeroStartMatching,
        "FSRL as in the authors' program",
        FeedForward,
    ),
    "fsrl-tuned": Composition(
        OwnAndNeighbours,
        RecurrentAutoencoder,
        RecurrentMatching,
        "FSRL with the entity's own vector and better training",
        FeedForward,
    ),
}


def build(name: str, dim: int, *, steps: int = 2, dropout: float = 0.0, pair_block: bool = False) -> FewShotModel:
    """A model with new parameters, for vectors of `dim` numbers and `steps` matching steps (T).

    With `pair_block`, pairs pass through `FeedForward` even if the composition only joins head and tail.
    """
    composition = choose("model", name, COMPOSITIONS)
    encoder = composition.encoder(dim, dropout)
    pair = (FeedForward if pair_block else composition.pairs)(encoder.width, dropout)
    width = 2 * encoder.width
    return FewShotModel(encoder, pair, composition.aggregator(width), composition.matcher(width, steps))
