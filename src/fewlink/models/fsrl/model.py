"""The few-shot models by name, each a composition of four parts, as scorers of the common evaluator; their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fewlink.core.errors import choose
from fewlink.embeddings.table import rows
from fewlink.models.family import ModelSettings
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


@dataclass(frozen=True)
class FewShotSettings(ModelSettings):
    """How a model is meta-trained; the defaults are the paper's.

    model                a name of `fewlink models`
    shots                references of an episode (K), and of each dev relation
    batch                queries of an episode
    relations            relations of a step, an episode each; shared out where several processes train together
    negatives            false tails that each query is contrasted with
    shared_negatives     whether the queries of an episode share their negatives
    smallest_range       relations with fewer candidates than this are not trained on
    loss                 hinge (Eq. 9), or softmax of the true tail among the negatives
    margin               ξ of the hinge loss
    temperature          what the scores are divided by in the loss
    reconstruction       γ of Eq. 10, the weight of the aggregator's reconstruction loss
    learning_rate        of Adam, times `decay` after every `decay_every` steps, `decays` times at most
    embedding_rate       the same for the pretrained vectors; 0 leaves them as they are
    steps                steps at most
    clip                 largest norm of the gradient; 0 leaves it as it is
    dropout              share of the neighbours' vectors dropped while training
    standardise          bring each pretrained vector to mean 0 and deviation 1 first
    neighbours           neighbours of an entity at most (N)
    neighbour_rule       which of them where there are more: sampled, or the first in the file
    matching_steps       T of Eq. 8
    evaluate_every       steps between evaluations on dev; each one saves the run
    patience             evaluations without a better dev MRR before training stops
    evaluate_candidates  the candidates on dev: full or paper
    mixed_precision      bfloat16 products on a GPU
    """

    model: str = "fsrl"
    shots: int = 3
    batch: int = 128
    relations: int = 1
    negatives: int = 1
    shared_negatives: bool = False
    smallest_range: int = 0
    loss: str = "hinge"
    margin: float = 5.0
    temperature: float = 1.0
    reconstruction: float = 1e-4
    learning_rate: float = 1e-3
    decay: float = 0.25
    decay_every: int = 10_000
    decays: int = 1000
    embedding_rate: float = 0.0
    steps: int = 10_000
    clip: float = 0.0
    dropout: float = 0.0
    standardise: bool = False
    neighbours: int = 30
    neighbour_rule: str = "sampled"
    matching_steps: int = 2
    evaluate_every: int = 500
    patience: int = 10
    evaluate_candidates: str = "full"
    seed: int = 0
    device: str = "cpu"
    mixed_precision: bool = False

    CHOICES: ClassVar[Mapping[str, Iterable[str]]] = {
        "model": COMPOSITIONS,
        "loss": ("hinge", "softmax"),
        "neighbour_rule": ("sampled", "first"),
        "evaluate_candidates": ("full", "paper"),
    }
    AT_LEAST_ONE = (
        *("shots", "batch", "relations", "negatives", "decay_every", "steps", "neighbours", "matching_steps"),
        *("evaluate_every", "patience"),
    )
    POSITIVE = ("margin", "temperature", "learning_rate", "decay")
    NOT_NEGATIVE = ("reconstruction", "clip", "embedding_rate", "decays", "smallest_range")

    def __post_init__(self) -> None:
        self.check()
        self.require("decay", self.decay <= 1, "1 or less")
        self.require("dropout", 0 <= self.dropout < 1, "0 or more and less than 1")

    def decay_at(self, step: int) -> float:
        """What the learning rates of a step, the first of which is 0, are multiplied with."""
        return float(self.decay ** min(step // self.decay_every, self.decays))
