"""Calibration: the fit converges, the error is held-out, and the file belongs to its weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import benchmark_of, quickly
from tests.prediction.linkers import REFERENCES, fsrl_run, umls

import fewlink
from fewlink.base.errors import FewlinkError
from fewlink.prediction import Calibration, Linker, calibrate
from fewlink.prediction.calibration import (
    RIDGE,
    Sample,
    collect,
    cross_fitted,
    expected_error,
    fit,
    read_calibration,
    reliability_bins,
)


def drawn(count: int, weights: tuple[float, float, float], seed: int = 0, relations: int = 5) -> Sample:
    """Rows that are right with the probability that these weights give."""
    random = np.random.default_rng(seed)
    log_softmax, ranks = -random.exponential(2, count), random.integers(1, 11, count).astype(float)
    logits = weights[0] + weights[1] * log_softmax + weights[2] * np.log(ranks)
    right = random.random(count) < 1 / (1 + np.exp(-logits))
    return Sample(log_softmax, ranks, right, random.integers(0, relations, count))


def test_the_weights_of_the_sample_are_recovered() -> None:
    sample = drawn(50_000, (1.0, 0.8, -0.5))
    np.testing.assert_allclose(fit(sample), [1.0, 0.8, -0.5], atol=0.06)
    assert expected_error(cross_fitted(sample), sample.right) < 0.02


def test_the_gradient_of_the_fit_is_zero() -> None:
    sample = drawn(300, (0.0, 0.5, -0.7), seed=3)
    weights = fit(sample)
    features = np.stack([np.ones(300), sample.log_softmax, np.log(sample.ranks)], 1)
    gradient = features.T @ (1 / (1 + np.exp(-features @ weights)) - sample.right) + RIDGE * weights
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


@pytest.mark.parametrize("right", [np.zeros(20, bool), np.ones(20, bool), np.arange(20) < 3, np.arange(20) >= 3])
def test_the_fit_does_not_diverge_on_separable_rows(right: np.ndarray) -> None:
    sample = Sample(-np.arange(20.0), 1.0 + np.arange(20), right, np.arange(20) % 2)
    weights = fit(sample)
    assert np.isfinite(weights).all() and np.abs(weights).max() < 20
    assert np.array_equal(weights, fit(sample))


@given(st.integers(0, 10_000), st.tuples(*[st.floats(-2, 2)] * 3))
def test_a_better_rank_is_never_less_probable(seed: int, weights: tuple[float, float, float]) -> None:
    first, second, third = fit(drawn(40, weights, seed)).tolist()
    assert second >= 0 and third <= 0
    calibration = Calibration((first, second, third), 40, 0.5, 0.0, 0.0, (), "relation", 5, 3, 10, 1, "")
    probabilities = calibration.probabilities(np.array([-0.1, -1.0, -30.0]), np.array([1.0, 2.5, 9.0]))
    assert probabilities.tolist() == sorted(probabilities, reverse=True)
    assert (probabilities >= 0).all() and (probabilities <= 1).all()


def test_the_expected_error_by_hand() -> None:
    predicted, right = np.array([0.05, 0.05, 0.95, 1.0]), np.array([False, True, True, True])
    low, high = reliability_bins(predicted, right)
    assert (low.low, low.high, low.count, low.observed) == (0.0, 0.1, 2, 0.5) and high.count == 2
    assert expected_error(predicted, right) == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)


def test_the_error_is_that_of_held_out_relations() -> None:
    # one relation with only right rows, one with only wrong rows: each is predicted by the other
    sample = Sample(np.zeros(200), np.ones(200), np.arange(200) < 100, (np.arange(200) < 100).astype(int))
    crossed = cross_fitted(sample)
    assert (crossed[:100] < 0.1).all() and (crossed[100:] > 0.9).all()
    assert expected_error(crossed, sample.right) > 0.9


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(fsrl_run(), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_keeps_its_calibration_on_dev(run: Path) -> None:
    before = Linker.load(run)
    assert before.predict(REFERENCES, ["alga"], 1)[0].probability is None
    with quickly():
        made = fewlink.calibrate(run)
    assert made.relations == len(umls().split("dev")) and made.crossed == "relation" and 0 <= made.error <= 1
    assert sum(b.count for b in made.bins) == made.count and 0 < made.base < 1
    linker = Linker.load(run)
    assert linker.calibration == made and made.own_error < made.error
    notes = linker.predict(REFERENCES, ["alga"], 1).notes
    assert made.rough == (made.error > 0.15) == any("probabilities are rough" in note for note in notes)
    rows = linker.predict(REFERENCES, ["alga"], 5)
    probabilities = [row.probability for row in rows]
    assert all(probability is not None and 0 <= probability <= 1 for probability in probabilities)
    assert probabilities == sorted(probabilities, key=lambda probability: -(probability or 0))
    pairs = linker.predict_pairs(REFERENCES, ["alga", "virus", "human"], 6)
    assert [r.probability for r in pairs] == sorted((r.probability or 0 for r in pairs), reverse=True)


def test_only_dev_is_used_and_references_are_not_counted() -> None:
    whole, linker = umls(), Linker.load(fsrl_run())
    dev = whole.split("dev")[:1]
    linker.benchmark = benchmark_of(whole.graph, dev=dev)
    sample, relations = collect(linker.benchmark, linker.scorer, 3, 10)
    heads = {int(head) for head, _ in dev[0].pairs[3:]}
    assert relations == 1 and set(sample.groups.tolist()) == heads and len(sample.right) <= 10 * len(heads)
    made = calibrate(without_run(linker))
    assert made.crossed == "head" and made.step == 0
    linker.benchmark = benchmark_of(whole.graph, test=dev)
    with pytest.raises(FewlinkError, match="no dev relation of more than 3 pairs"):
        collect(linker.benchmark, linker.scorer, 3, 10)


def without_run(linker: Linker) -> Linker:
    """The same linker without a folder, so that nothing is written."""
    return Linker(linker.benchmark, linker.scorer)


def test_a_calibration_of_other_weights_is_ignored_and_a_damaged_one_raises(run: Path) -> None:
    with quickly():
        made = calibrate(run)
        replace(made, step=made.step + 1).save(run)
    assert Linker.load(run).calibration is None
    path = run / "calibration.json"
    whole = json.loads(path.read_text())
    for broken in ([], {**whole, "format": "x"}, {**whole, "weights": [1, 2]}, {**whole, "more": 1}, {"format": 1}):
        path.write_text(json.dumps(broken))
        with pytest.raises(FewlinkError, match=r"calibration\.json"):
            read_calibration(run, made.benchmark, made.step)
    path.write_text(json.dumps({**whole, "weights": [1, 2, float("inf")]}))
    with pytest.raises(FewlinkError, match="damaged"):
        read_calibration(run, made.benchmark, made.step)
