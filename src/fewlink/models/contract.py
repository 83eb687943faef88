"""The contract of every scorer: the question it receives, the scores it returns, the reasons it may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch

from fewlink.graph import Graph

__all__ = [
    "EMBEDDING",
    "Capabilities",
    "EvidenceScorer",
    "ExplainingGraphScorer",
    "ExplainingScorer",
    "GraphScorer",
    "Question",
    "Reasons",
    "Recalibration",
    "RelationScorer",
    "Scorer",
    "SeveralQuestionsScorer",
    "best_tails",
    "capabilities",
    "realistic_rank",
]

Counts = TypeVar("Counts", np.ndarray, torch.Tensor)
EMBEDDING = "embedding"  # the kind of evidence that an embedding model adds


@dataclass(frozen=True)
class Question:
    """Given these references of a relation, how well does each candidate fit each head as a tail?

    Shapes: `references` (shots, 2) int32; `heads` (h,) int32; `candidates` (c,) int32.
    """

    relation: str
    references: np.ndarray
    heads: np.ndarray
    candidates: np.ndarray


@dataclass(frozen=True)
class Recalibration:
    """P' = σ(constant + slope · log odds of P), for probabilities P that a calibration gives to other scores.

    `error` is the mean over relations of |mean probability of first answers − hit rate| that was measured, if it was.
    """

    constant: float = 0.0
    slope: float = 1.0
    error: float | None = None

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        inside = np.clip(probabilities, 1e-9, 1 - 1e-9)
        changed = np.exp(-np.logaddexp(0, -self.constant - self.slope * (np.log(inside) - np.log1p(-inside))))
        return np.asarray(np.where(probabilities > 0, changed, 0.0))


@dataclass(frozen=True)
class Capabilities:
    """What a scorer declares beyond its scores; a scorer that declares nothing has the defaults.

    thread_safe        whether several threads may call it at the same time
    most_references    the number of references that it reads, the first ones; None for all of them
    scores_are_logits  whether a difference of scores is a difference of log-odds
    evidence           a description of each kind of evidence in its reasons
    edges_read         the number of edges that it reads around each head; None for the whole graph
    reads_names        whether its scores include evidence from names
    text_vectors       the sha256 of vectors of names that took the place of its own
    recalibration      of the probabilities that the calibration of another scorer gives to its scores
    mixed_in           the sha256 of an embedding model that is mixed in for relations of the graph
    references_seen    the number of pairs of each dev and test relation, the first ones, that it was trained on
    """

    thread_safe: bool = False
    most_references: int | None = None
    scores_are_logits: bool = False
    evidence: Mapping[str, str] = field(default_factory=dict)
    edges_read: int | None = None
    reads_names: bool = False
    text_vectors: str = ""
    recalibration: Recalibration | None = None
    mixed_in: str = ""
    references_seen: int = 0

    def references_read(self, count: int) -> int:
        """The number of references that the scorer reads out of `count`."""
        return count if self.most_references is None else min(count, self.most_references)


class Scorer(Protocol):
    """Scores tails. Higher is better; a score is finite and independent of the rest of the question.

    A scorer may declare its `Capabilities` in an attribute `capabilities`.
    """

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        """Scores (h, c)."""
        ...


@dataclass(frozen=True)
class Reasons:
    """The reasons for the score of one pair, in ids of `graph`, by default the benchmark's graph.

    visible     (2R,), a bool for each relation of `graph` and inverse: those that the scorer has read; None for all
    shares      the contribution of each kind of evidence
    paths       (relations, contribution) of paths that join the pair and also references
    references  the contribution or the attention (β) of each reference
    neighbours  ("head" or "tail", relation, entity, weight) of edges at either end of the pair: if `shared`, edges that
                the tail shares with the references' tails, else edges that the model attends to (α)
    entities    the entities of each path, from the head or an end of a reference to the tail; without them, a path
                stands for all paths from head to tail along its relations
    measured    whether the contributions of shares, paths and references are losses of score without each
    names       ("head", head, contribution of its name's likeness) and ("reference", tail of a reference, …)

    Relation 2R is that of the references, and 2R + 1 its inverse.
    """

    score: float
    shares: Mapping[str, float] = field(default_factory=dict)
    paths: Sequence[tuple[tuple[int, ...], float]] = ()
    references: Sequence[float] = ()
    neighbours: Sequence[tuple[str, int, int, float]] = ()
    shared: bool = False
    graph: Graph | None = None
    visible: np.ndarray | None = None
    entities: Sequence[tuple[int, ...]] = ()
    measured: bool = False
    names: Sequence[tuple[str, int, float]] = ()


@runtime_checkable
class ExplainingScorer(Protocol):
    """A scorer that gives reasons for its scores; its capabilities describe each kind of evidence."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The reasons for the score of one pair, given references (K, 2)."""
        ...


@runtime_checkable
class GraphScorer(Protocol):
    """A scorer that reads a graph, and can do without some of its edges or relations."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def for_many_heads(self) -> Self:
        """The same model, which may read only a part of a large graph near each head: that is faster for many heads."""
        ...

    def without(self, relation: str) -> Scorer:
        """The model on the graph without the triples of a relation, whose pairs are references instead."""
        ...

    def without_names(self) -> Self:
        """The same model without the evidence of names."""
        ...


@runtime_checkable
class SeveralQuestionsScorer(Protocol):
    """A scorer that answers several questions, each with references of its own, faster than one after the other."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def each(self, questions: Sequence[Question]) -> Sequence[torch.Tensor | np.ndarray]:
        """The scores (h, c) of each question; one without heads only announces that it may be asked next."""
        ...


@runtime_checkable
class EvidenceScorer(Protocol):
    """A scorer that tells for which heads it has any evidence."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def has_evidence(self, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Whether scores depend on each head (n,), given references (K, 2); (n,) bool."""
        ...


@runtime_checkable
class RelationScorer(Protocol):
    """A scorer of one relation that was trained on its triples, and so on the references."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def inverted(self) -> Scorer:
        """The scorer of the inverse relation."""
        ...

    def untrained(self) -> Scorer:
        """The part of the scorer that was not trained on the references, and so can hold them out."""
        ...


@runtime_checkable
class ExplainingGraphScorer(ExplainingScorer, GraphScorer, Protocol):
    """A scorer that reads a graph and gives reasons for its scores."""


def capabilities(scorer: Scorer) -> Capabilities:
    """The capabilities that a scorer declares, or the defaults."""
    declared = getattr(scorer, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


def best_tails(scorer: Scorer, question: Question, count: int) -> list[list[tuple[int, float]]]:
    """The `count` best candidates of each head with their scores, best first; ties keep the order of candidates."""
    result = scorer(question)
    scores = np.asarray(result.detach().cpu() if isinstance(result, torch.Tensor) else result, np.float64)  # (h, c)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [(int(question.candidates[c]), float(row[c])) for c in best] for row, best in zip(scores, order, strict=True)
    ]


def realistic_rank(higher: Counts, tied: Counts) -> Counts:
    """The rank of a score with `higher` scores above it and `tied` scores equal to it: the mean over all tie orders."""
    return 1 + higher + tied / 2
