"""The few-shot models by name, each a composition of four parts, as scorers of the common evaluator; their settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fewlink.core.errors import choose
from fewlink.embeddings.table import rows
from fewlink.models.fsrl import aggregator as aggregators
from fewlink.models.fsrl import encoder as encoders
from fewlink.models.fsrl import matcher as matchers
from fewlink.models.fsrl import pair as pairs
from fewlink.models.fsrl.encoder import Encoder
from fewlink.models.fsrl.matcher import Matcher
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.pair import PairEncoder


class FewShotModel(nn.Module):
    """Scores query pairs of a relation by a handful of reference pairs of it."""

    def __init__(self, encoder: Encoder, pair: PairEncoder, aggregator: nn.Module, matcher: Matcher) -> None:
        super().__init__()
        self.encoder, self.pair, self.aggregator, self.matcher = encoder, pair, aggregator, matcher

    def forward(self, ids: Tensor, references: Tensor, queries: Tensor, around: Neighbourhood) -> tuple[Tensor, Tensor]:
        """Scores (B, Q) of the queries of B episodes, and the reconstruction losses (B,) of their references.

        Each entity of `ids` (U,) is encoded once; `references` (B, K, 2) and `queries` (B, Q, 2) are places in it.
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
        """What of each query pair (Q, 2) is compared with the references' vector that is most similar to it: (Q, w)."""
        vectors = self.aggregator(self._pairs(encoded, references)).vectors  # (M, w)
        compared = self.matcher.compared(self._pairs(encoded, queries), vectors)  # (Q, M, w)
        best = (compared * vectors).sum(-1).argmax(-1)
        return compared[torch.arange(len(best), device=best.device), best]

    def _pairs(self, encoded: Tensor, places: Tensor) -> Tensor:
        pairs: Tensor = self.pair(rows(encoded, places))  # from (…, 2, d)
        return pairs


PARTS = ("encoder", "pairs", "aggregator", "matcher")


class Composition(NamedTuple):
    """Which neighbour encoder, reference aggregator and matcher; what it is; and which pair encoder."""

    encoder: Any
    aggregator: Any
    matcher: Any
    about: str
    pairs: Any = pairs.Concatenation


ATTENTIVE, AUTOENCODER, MATCHING = (
    encoders.AttentiveNeighbours,
    aggregators.RecurrentAutoencoder,
    matchers.RecurrentMatching,
)
GMATCHING = encoders.ProjectedMean

COMPOSITIONS = {
    "gmatching-maxp": Composition(GMATCHING, aggregators.MaxPooling, MATCHING, "GMatching (MaxP)"),
    "gmatching-meanp": Composition(GMATCHING, aggregators.MeanPooling, MATCHING, "GMatching (MeanP)"),
    "gmatching-max": Composition(GMATCHING, aggregators.EveryReference, MATCHING, "GMatching (Max)"),
    "fsrl": Composition(ATTENTIVE, AUTOENCODER, MATCHING, "FSRL, Eqs. 2–10"),
    "fsrl-as1": Composition(encoders.MeanNeighbours, AUTOENCODER, MATCHING, "mean of neighbours (AS1)"),
    "fsrl-as2a": Composition(ATTENTIVE, aggregators.MeanPooling, MATCHING, "mean of references (AS2a)"),
    "fsrl-as2b": Composition(ATTENTIVE, aggregators.RecurrentWithoutAttention, MATCHING, "no attention weight (AS2b)"),
    "fsrl-as2c": Composition(ATTENTIVE, aggregators.RecurrentWithoutDecoder, MATCHING, "no decoder (AS2c)"),
    "fsrl-as3": Composition(ATTENTIVE, AUTOENCODER, matchers.InnerProduct, "inner product (AS3)"),
    "fsrl-released": Composition(
        encoders.ReleasedNeighbours,
        aggregators.ReleasedReferences,
        matchers.ZeroStartMatching,
        "as the authors' program computes",
        pairs.FeedForward,
    ),
    "fsrl-tuned": Composition(
        encoders.OwnAndNeighbours, AUTOENCODER, MATCHING, "FSRL with own vectors, trained well", pairs.FeedForward
    ),
}


def build(name: str, dim: int, *, steps: int = 2, dropout: float = 0.0) -> FewShotModel:
    """A model with fresh parameters for vectors of `dim` reals and `steps` of matching."""
    parts = choose("model", name, COMPOSITIONS)
    encoder = parts.encoder(dim, dropout)
    width = 2 * encoder.width
    pair = parts.pairs(encoder.width, dropout)
    return FewShotModel(encoder, pair, parts.aggregator(width), parts.matcher(width, steps))
