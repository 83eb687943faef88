"""Probabilities from scores: a logistic regression on dev predictions, with a cross-fitted calibration error.

The sample: for every dev relation the first K pairs are the references, the heads of its other pairs are the query
heads, the candidates are those of the `open` protocol, and the best tails of each head are collected, right or wrong.
So a probability is that of a pair among a head's best tails, for a head that has some tail.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.storage import read_json, write_json
from fewlink.data import Benchmark
from fewlink.prediction import pretrained
from fewlink.prediction.predictions import RankedPairs, rank_tails
from fewlink.prediction.query import References, open_candidates
from fewlink.scorers import Question, Scorer

FORMAT = "fewlink-calibration/1"
TOP = 10  # collected tails of each head
BINS = 10
FOLDS, MOST_FOLDS = (
    5,
    50,
)  # of cross-fitting: one for each relation, or FOLDS if there are more than MOST_FOLDS relations
RIDGE = 1.0  # penalty beside the summed loss: negligible for many rows, sufficient if all rows are right or all wrong
STEPS, TOLERANCE = 100, 1e-10  # of Newton's method
ROUGH = 0.15  # an expected calibration error above which predictions carry a note


class Sample(NamedTuple):
    """Predictions on dev. Shapes: all (n,); `right` bool; `groups` the relation, or the head, of each."""

    log_softmax: np.ndarray
    ranks: np.ndarray
    right: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability from `low` to `high`: how many, their mean, and the share of right ones."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """P(right) = 1/(1 + exp(−(w0 + w1 · log softmax + w2 · log rank))), fitted to `count` predictions on dev.

    `error` (expected calibration error) and `bins` are cross-fitted: each relation's probabilities come from weights
    fitted without it (`crossed` is `relation`, or `head` if dev has one relation). `own_error` is the error on the
    training rows: far less than `error` if relations differ much. `base` is the share of right predictions.
    `step` and `benchmark` identify what was calibrated.
    """

    weights: tuple[float, float, float]
    count: int
    base: float
    error: float
    own_error: float
    bins: tuple[Bin, ...]
    crossed: str
    relations: int
    shots: int
    top: int
    step: int
    benchmark: str

    def probabilities(self, log_softmax: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """From log softmax (n,) and ranks (n,); never higher for a worse rank of the same head."""
        return _probabilities(np.array(self.weights), _features(log_softmax, ranks))

    @property
    def rough(self) -> bool:
        """Whether the error on held-out relations is so large that probabilities give little more than an order."""
        return self.error > ROUGH

    def save(self, run: Path) -> Path:
        path = Path(run) / pretrained.CALIBRATION
        write_json(path, {"format": FORMAT, "candidates": "open", **asdict(self)})
        return path


def read_calibration(run: Path, benchmark: str, step: int) -> Calibration | None:
    """The calibration of a run; None if it has none, or one of another benchmark or checkpoint."""
    path = Path(run) / pretrained.CALIBRATION
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(path, f"is not of the format {FORMAT}: remove it and run fewlink card again")
    try:
        values: dict[str, Any] = {k: v for k, v in content.items() if k not in ("format", "candidates")}
        bins = tuple(Bin(**each) for each in values.pop("bins"))
        first, second, third = (float(w) for w in values.pop("weights"))
        calibration = Calibration(weights=(first, second, third), bins=bins, **values)
        valid = all(map(math.isfinite, calibration.weights))
    except (TypeError, KeyError, ValueError):
        valid = False
    if not valid:
        raise InputError(path, "is damaged: remove it and run fewlink card again")
    return calibration if (calibration.benchmark, calibration.step) == (benchmark, step) else None


def calibrate_on_dev(benchmark: Benchmark, scorer: Scorer, shots: int, top: int, step: int) -> Calibration:
    """The calibration of a scorer, whose weights are those of `step`, on the dev relations of a benchmark."""
    sample, relations = collect(benchmark, scorer, shots, top)
    crossed = cross_fitted(sample)
    weights = fit(sample)
    own = _probabilities(weights, _features(sample.log_softmax, sample.ranks))
    first, second, third = weights.tolist()
    return Calibration(
        weights=(first, second, third),
        count=len(sample.right),
        base=float(sample.right.mean()),
        error=expected_error(crossed, sample.right),
        own_error=expected_error(own, sample.right),
        bins=reliability_bins(crossed, sample.right),
        crossed="relation" if relations > 1 else "head",
        relations=relations,
        shots=shots,
        top=top,
        step=step,
        benchmark=benchmark.fingerprint,
    )


def collect(benchmark: Benchmark, scorer: Scorer, shots: int, top: int) -> tuple[Sample, int]:
    """The best tails of dev heads, whether each is right, and the number of relations."""
    tasks = [task for task in benchmark.split("dev") if len(task.pairs) > shots]
    parts, right, groups = [], [], []
    for number, task in enumerate(tasks):
        pairs, queries = task.split(shots)
        references = References(tuple((head, tail) for head, tail in pairs.tolist()))
        candidates = open_candidates(benchmark.graph, pairs)
        question = Question(task.name, pairs, np.unique(queries[:, 0]), candidates)
        for head, part in zip(
            question.heads.tolist(), rank_tails(scorer, question, top, references.known_tails), strict=True
        ):
            parts.append(part)
            right.append(np.isin(part.tails, task.known_tails[head]))
            groups.append(np.full(len(part), number if len(tasks) > 1 else head))
    if not sum(map(len, parts)):
        raise FewlinkError(f"{benchmark.name} has no dev relation of more than {shots} pairs to calibrate on")
    joined = RankedPairs.joined(parts)
    return Sample(joined.log_softmax, joined.ranks, np.concatenate(right), np.concatenate(groups)), len(tasks)


def fit(sample: Sample) -> np.ndarray:
    """The weights (3,) of maximum likelihood.

    A better rank must not be less probable: a weight of the wrong sign is set to 0 and the others are fitted again.
    """
    features, used = _features(sample.log_softmax, sample.ranks), np.array([True, True, True])
    while True:
        weights = np.zeros(3)
        weights[used] = _newton(features[:, used], sample.right)
        wrong = weights * np.array([0, 1, -1]) < 0
        if not wrong.any():
            return weights
        used &= ~wrong


def _newton(features: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The minimum of the log loss plus a ridge penalty, by Newton's method with step halving."""
    weights = np.zeros(features.shape[1])

    def loss(at: np.ndarray) -> float:
        logits = features @ at
        return float((np.logaddexp(0, logits) - right * logits).sum() + RIDGE / 2 * at @ at)

    for _ in range(STEPS):
        predicted = _probabilities(weights, features)
        gradient = features.T @ (predicted - right) + RIDGE * weights
        hessian = (features.T * (predicted * (1 - predicted))) @ features + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        before, size = loss(weights), 1.0
        while size > TOLERANCE and loss(weights - size * step) > before:
            size /= 2
        weights = weights - size * step
        if np.abs(size * step).max() < TOLERANCE:
            break
    return weights


