"""Why TRAIL gives a pair its score: the paths that carried it, and the references that counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fewlink.scorers import Reasons

if TYPE_CHECKING:
    from fewlink.trail.scorer import TrailScorer

EVIDENCE = {"propagation": "paths from the head and from the references to the tail"}


def explain(scorer: TrailScorer, references: np.ndarray, head: int, tail: int, most: int) -> Reasons:
    """The reasons for the score of one pair, given references (K, 2)."""
    raise NotImplementedError
