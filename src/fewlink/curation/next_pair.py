"""Choose the next pair to decide: the best one, or the one whose decision is most informative, spread over tails."""

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
    unsure = probable * (1 - probable)
    left = learned.spread(pairs)
    influence = (left**2) @ unsure / (1 + unsure * np.maximum(np.diag(left), 0))
    return np.asarray(unsure * influence)


def spread_over_tails(values: np.ndarray, tails: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """The order (n,) of pairs with these values (n,) and tails (n,), given the tails (m,) of decided pairs.

    The value of a pair is divided by 1 + the number of pairs with its tail that are decided or come before it, so tails
    that were decided often have to wait.
    """
    distinct, tail = np.unique(tails, return_inverse=True)
    before = 1.0 + (distinct[:, None] == decided).sum(1)
    left = values.astype(float)
    order = np.zeros(len(values), int)
    for place in range(len(values)):
        order[place] = np.argmax(left / before[tail])
        left[order[place]] = -np.inf
        before[tail[order[place]]] += 1
    return order


def suggest(
    learned: Learned | None, pairs: np.ndarray, scores: np.ndarray, units: Units, *, teach: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The order (n,) in which to decide pairs (n, 2), and their corrected scores (n,).

    The best pair comes first; with `teach`, the most informative one, spread over tails. Without decisions, pairs are
    ordered by score.
    """
    corrected = scores if learned is None else scores + units.scale * learned.logits(pairs)
    order = np.argsort(-corrected, kind="stable")
    if teach and learned is not None:
        first = order[:MAX_PAIRS]
        values = informative(learned, pairs[first], scores[first], units)
        spread = spread_over_tails(values, pairs[first, 1], learned.pairs[:, 1])
        order = np.concatenate([first[spread], order[MAX_PAIRS:]])
    return order, corrected
