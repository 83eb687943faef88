"""The few-shot models by name, each a composition of four parts, as scorers of the common evaluator; their settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fewlink.core.errors import choose
from fewlink.embeddings.table import rows
from fewlink.models.fsrl import aggregator as aggregators
from fewlink.models.fsrl import encoder as encoders
from fewlink.models.fsrl import matcher as matchers
from fewlink.models.fsrl import pair as pairs
from fewlink.models.fsrl.aggregator import reference_weights
from fewlink.models.fsrl.encoder import Encoder
from fewlink.models.fsrl.matcher import Matcher
from fewlink.models.fsrl.neighbourhood import Neighbourhood
from fewlink.models.fsrl.pair import PairEncoder
from fewlink.scorers import Question, Reasons

ENCODED_AT_ONCE = 4096
COMPARED_AT_ONCE = 1 << 16  # rows


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

    def exact_encoder(self, around: Neighbourhood) -> Callable[[Tensor], Tensor]:
        """A function from entities (U,) to their vectors (U, d), computed in double precision.

        A product's rounding depends on its shape; in double precision it is gone when the result is stored, so that
        entities with the same neighbours get the same vector to the last bit and tie. Those with few neighbours are
        encoded together, with no more slots than they fill, unless the encoder reads empty ones.
        """
        encoder = copy.deepcopy(self.encoder).eval().double()

        @torch.no_grad()
        def encode(ids: Tensor) -> Tensor:
            encoded = around.relations.new_empty(len(ids), encoder.width)
            counts, order = around.neighbours.counts(ids).sort(stable=True)
            for some, filled in zip(order.split(ENCODED_AT_ONCE), counts.split(ENCODED_AT_ONCE), strict=True):
                exact = around.exactly(ids[some], None if encoder.reads_padding else int(filled[-1]))
                encoded[some] = encoder(torch.arange(len(some), device=some.device), exact).to(encoded.dtype)
            return encoded

        return encode

    def encode_all(self, around: Neighbourhood) -> Tensor:
        """The vectors of all entities: (E, d)."""
        return self.exact_encoder(around)(torch.arange(around.entity_count, device=around.entities.device))

    @torch.no_grad()
    def grid(self, encoded: Tensor, references: Tensor, heads: Tensor, candidates: Tensor) -> Tensor:
        """Scores (H, C) of every head with every candidate, from the vectors of all entities (E, d)."""
        summary = self.aggregator(self._pairs(encoded, references))  # (K, 2d) in
        return self.pair.grid(self.matcher, encoded[heads], encoded[candidates], summary.vectors)

    @torch.no_grad()
    def compared(self, encoded: Tensor, references: Tensor, queries: Tensor) -> Tensor:
        """What of each query pair (Q, 2) is compared with the references' vector it fits best: (Q, w)."""
        vectors = self.aggregator(self._pairs(encoded, references)).vectors  # (M, w)
        compared = self.matcher.compared(self._pairs(encoded, queries), vectors)  # (Q, M, w)
        best = (compared * vectors).sum(-1).argmax(-1)
        return compared[torch.arange(len(best), device=best.device), best]

    def _pairs(self, encoded: Tensor, places: Tensor) -> Tensor:
        pairs: Tensor = self.pair(rows(encoded, places))  # from (…, 2, d)
        return pairs


