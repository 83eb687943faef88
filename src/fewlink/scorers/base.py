"""What every scorer receives and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

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


class Scorer(Protocol):
    """Anything that scores tails. Higher is better; scores are finite and independent of the rest of the question."""

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
    """

    score: float
    shares: Mapping[str, float] = field(default_factory=dict)
    paths: Sequence[tuple[tuple[int, ...], float]] = ()
    references: Sequence[float] = ()
    neighbours: Sequence[tuple[str, int, int, float]] = ()
    shared: bool = False
    graph: Graph | None = None


@runtime_checkable
class ExplainingScorer(Protocol):
    """A scorer that gives reasons for its scores; `evidence` describes each of its kinds of evidence."""

    name: str
    evidence: Mapping[str, str]

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray: ...

    def explain(self, references: np.ndarray, head: int, tail: int, most: int = 5) -> Reasons:
        """The reasons for the score of one pair, given references (K, 2)."""
        ...


def best_tails(scorer: Scorer, question: Question, count: int) -> list[list[tuple[int, float]]]:
    """For each head, the `count` best candidates with their scores, best first; ties in the order of the candidates."""
    scores = np.asarray(scorer(question), np.float64)  # (heads, candidates)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [(int(question.candidates[c]), float(row[c])) for c in best] for row, best in zip(scores, order, strict=True)
    ]
