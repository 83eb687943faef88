"""Logistic regression with a ridge penalty around prior weights."""

from __future__ import annotations

import numpy as np

MAX_STEPS = 100
TOLERANCE = 1e-10  # of Newton's method


def fit_logistic(
    features: np.ndarray,
    right: np.ndarray,
    counts: np.ndarray,
    ridge: float,
    towards: np.ndarray | None = None,
    offsets: np.ndarray | float = 0.0,
) -> np.ndarray:
    """The weights (f,) that minimise weighted log loss plus ridge / 2 · |weights − towards|², by Newton's method.

    Shapes: `features` (n, f); `right` (n,) bool; `counts` (n,), the weights of rows; `towards` (f,), by default 0;
    `offsets` (n,) are added to the logits.
    """
    centre = np.zeros(features.shape[1]) if towards is None else towards
    weights = centre.copy()

    def loss(at: np.ndarray) -> float:
        logits = features @ at + offsets
        apart = at - centre
        return float((counts * (np.logaddexp(0, logits) - right * logits)).sum() + ridge / 2 * apart @ apart)

    for _ in range(MAX_STEPS):
        predicted = np.exp(-np.logaddexp(0, -(features @ weights + offsets)))
        gradient = features.T @ (counts * (predicted - right)) + ridge * (weights - centre)
        hessian = (features.T * (counts * predicted * (1 - predicted))) @ features + ridge * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        before = loss(weights)
        size = 1.0
        while size > TOLERANCE and loss(weights - size * step) > before:
            size /= 2
        weights = weights - size * step
        if np.abs(size * step).max() < TOLERANCE:
            break
    return weights