class FewShotScorer:
    """A trained model for the common evaluator.

    An entity is encoded once, when the first question comes that it has a part in, and entities with the same vector
    (half of NELL-One's) are scored once for all of them.
    """

    evidence: Mapping[str, str] = {}

    def __init__(self, name: str, model: FewShotModel, around: Neighbourhood) -> None:
        self.name, self.model, self.around = name, model.eval(), around
        self._encode: Callable[[Tensor], Tensor] | None = None
        self._encoded = around.relations.new_empty(0)  # (E, d), later
        self._ready = torch.empty(0, dtype=torch.bool, device=around.relations.device)  # (E,), later

    def __call__(self, question: Question) -> Tensor:
        parts = [
            torch.from_numpy(p.astype(np.int64)) for p in (question.references, question.heads, question.candidates)
        ]
        ids, places = torch.cat([part.flatten() for part in parts]).to(self._ready.device).unique(return_inverse=True)
        vectors, owners = distinct(self._vectors(ids))
        references, heads, candidates = owners[places].split([part.numel() for part in parts])
        (rows_of, row), (columns_of, column) = (kinds.unique(return_inverse=True) for kinds in (heads, candidates))
        return self.model.grid(vectors, references.view(-1, 2), rows_of, columns_of)[row][:, column]

    def pair_vectors(self, references: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """The vectors (n, w) of pairs (n, 2) as the model compares them with the references (K, 2)."""
        ids, places = torch.from_numpy(np.concatenate([references, pairs]).astype(np.int64)).unique(return_inverse=True)
        encoded = self._vectors(ids.to(self.around.entities.device))
        positions = places.to(encoded.device).split([len(references), len(pairs)])
        return self.model.compared(encoded, *positions).cpu().numpy()

    @torch.no_grad()
    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The attention behind the score of one pair, given references (K, 2): β of references, α of neighbours."""
        score = float(self(Question("", references, np.array([head]), np.array([tail]))))
        ids = torch.from_numpy(references.astype(np.int64)).to(self._ready.device)
        pairs = self.model.pair(self._vectors(ids.flatten()).view(*ids.shape, -1))  # (K, 2d)
        beta = reference_weights(self.model.aggregator, pairs)
        ends = {"head": head, "tail": tail}
        neighbours = [(end, *edge) for end, entity in ends.items() for edge in self._attended(entity, most)]
        return Reasons(score, references=[] if beta is None else beta.tolist(), neighbours=neighbours)

    def _attended(self, entity: int, most: int) -> list[tuple[int, int, float]]:
        """The neighbours (relation, entity, α) of an entity that weigh most; none if the model has no attention."""
        around = self.around
        own = torch.tensor([entity], device=around.relations.device)
        weights = self.model.encoder.weights(own, around)
        if weights is None:
            return []
        relations, entities, present = around.neighbours_of(own)
        best = weights[0].sort(descending=True, stable=True).indices[: min(most, int(present.sum()))]
        columns = relations[0, best], entities[0, best], weights[0, best]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _vectors(self, ids: Tensor) -> Tensor:
        """The vectors (U, d) of these entities; those that no question had before are encoded now."""
        if self._encode is None:
            count, relations = self.around.entity_count, self.around.relations
            self._encode = self.model.exact_encoder(self.around)
            self._encoded = relations.new_empty(count, self.model.encoder.width)
            self._ready = torch.zeros(count, dtype=torch.bool, device=relations.device)
        missing = ids[~self._ready[ids]]
        if len(missing):
            self._encoded[missing], self._ready[missing] = self._encode(missing), True
        return self._encoded[ids]


def distinct(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, d) of a table (E, d), and which of them each row is (E,)."""
    random = torch.Generator().manual_seed(0)
    factors = torch.randint(torch.iinfo(torch.int64).max, (vectors.shape[1],), generator=random) | 1
    factors, parts = factors.to(vectors.device), vectors.split(COMPARED_AT_ONCE)
    keys = torch.cat([_keys(part, factors) for part in parts])
    found, owners = keys.unique(return_inverse=True)
    members = torch.arange(len(keys), device=keys.device)
    kinds = vectors[members.new_full((len(found),), len(keys)).scatter_reduce(0, owners, members, "amin")]
    if not all(torch.equal(kinds[own], part) for own, part in zip(owners.split(COMPARED_AT_ONCE), parts, strict=True)):
        kinds, owners = vectors.unique(dim=0, return_inverse=True)
    return kinds, owners


def _keys(vectors: Tensor, factors: Tensor) -> Tensor:
    """A number (E,) for each row (E, d): of equal rows the same, of others hardly ever."""
    bits = (vectors + 0.0).view(torch.int64 if vectors.dtype == torch.float64 else torch.int32).long()
    return ((bits ^ (bits >> 32)) * factors).sum(1)


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
