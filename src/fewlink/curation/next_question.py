"""The next pair to decide: the one whose answer tells most about all others (uncertainty × influence)."""

from __future__ import annotations

import numpy as np

from fewlink.curation.learning import SCALE, Learned

LIKELY = 12.0  # a score of TRAIL's at which a pair is as likely true as not
MOST_PAIRS = 600  # pairs that are weighed against each other


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
