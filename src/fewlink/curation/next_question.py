"""The next pair to decide: the one whose answer tells most about all others (uncertainty × influence)."""

from __future__ import annotations

import numpy as np

from fewlink.curation.learning import SCALE, SPREAD, Learned

LIKELY = 12.0  # a score of TRAIL's at which a pair is as likely true as not
MOST_PAIRS = 300  # of the best pairs, which are weighed against each other


def informative(learned: Learned, pairs: np.ndarray, scores: np.ndarray, scale: float = SCALE) -> np.ndarray:
    """How much the answer to each pair (n, 2) tells about all of them: (n,), given their uncorrected scores (n,).

    With p the probability that a pair is true, its uncertainty is u = p (1 − p); its influence is the variance that
    its answer takes away from all pairs, Σ u' cov² / (1 + u · var).
    """
    logits = (scores - LIKELY) / scale + learned.logits(pairs)
    probable = 1 / (1 + np.exp(-logits))
    unsure, left = probable * (1 - probable), learned.spread(pairs)
    influence = (left**2) @ unsure / (1 + unsure * np.maximum(np.diag(left), 0))
    return np.asarray(unsure * influence)


def logit_scale(scorer: object, scores: np.ndarray) -> float:
    """What a logit is worth in scores (n,): known of TRAIL, and by their spread of other scorers."""
    known = getattr(scorer, "logit_scale", None)
    return float(known) if known is not None else SCALE / SPREAD * max(float(np.std(scores)), 1e-6)


def suggest(
    learned: Learned | None, pairs: np.ndarray, scores: np.ndarray, scale: float, *, teach: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The order (n,) in which to decide pairs (n, 2), and their corrected scores (n,).

    The best pair comes first; to `teach`, the one that tells most about all others. Without decisions, by score.
    """
    corrected = scores if learned is None else scores + scale * learned.logits(pairs)
    order = np.argsort(-corrected, kind="stable")
    if teach and learned is not None:
        first = order[:MOST_PAIRS]
        values = informative(learned, pairs[first], scores[first], scale)
        order = np.concatenate([first[np.argsort(-values, kind="stable")], order[MOST_PAIRS:]])
    return order, corrected
