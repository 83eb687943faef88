"""Costs of units of work: averages of observed times, and bounds for sizes that were not observed."""

from __future__ import annotations

import math

import pytest

from fewlink.server.cost import DOWN, UP, CostModel


def test_the_cost_of_an_observed_size_is_a_moving_average() -> None:
    costs = CostModel()
    assert costs.unit("head", 100, default=7.0) == 7.0
    costs.observe("head", 100, 10, 2.0)
    assert costs.unit("head", 100) == pytest.approx(0.2)
    costs.observe("head", 100, 1, 0.1)
    assert costs.unit("head", 100) == pytest.approx(0.2 - DOWN * 0.1)
    costs.observe("head", 100, 1, 1.15)
    assert costs.unit("head", 100) == pytest.approx(0.15 + UP * 1.0)


def test_other_sizes_are_bounded_by_the_observed_ones() -> None:
    costs = CostModel()
    costs.observe("head", 1_024, 1, 1.0)
    assert costs.unit("head", 16) == 1.0  # a smaller one costs at most as much
    assert costs.unit("head", 4_096) == 4.0  # a larger one at most in proportion
    costs.observe("head", 1 << 20, 1, 3.0)
    assert costs.unit("head", 1 << 15) == 3.0
    assert costs.unit("head", 2_048) == 2.0
    assert costs.unit("other", 16, default=0.5) == 0.5


def test_useless_observations_are_ignored() -> None:
    costs = CostModel()
    costs.observe("head", 8, 0, 1.0)
    costs.observe("head", 8, 1, math.inf)
    assert costs.unit("head", 8, default=9.0) == 9.0
    costs.observe("head", 8, 1, -1.0)
    assert costs.unit("head", 8, default=9.0) == 0.0
