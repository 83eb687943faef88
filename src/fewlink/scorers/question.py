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