def cross_fitted(sample: Sample) -> np.ndarray:
    """The probability (n,) of each row by weights fitted without its relation.

    With a single relation, heads take the place of relations; a single head is predicted by weights fitted to itself.
    """
    groups, which = np.unique(sample.groups, return_inverse=True)
    folds = which % FOLDS if len(groups) > MOST_FOLDS else which
    probabilities = np.zeros(len(folds))
    for fold in np.unique(folds):
        held_out = folds == fold
        rest = Sample(*(column[~held_out] for column in sample)) if not held_out.all() else sample
        features = _features(sample.log_softmax[held_out], sample.ranks[held_out])
        probabilities[held_out] = _probabilities(fit(rest), features)
    return probabilities


def reliability_bins(predicted: np.ndarray, right: np.ndarray) -> tuple[Bin, ...]:
    """Bins of equal width; empty ones are left out."""
    which = np.minimum((predicted * BINS).astype(int), BINS - 1)
    return tuple(
        Bin(
            round(i / BINS, 10),
            round((i + 1) / BINS, 10),
            int((which == i).sum()),
            float(predicted[which == i].mean()),
            float(right[which == i].mean()),
        )
        for i in np.unique(which).tolist()
    )


def expected_error(predicted: np.ndarray, right: np.ndarray) -> float:
    """Σ over bins of share · |mean probability − share of right predictions|."""
    bins = reliability_bins(predicted, right)
    return sum(b.count * abs(b.predicted - b.observed) for b in bins) / len(predicted)


def _features(log_softmax: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(log_softmax)), np.asarray(log_softmax, float), np.log(ranks)], 1)


def _probabilities(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -(features @ weights))))
