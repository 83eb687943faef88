"""What every scorer is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch


@dataclass(frozen=True)
class Question:
    """For these references of a relation, how well does each candidate fit each head as a tail?

    Shapes: `references` (shots, 2) int32; `heads` (h,) int32; `candidates` (c,) int32.
    """

    relation: str
    references: np.ndarray
    heads: np.ndarray
    candidates: np.ndarray


class Scorer(Protocol):
    """Anything that ranks tails: higher is better, every score is finite and does not depend on what else is asked."""

    name: str

    def __call__(self, question: Question) -> torch.Tensor | np.ndarray:
        """Scores (h, c)."""
        ...


def best_tails(scorer: Scorer, question: Question, count: int) -> list[list[tuple[int, float]]]:
    """For each head, the `count` best candidates with their scores, best first; ties in the order of the candidates."""
    scores = np.asarray(scorer(question), np.float64)  # (heads, candidates)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [(int(question.candidates[c]), float(row[c])) for c in best] for row, best in zip(scores, order, strict=True)
    ]
