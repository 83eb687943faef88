"""The next pair to decide: the one whose answer tells most about all others (uncertainty × influence)."""

from __future__ import annotations

import numpy as np

from fewlink.curation.learning import Learned, Units, sigmoid

MOST_PAIRS = 300  # of the best pairs, which are weighed against each other


def informative(learned: Learned, pairs: np.ndarray, scores: np.ndarray, units: Units) -> np.ndarray:
    """How much the answer to each pair (n, 2) tells about all of them: (n,), given their uncorrected scores (n,).

    With p the probability that a pair is true, its uncertainty is u = p (1 − p); its influence is the variance that
    its answer takes away from all pairs, Σ u' cov² / (1 + u · var).
    """
    probable = sigmoid((scores - units.likely) / units.scale + learned.logits(pairs))
    unsure, left = probable * (1 - probable), learned.spread(pairs)
    influence = (left**2) @ unsure / (1 + unsure * np.maximum(np.diag(left), 0))
    return np.asarray(unsure * influence)


def suggest(
    learned: Learned | None, pairs: np.ndarray, scores: np.ndarray, units: Units, *, teach: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The order (n,) in which to decide pairs (n, 2), and their corrected scores (n,).

    The best pair comes first; to `teach`, the one that tells most about all others. Without decisions, by score.
    """
    corrected = scores if learned is None else scores + units.scale * learned.logits(pairs)
    order = np.argsort(-corrected, kind="stable")
    if teach and learned is not None:
        first = order[:MOST_PAIRS]
        values = informative(learned, pairs[first], scores[first], units)
        order = np.concatenate([first[np.argsort(-values, kind="stable")], order[MOST_PAIRS:]])
    return order, corrected
