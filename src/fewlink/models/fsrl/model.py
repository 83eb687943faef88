"""A few-shot model, composed of a neighbour encoder, a pair encoder, a reference aggregator and a matcher."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewlink.models.embeddings.table import rows
from fewlink.models.fsrl.encoder import Encoder
from fewlink.models.fsrl.matcher import Matcher
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.pair import PairEncoder


class FewShotModel(nn.Module):
    """Scores query pairs of a relation, given a few reference pairs."""

    def __init__(self, encoder: Encoder, pair: PairEncoder, aggregator: nn.Module, matcher: Matcher) -> None:
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
