"""Logistic regression: the gradient is zero at the weights, and a strong penalty keeps what was given."""

from __future__ import annotations

import numpy as np

from fewlink.linker.probability import fit_logistic


def test_the_gradient_is_zero() -> None:
    random = np.random.default_rng(0)
    features, counts = random.normal(size=(50, 3)), random.random(50)
    right, towards = random.random(50) < 0.4, np.array([0.5, -1.0, 2.0])
    weights = fit_logistic(features, right, counts, 2.0, towards)
    predicted = 1 / (1 + np.exp(-features @ weights))
    assert np.allclose(features.T @ (counts * (predicted - right)) + 2.0 * (weights - towards), 0, atol=1e-8)
    assert np.allclose(fit_logistic(features, right, counts, 1e9, towards), towards, atol=1e-6)


def test_separable_data_stay_finite() -> None:
    features = np.array([[1.0, -1.0], [1.0, 1.0]])
    assert np.isfinite(fit_logistic(features, np.array([False, True]), np.ones(2), 1e-3)).all()
