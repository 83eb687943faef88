"""Choose the next pair to decide: the one whose decision is most informative (uncertainty × influence)."""

from __future__ import annotations

import numpy as np

from fewlink.curation.learning import Learned, Units, sigmoid

MAX_PAIRS = 300  # best pairs to compare for information


def informative(learned: Learned, pairs: np.ndarray, scores: np.ndarray, units: Units) -> np.ndarray:
    """How informative (n,) a decision on each pair (n, 2) is about all of them, given their uncorrected scores (n,).

    With p the probability that a pair is true, its uncertainty is u = p (1 − p); its influence is the variance that a
    decision on it removes from all pairs, Σ u' cov² / (1 + u · var).
    """
    probable = sigmoid((scores - units.likely) / units.scale + learned.logits(pairs))
    unsure, left = probable * (1 - probable), learned.spread(pairs)
    influence = (left**2) @ unsure / (1 + unsure * np.maximum(np.diag(left), 0))
    return np.asarray(unsure * influence)


def suggest(
    learned: Learned | None, pairs: np.ndarray, scores: np.ndarray, units: Units, *, teach: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The order (n,) in which to decide pairs (n, 2), and their corrected scores (n,).

    The best pair comes first; with `teach`, the most informative one. Without decisions, pairs are ordered by score.
    """
    corrected = scores if learned is None else scores + units.scale * learned.logits(pairs)
    order = np.argsort(-corrected, kind="stable")
    if teach and learned is not None:
        first = order[:MAX_PAIRS]
        values = informative(learned, pairs[first], scores[first], units)
        order = np.concatenate([first[np.argsort(-values, kind="stable")], order[MAX_PAIRS:]])
    return order, corrected
