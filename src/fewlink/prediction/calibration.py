"""Probabilities from scores: a logistic regression of what was right on dev, and how far it can be trusted.

What is collected: of every dev relation the first K pairs are references, the heads of the others are asked about, the
candidates are those of the `open` protocol, and of each head the best tails are kept, right or wrong. So a probability
is that of a pair among a head's best tails, for a head that has some tail.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.storage import read_json, write_json
from fewlink.prediction import pretrained, query
from fewlink.prediction.ranking import Rows, ask, best
from fewlink.scorers import Question

if TYPE_CHECKING:
    from fewlink.prediction.linker import Linker

FORMAT = "fewlink-calibration/1"
TOP = 10  # tails of each head that are collected
BINS = 10
PARTS, MOST_PARTS = 5, 50  # of what is left out in turn
RIDGE = 1.0  # against the sum of all losses: nothing where there are many rows, enough where all are right or wrong
STEPS, ENOUGH = 100, 1e-10  # of Newton's method
ROUGH = 0.15  # an expected calibration error above which people are told


class Sample(NamedTuple):
    """What was predicted on dev. Shapes: all (n,); `right` bool; `groups` the relation, or the head, each is of."""

    chances: np.ndarray
    ranks: np.ndarray
    right: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability from `low` to `high`: how many, their mean, and the share that was right."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """P(right) = 1/(1 + exp(−(w0 + w1 · log softmax + w2 · log rank))), fitted to `count` predictions on dev.

    `error` (expected calibration error) and `bins` are cross-fitted: each relation's probabilities come from weights
    that were fitted without it (`crossed` says `relation`; `head` where dev has one relation). `own_error` is that of
    the rows it was fitted to: far less than `error` where relations differ much. `base` is the share that was right.
    `step` and `benchmark` say what was calibrated.
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

    def probabilities(self, chances: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """From log softmax (n,) and ranks (n,); never higher for a lower place of the same head."""
        return _probabilities(np.array(self.weights), _features(chances, ranks))

    @property
    def rough(self) -> bool:
        """Whether the error on relations that were left out is so large that probabilities say little but an order."""
        return self.error > ROUGH

    def save(self, run: Path) -> Path:
        path = Path(run) / pretrained.CALIBRATION
        write_json(path, {"format": FORMAT, "candidates": "open", **asdict(self)})
        return path


def read_calibration(run: Path, benchmark: str, step: int) -> Calibration | None:
    """The calibration of a run; None where it has none, or one of other weights than the best so far."""
    path = Path(run) / pretrained.CALIBRATION
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(path, f"is not of the format {FORMAT}: remove it; fewlink card makes it again")
    try:
        values: dict[str, Any] = {k: v for k, v in content.items() if k not in ("format", "candidates")}
        bins = tuple(Bin(**each) for each in values.pop("bins"))
        first, second, third = (float(w) for w in values.pop("weights"))
        found = Calibration(weights=(first, second, third), bins=bins, **values)
        sound = all(map(math.isfinite, found.weights))
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise InputError(path, "is damaged: remove it; fewlink card makes it again")
    return found if (found.benchmark, found.step) == (benchmark, step) else None


def calibrate(
    run: str | Path | Linker,
    *,
    bench: str | Path | None = None,
    device: str = "cpu",
    shots: int | None = None,
    top: int = TOP,
) -> Calibration:
    """Calibrate a run on dev and write `calibration.json` into its folder; an opened linker uses it from then on."""
    from fewlink.prediction.linker import Linker
    from fewlink.training.checkpoints import load_best

    given = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    linker = given.as_measured()
    if linker.run is not None:
        pretrained.refuse_saved(linker.run)
    shots, top = linker.shots if shots is None else query.check_count(shots, "shots"), query.check_count(top, "top")
    sample, relations = collect(linker, shots, top)
    step = load_best(linker.run)[1] if linker.run is not None else 0
    crossed = cross_fitted(sample)
    weights = fit(sample)
    own = _probabilities(weights, _features(sample.chances, sample.ranks))
    made = Calibration(
        weights=_three(weights),
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
        benchmark=linker.benchmark.fingerprint,
    )
    given.calibration = linker.calibration = made
    if linker.run is not None:
        made.save(linker.run)
    return made


def collect(linker: Linker, shots: int, top: int) -> tuple[Sample, int]:
    """The best tails of dev heads, whether each is right, and of how many relations they are."""
    tasks = [task for task in linker.benchmark.split("dev") if len(task.pairs) > shots]
    rows, right, groups = [], [], []
    for number, task in enumerate(tasks):
        references, queries = task.split(shots)
        heads = np.unique(queries[:, 0])
        among = query.candidates_for(linker.benchmark, linker.names, "open", references, None)
        known = query.known_tails(references, None)
        for place, scores in ask(linker.scorer, Question(task.name, references, heads, among)):
            head = int(heads[place])
            found = best(head, among, scores, known(head), top, with_known=False)
            rows.append(found)
            right.append(np.isin(found.tails, task.known_tails[head]))
            groups.append(np.full(len(found), number if len(tasks) > 1 else head))
    if not sum(map(len, rows)):
        raise FewlinkError(f"{linker.benchmark.name} has no dev relation of more than {shots} pairs to calibrate on")
    joined = Rows.joined(rows)
    return Sample(joined.chances, joined.ranks, np.concatenate(right), np.concatenate(groups)), len(tasks)


def fit(sample: Sample) -> np.ndarray:
    """The weights (3,) that make what was right most likely.

    A better place must not be less probable: a weight of the wrong sign is set to 0 and the others are fitted again.
    """
    features, used = _features(sample.chances, sample.ranks), np.array([True, True, True])
    while True:
        weights = np.zeros(3)
        weights[used] = _newton(features[:, used], sample.right)
        wrong = weights * np.array([0, 1, -1]) < 0
        if not wrong.any():
            return weights
        used &= ~wrong


def _newton(features: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The minimum of the log loss and a ridge, by Newton's method, each step halved until it helps."""
    weights = np.zeros(features.shape[1])

    def loss(at: np.ndarray) -> float:
        logits = features @ at
        return float((np.logaddexp(0, logits) - right * logits).sum() + RIDGE / 2 * at @ at)

    for _ in range(STEPS):
        chances = _probabilities(weights, features)
        slope = features.T @ (chances - right) + RIDGE * weights
        curve = (features.T * (chances * (1 - chances))) @ features + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curve, slope)
        before, size = loss(weights), 1.0
        while size > ENOUGH and loss(weights - size * step) > before:
            size /= 2
        weights = weights - size * step
        if np.abs(size * step).max() < ENOUGH:
            break
    return weights


def cross_fitted(sample: Sample) -> np.ndarray:
    """The probability (n,) of each row by weights that were fitted without its relation.

    Of a single relation, heads take the relations' place. More than 50 are left out in five parts; a single one cannot
    be left out and is predicted by its own.
    """
    groups, which = np.unique(sample.groups, return_inverse=True)
    parts = which % PARTS if len(groups) > MOST_PARTS else which
    result = np.zeros(len(parts))
    for part in np.unique(parts):
        own = parts == part
        rest = Sample(*(column[~own] for column in sample)) if not own.all() else sample
        result[own] = _probabilities(fit(rest), _features(sample.chances[own], sample.ranks[own]))
    return result


def reliability_bins(predicted: np.ndarray, right: np.ndarray) -> tuple[Bin, ...]:
    """Bins of the same width; empty ones are left out."""
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
    """Σ over bins of their share · |mean probability − share that was right|."""
    bins = reliability_bins(predicted, right)
    return sum(b.count * abs(b.predicted - b.observed) for b in bins) / len(predicted)


def _features(chances: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(chances)), np.asarray(chances, float), np.log(ranks)], 1)


def _probabilities(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -(features @ weights))))


def _three(weights: np.ndarray) -> tuple[float, float, float]:
    first, second, third = weights.tolist()
    return first, second, third
