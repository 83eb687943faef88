"""Probabilities adjusted by decisions: a model that is too sure or too cautious about a relation is corrected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fewlink.questions.logistic import fit_logistic

SHIFT, SCALE = 2.5, 2.5  # how firmly the shift is drawn towards 0, and the scale towards 1
LEAST_SCALE = 0.1  # so that the order of probabilities stays
EXTREME = 1e-6  # probabilities nearer to 0 or 1 count as this


@dataclass(frozen=True)
class Adjustment:
    """logit p' = shift + scale · logit p, fitted to a number of decisions. A higher p has a higher p'."""

    shift: float = 0.0
    scale: float = 1.0
    decisions: int = 0

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Adjusted probabilities, of the same shape."""
        return np.asarray(1 / (1 + np.exp(-(self.shift + self.scale * logits(probabilities)))))

    def sentence(self) -> str:
        count = f"{self.decisions:,} decisions" if self.decisions > 1 else "1 decision"
        return f"probabilities are adjusted by the {count} of this project"


def adjustment(decisions: Iterable[tuple[float, bool]]) -> Adjustment | None:
    """What decisions say: the model's probability of each pair, not adjusted, and whether it was accepted.

    None if there are no decisions. Few decisions change little: shift and scale are drawn towards 0 and 1.
    """
    rows = list(decisions)
    if not rows:
        return None
    given, accepted = np.array([p for p, _ in rows], float), np.array([yes for _, yes in rows], bool)
    features = np.stack([np.ones(len(rows)), logits(given)], 1) / np.sqrt([SHIFT, SCALE])
    towards = np.array([0.0, np.sqrt(SCALE)])
    shift, scale = fit_logistic(features, accepted, np.ones(len(rows)), 1.0, towards) / np.sqrt([SHIFT, SCALE])
    return Adjustment(float(shift), max(float(scale), LEAST_SCALE), len(rows))


def logits(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, EXTREME, 1 - EXTREME)
    return np.asarray(np.log(clipped / (1 - clipped)))
