"""TRAIL mixed with an embedding model of its graph, for relations that the graph has.

    score(h, t) = TRAIL(h, t) + weight · (e(h, r, t) − mean of e(h, r, t') over all entities t')

TRAIL has the known pairs of the relation as references and does not see its triples otherwise. The embedding model e
was trained on them. A new relation, and one with few known pairs, is answered by TRAIL alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import reading
from fewlink.graph import Graph
from fewlink.models.contract import (
    EMBEDDING,
    Capabilities,
    ExplainingScorer,
    Question,
    Reasons,
    Recalibration,
    Scorer,
    capabilities,
)
from fewlink.models.embeddings import Embeddings
from fewlink.models.embeddings.table import REMEDY, rows
from fewlink.models.family import NoVectors
from fewlink.models.trail.scorer import TrailScorer, ids

EVIDENCE = "an embedding model trained on the graph"
AS_TRAIL = Recalibration()
FACTS = "mixture"  # the weight and all else in the facts of the vectors' folder


@dataclass(frozen=True)
class Mixture(NoVectors):
    """An embedding model of a graph, and how it is mixed with TRAIL, whose network itself reads no vectors.

    embeddings     trained on the triples of the graph, by the ids of its entities and relations
    weight         of its scores
    fewest         the number of known pairs from which a relation is answered by both
    recalibration  of the probabilities that TRAIL's calibration gives to mixed scores
    """

    embeddings: Embeddings
    weight: float
    fewest: int
    recalibration: Recalibration = AS_TRAIL

    def digest(self) -> str:
        return self.embeddings.digest()

    @property
    def facts(self) -> dict[str, Any]:
        """Everything but the vectors, for JSON."""
        recalibration = dataclasses.asdict(self.recalibration)
        return {"weight": self.weight, "fewest": self.fewest, "recalibration": recalibration}

    def save(self, folder: Path, fingerprint: str, *, graph: str = "") -> None:
        """Write the folder of the vectors, whose facts hold the rest."""
        vectors = dataclasses.replace(self.embeddings, facts={**self.embeddings.facts, FACTS: self.facts})
        vectors.save(folder, fingerprint, graph=graph)

    @classmethod
    def open(cls, folder: Path) -> Mixture:
        vectors = Embeddings.open(folder)
        with reading(folder, REMEDY):
            facts = dict(vectors.facts[FACTS])
            return cls(vectors, **{**facts, "recalibration": Recalibration(**facts["recalibration"])})

    def to(self, device: str | torch.device) -> Mixture:
        return dataclasses.replace(self, embeddings=self.embeddings.to(device))

    def relation(self, graph: Graph, name: str) -> int | None:
        """The row of a relation with enough known pairs in the graph; None if TRAIL answers alone."""
        number = graph.relations.find(name)
        if number is None or number >= self.relations:
            return None
        return number if int((graph.relation_ids == number).sum()) >= self.fewest else None

    @property
    def relations(self) -> int:
        """The number of relations, without their inverses."""
        return len(self.embeddings.relations) // 2

    @functools.cached_property
    def _mean(self) -> Tensor:
        """The mean vector (1, d) of all entities."""
        return self.embeddings.entities.float().mean(0, keepdim=True)

    @torch.no_grad()
    def scores(self, relation: int, heads: np.ndarray, candidates: np.ndarray) -> Tensor:
        """What the embedding model adds to the scores (h, c); 0 for entities that it was not trained on."""
        vectors = self.embeddings
        count = len(self.embeddings.entities)
        places = [ids(each).to(vectors.entities.device) for each in (heads, candidates)]
        seen = [(each < count).float() for each in places]
        head_ids, candidate_ids = (each.clamp(max=count - 1) for each in places)
        queries = vectors.queries(head_ids, torch.full_like(head_ids, relation))  # (h, d)
        table = rows(vectors.entities, candidate_ids) - self._mean  # (c, d): scores are linear in the candidate
        return self.weight * vectors.interaction.against(queries, table) * seen[0][:, None] * seen[1]


class MixedRelationScorer:
    """TRAIL, which does not see a relation of the graph, and the embedding model, which was trained on it."""

    def __init__(self, trail: Scorer, mixture: Mixture, relation: int) -> None:
        self.name = trail.name
        self.trail = trail
        self.mixture = mixture
        self.relation = relation

    @property
    def capabilities(self) -> Capabilities:
        own = capabilities(self.trail)
        evidence = {**own.evidence, EMBEDDING: EVIDENCE}
        return dataclasses.replace(own, evidence=evidence, recalibration=self.mixture.recalibration)

    def __call__(self, question: Question) -> Tensor:
        scores = torch.as_tensor(self.trail(question))
        return scores + self.mixture.scores(self.relation, question.heads, question.candidates).to(scores.device)

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """TRAIL's reasons, and what the embedding model adds."""
        assert isinstance(self.trail, ExplainingScorer)
        reasons = self.trail.explain(references, head, tail, most)
        added = float(self.mixture.scores(self.relation, np.array([head]), np.array([tail])))
        return dataclasses.replace(reasons, score=reasons.score + added, shares={**reasons.shares, EMBEDDING: added})

    def inverted(self) -> MixedRelationScorer:
        """The scorer of the inverse relation."""
        count = self.mixture.relations
        return MixedRelationScorer(self.trail, self.mixture, (self.relation + count) % (2 * count))

    def untrained(self) -> Scorer:
        """TRAIL alone, which was not trained on the references."""
        return self.trail


class MixedScorer:
    """TRAIL on a graph, and for relations of the graph the mixture; a new relation is answered by TRAIL alone."""

    def __init__(self, trail: TrailScorer, mixture: Mixture, graph: Graph) -> None:
        self.name = trail.name
        self.trail = trail
        self.graph = graph
        self.mixture = mixture.to(trail.device)

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.trail.capabilities, mixed_in=self.mixture.digest())

    def __call__(self, question: Question) -> Tensor:
        return self.trail(question)

    def each(self, questions: Sequence[Question]) -> list[Tensor]:
        return self.trail.each(questions)

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        return self.trail.explain(references, head, tail, most)

    def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
        return self.trail.has_evidence(references, heads)

    def for_many_heads(self) -> MixedScorer:
        trail = self.trail.for_many_heads()
        return self if trail is self.trail else MixedScorer(trail, self.mixture, self.graph)

    def without(self, relation: str) -> MixedRelationScorer | TrailScorer:
        """The model for a relation of the graph, whose triples TRAIL does not see."""
        hiding = self.trail.without(relation)
        row = self.mixture.relation(self.graph, relation)
        return hiding if row is None else MixedRelationScorer(hiding, self.mixture, row)

    def without_names(self) -> MixedScorer:
        return MixedScorer(self.trail.without_names(), self.mixture, self.graph)
