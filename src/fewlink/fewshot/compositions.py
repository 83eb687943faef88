"""The models by name, each a composition of four parts; adding one is a line here."""

from __future__ import annotations

from typing import Any, NamedTuple

from fewlink.base.resolver import choose
from fewlink.fewshot import aggregators, encoders, matchers, pairs
from fewlink.fewshot.model import FewShotModel

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
