"""The contract of every scorer: the question it receives, the scores it returns, the reasons it may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch

from fewlink.graph import Graph


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
class Capabilities:
    """What a scorer can do beside scoring; the defaults hold for a scorer that declares nothing.

    thread_safe        several threads may call it at the same time
    most_references    how many references it reads, the first ones; None: all of them
    scores_are_logits  a difference of scores is a difference of log-odds
    evidence           what each kind of evidence in its reasons is, in words
    edges_read         how many edges it reads around each head; None: the whole graph
    reads_names        its scores include the evidence of names
    """

    thread_safe: bool = False
    most_references: int | None = None
    scores_are_logits: bool = False
    evidence: Mapping[str, str] = field(default_factory=dict)
    edges_read: int | None = None
    reads_names: bool = False

    def references_read(self, given: int) -> int:
        """How many of the given number of references it reads."""
        return given if self.most_references is None else min(given, self.most_references)


class Scorer(Protocol):
    """Anything that scores tails. Higher is better; scores are finite and independent of the rest of the question.

    A scorer may also have an attribute `capabilities`, a `Capabilities`.
    """

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        """Scores (h, c)."""
        ...


@dataclass(frozen=True)
class Reasons:
    """Why one pair has its score, in ids of `graph`, by default the benchmark's graph.

    `shares`: what each kind of evidence adds to the score; `paths`: the relations of paths that join the pair and also
    join references, and what each adds; `references`: the attention (β) of each reference; `neighbours`: ("head" or
    "tail", relation, entity, weight) of edges at either end: if `shared`, those that the tail shares with the
    references' tails, else those that the model attends to (α).

    `entities`: the entities of each path, from the head or from an end of a reference to the tail; without them, paths
    are kinds of paths from head to tail. Relation 2R is that of the references, 2R + 1 its inverse. If `measured`, the
    numbers of shares, paths and references are what the score loses without each; `together`, what it loses without all
    paths. `at_tail`, if no path from the head counts: relations with the most important edges of the tail, as (relation
    as seen from the tail, edges, what the score loses without them). `names`: what the tail's name adds, as
    ("head", head, what its likeness to the head's name adds) and ("reference", tail of a reference, …).
    """

    score: float
    shares: Mapping[str, float] = field(default_factory=dict)
    paths: Sequence[tuple[tuple[int, ...], float]] = ()
    references: Sequence[float] = ()
    neighbours: Sequence[tuple[str, int, int, float]] = ()
    shared: bool = False
    graph: Graph | None = None
    entities: Sequence[tuple[int, ...]] = ()
    measured: bool = False
    together: float | None = None
    at_tail: Sequence[tuple[int, int, float]] = ()
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
    """A scorer that reads a graph, of which it can read less."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def limit_edges(self, edges: int) -> None:
        """Read about this many edges around each head."""
        ...

    def without(self, relation: str) -> Self:
        """The same model on the graph without the triples of a relation."""
        ...

    def without_names(self) -> Self:
        """The same model without the evidence of names."""
        ...


@runtime_checkable
class ExplainingGraphScorer(ExplainingScorer, GraphScorer, Protocol):
    """A scorer that reads a graph and gives reasons for its scores."""


def capabilities(scorer: Scorer) -> Capabilities:
    """What a scorer declares, or the defaults."""
    declared = getattr(scorer, "capabilities", None)
    return declared if isinstance(declared, Capabilities) else Capabilities()


def best_tails(scorer: Scorer, question: Question, count: int) -> list[list[tuple[int, float]]]:
    """For each head, the `count` best candidates with their scores, best first; ties in the order of the candidates."""
    given = scorer(question)
    scores = np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given, np.float64)  # (h, c)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [(int(question.candidates[c]), float(row[c])) for c in best] for row, best in zip(scores, order, strict=True)
    ]
