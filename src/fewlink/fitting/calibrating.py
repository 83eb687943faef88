"""Fit a calibration: ask about held-out relations, and fit a logistic regression to the right and wrong answers.

The sample: pairs of each held-out relation are the references, some or all but the pairs that are asked about; the
candidates are those of the `open` protocol, and the best tails of each head are collected, right or wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph
from fewlink.linker.linker import Linker
from fewlink.linker.probability import (
    FEATURES,
    FEWEST,
    LOW_TRUST_FOUND,
    SIGNS,
    Bin,
    Calibration,
    MeasuredError,
    fit_logistic,
    head_fans,
    named,
    row_features,
    sigmoid,
)
from fewlink.linker.query import References, check_count
from fewlink.linker.ranking import rank_tails
from fewlink.linker.saving import check_not_saved
from fewlink.linker.trust import measure_trust
from fewlink.models.contract import GraphScorer, Question, Scorer, capabilities
from fewlink.tasks import Benchmark, Task
from fewlink.tasks.candidates import open_candidates

TOP = 10  # collected tails of each head
MAX_FOLDS = 50  # of cross-fitting: one for each relation, if that does not make more
FOLDS = 10  # otherwise
RIDGE = 0.3  # penalty beside the loss, in which each relation has the weight of one row
FIRST = 0.75  # share of the weight of a relation that its first answers have
MIN_RELATIONS = 8  # with fewer, the built-in calibration is kept and low trust is not defined
ASKED = 16  # pairs of a whole relation that are asked about
MOST_OF_LOW_TRUST = 0.3  # and the probability of first answers is below this at most
LOW_TRUST_HITS = 0.4  # and the hit rate is below this share of the others': safely below half
BINS = 10  # of a tenth each


def calibrate(
    run: str | Path | Linker,
    *,
    bench: str | Path | None = None,
    device: str = "cpu",
    shots: int | None = None,
    top: int = TOP,
) -> Calibration:
    """Calibrate a run on dev and write `calibration.json` into its folder; an opened linker uses it from then on."""
    opened = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    linker = as_measured(opened)
    if linker.run is not None:
        check_not_saved(linker.run)
    shots = linker.shots if shots is None else check_count(shots, "shots")
    calibration = calibrate_on_dev(linker.benchmark, linker.scorer, shots, check_count(top, "top"), linker.step)
    opened.calibration = linker.calibration = calibration
    if linker.run is not None:
        calibration.save(linker.run)
    return calibration


def as_measured(linker: Linker) -> Linker:
    """The linker on the benchmark that its run was measured on: itself, unless it answers on another graph."""
    if linker.measured is linker.benchmark or linker.run is None:
        return linker
    names = capabilities(linker.scorer).reads_names
    other = Linker.load(linker.run, bench=linker.measured, device=linker.device, as_measured=True, names=names)
    if other.step == linker.step:  # the run was not fitted again meanwhile
        other.calibration = linker.calibration
        other.shots = linker.shots
    return other


class Sample(NamedTuple):
    """Answers to questions about held-out relations.

    Shapes: `features` (n, FEATURES); `right` (n,) bool; `first` (n,) bool, whether the answer is the first of its head;
    `groups` (n,), the relation, or the head if there is only one relation; `found` (n,), the share of the held-out
    references in the first ten, 1 if none was held out; `shots` (n,), the number of references, 0 for a whole relation.
    """

    features: np.ndarray
    right: np.ndarray
    first: np.ndarray
    groups: np.ndarray
    found: np.ndarray
    shots: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Sample]) -> Sample:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, rows: np.ndarray) -> Sample:
        return Sample(*(column[rows] for column in self))


def calibrate_on_dev(
    benchmark: Benchmark,
    scorer: Scorer,
    shots: int,
    top: int,
    step: int,
    shipped: Calibration | None = None,
    until: float = math.inf,
) -> Calibration:
    """Calibrate a scorer, whose weights are those of `step`, on the dev relations of a benchmark.

    The `shipped` calibration is kept if there are few dev relations, or if its error on them is smaller; in the second
    case its errors are replaced by those measured here. No relation is started after `until`, a time of
    `time.monotonic`.
    """
    facts: dict[str, Any] = {"shots": shots, "top": top, "step": step, "benchmark": benchmark.fingerprint}
    if shipped is not None and len(_usable_tasks(benchmark, shots)) < MIN_RELATIONS:
        return replace(shipped, **facts)
    sample, relations = collect(benchmark, scorer, shots, top, until)
    if shipped is not None and relations < MIN_RELATIONS:
        return replace(shipped, **facts)
    own = fitted(sample, crossed="relation" if relations > 1 else "head", **facts)
    if shipped is None:
        return own
    by_shipped = _probabilities(np.array([shipped.weights.get(name, 0.0) for name in FEATURES]), sample.features)
    if over_relations(by_shipped, sample) > over_relations(cross_fitted(sample), sample):
        return own
    kept: dict[str, Any] = {"weights": shipped.weights, "least": shipped.least, "coverage": shipped.coverage}
    return replace(own, **kept, **_errors(by_shipped, sample))


def fitted(sample: Sample, probabilities: np.ndarray | None = None, **facts: Any) -> Calibration:
    """Fit a calibration to a sample; its errors are those of `probabilities` (n,), by default the cross-fitted ones."""
    crossed = cross_fitted(sample) if probabilities is None else probabilities
    weights = fit(sample)
    own = _probabilities(weights, sample.features)
    return Calibration(
        weights=named(weights),
        count=len(sample.right),
        base=float(sample.right.mean()),
        own_error=expected_error(own, sample.right),
        least=low_trust(crossed, sample)[0],
        **_errors(crossed, sample),
        **{"relations": len(np.unique(sample.groups)) if facts["crossed"] != "head" else 1, **facts},
    )


def _errors(probabilities: np.ndarray, sample: Sample) -> dict[str, Any]:
    """The errors and bins of probabilities (n,) from weights that were fitted without these rows."""
    first = probabilities[sample.first]
    right = sample.right[sample.first]
    return {
        "error": expected_error(probabilities, sample.right),
        "bins": reliability_bins(probabilities, sample.right),
        "first_error": expected_error(first, right),
        "first_bins": reliability_bins(first, right),
        "over_relations": over_relations(probabilities, sample),
        "by_references": by_references(probabilities, sample),
    }


def _usable_tasks(benchmark: Benchmark, shots: int) -> list[Task]:
    """The dev tasks that have queries besides their references."""
    return [task for task in benchmark.split("dev") if len(task.pairs) > shots]


def collect(benchmark: Benchmark, scorer: Scorer, shots: int, top: int, until: float = math.inf) -> tuple[Sample, int]:
    """Collect the best tails of dev heads; return them with the number of relations.

    Each relation is asked about with its first `shots` pairs as references and, if the model can hide relations of a
    graph, as a whole: `ASKED` pairs at most are asked about, and all others are references.
    """
    parts: list[Sample] = []
    numbers: list[int] = []
    for task in _usable_tasks(benchmark, shots):
        if parts and time.monotonic() >= until:
            break
        relation = numbers[-1] + 1 if numbers else 0
        references, queries = task.split(shots)
        heads = np.unique(queries[:, 0])
        parts.append(ask(benchmark.graph, scorer, references, heads, task.known_tails, top, task.name))
        asked = np.unique(task.pairs[:: max(2, len(task.pairs) // ASKED)], axis=0)
        rest = task.pairs[~(task.pairs[:, None] == asked).all(2).any(1)]
        if isinstance(scorer, GraphScorer) and len(rest) > shots:
            heads = np.unique(asked[:, 0])
            parts.append(ask(benchmark.graph, scorer, rest, heads, task.known_tails, top, task.name, whole=True))
        numbers += [relation] * (len(parts) - len(numbers))
    if len(set(numbers)) > 1:  # group by relation instead of by head
        parts = [part._replace(groups=np.full(len(part.right), at)) for at, part in zip(numbers, parts, strict=True)]
    if not sum(len(part.right) for part in parts):
        raise FewlinkError(
            f"{benchmark.name} has no dev relation with more than {shots} pairs to calibrate on: use fewer shots"
        )
    return Sample.joined(parts), len(set(numbers))


def ask(
    graph: Graph,
    scorer: Scorer,
    references: np.ndarray,
    heads: np.ndarray,
    known: Mapping[int, np.ndarray],
    top: int = TOP,
    relation: str = "",
    *,
    whole: bool = False,
) -> Sample:
    """The best tails of heads (h,) of a relation, given its references (K, 2) and known tails, grouped by head.

    If `whole`, the references stand for all known pairs of a relation of the graph.
    """
    question = References(tuple((head, tail) for head, tail in references.tolist()))
    trust = replace(measure_trust(scorer, graph, question), whole=whole)
    parts = []
    asked = Question(relation, question.ids, heads.astype(np.int32), open_candidates(graph, question.ids))
    for head, part in zip(heads.tolist(), rank_tails(scorer, asked, top, question.known_tails), strict=True):
        right = np.isin(part.tails, known[head])
        features = row_features(part, head_fans(graph, part.heads), trust)
        found = np.full(len(part), trust.share_found)
        shots = np.full(len(part), 0 if whole else trust.shots)
        parts.append(Sample(features, right, np.arange(len(part)) == 0, part.heads, found, shots))
    return Sample.joined(parts)


def fit(sample: Sample) -> np.ndarray:
    """The weights (FEATURES,) of maximum likelihood.

    All relations have equal weight, most of it in their first answers. A better rank must not be less probable, so
    weights of the wrong sign are set to 0 and the others are fitted again.
    """
    signs = np.array(list(SIGNS.values()))
    used = np.ones(len(signs), bool)
    while True:
        weights = np.zeros(len(signs))
        weights[used] = fit_logistic(sample.features[:, used], sample.right, row_weights(sample), RIDGE)
        wrong = weights * signs < 0
        if not wrong.any():
            return weights
        used &= ~wrong


def row_weights(sample: Sample) -> np.ndarray:
    """The weight of each row (n,): 1 per relation, a share `FIRST` of it for first answers if there are others."""
    weights = np.zeros(len(sample.right))
    groups, which = np.unique(sample.groups, return_inverse=True)
    both = np.bincount(which[~sample.first], minlength=len(groups)) > 0
    for first in (True, False):
        rows = sample.first == first
        counts = np.bincount(which[rows], minlength=len(groups))
        share = FIRST if first else 1 - FIRST
        weights[rows] = np.where(both, share, 1.0)[which[rows]] / counts[which[rows]]
    return weights


def cross_fitted(sample: Sample, folds: np.ndarray | None = None) -> np.ndarray:
    """The probability (n,) of each row by weights fitted without its relation, or without its fold (n,).

    With a single relation, heads take the place of relations; a single head gets the weights fitted to it.
    """
    if folds is None:
        groups, which = np.unique(sample.groups, return_inverse=True)
        folds = which % FOLDS if len(groups) > MAX_FOLDS else which
    probabilities = np.zeros(len(folds))
    for fold in np.unique(folds):
        held_out = folds == fold
        weights = fit(sample if held_out.all() else sample.take(~held_out))
        probabilities[held_out] = _probabilities(weights, sample.features[held_out])
    return probabilities


def of_first(probabilities: np.ndarray, sample: Sample) -> np.ndarray:
    """The probability (n,) of the first answer for the head of each row."""
    return np.asarray(probabilities[sample.first][np.cumsum(sample.first) - 1])


def low_trust(probabilities: np.ndarray, sample: Sample) -> tuple[float, np.ndarray]:
    """The threshold `least` of a calibration, and the rows (n,) of low trust.

    It is the highest threshold for which questions of low trust have clearly less than half the hit rate of the others;
    0 if there is none, or if there are few relations.
    """
    first = of_first(probabilities, sample)
    right = sample.right.astype(float)
    weights = row_weights(sample)
    if len(np.unique(sample.groups)) >= MIN_RELATIONS:
        for least in np.arange(MOST_OF_LOW_TRUST, 0.0, -0.02):
            low = (sample.found <= LOW_TRUST_FOUND) & (first < least)
            hidden = sample.first & low
            shown = sample.first & ~low
            if hidden.any() and shown.any():
                hidden_hits = np.average(right[hidden], weights=weights[hidden])
                shown_hits = np.average(right[shown], weights=weights[shown])
                if hidden_hits < LOW_TRUST_HITS * shown_hits:
                    return round(float(least), 2), low
    return 0.0, np.zeros(len(right), bool)


def over_relations(probabilities: np.ndarray, sample: Sample) -> float:
    """The mean over relations of |mean probability of first answers − their hit rate|.

    A relation that was asked about with several numbers of references counts once for each.
    """
    return float(np.abs(_differences(probabilities, sample)[0]).mean())


def chance(probabilities: np.ndarray, sample: Sample) -> float:
    """What `over_relations` owes to chance, because each relation has few questions: the mean of √(2/π) · s.

    s is the standard error of the mean of probability − hit over a relation's questions, and √(2/π) · s the mean of
    its absolute value.
    """
    return float(math.sqrt(2 / math.pi) * _differences(probabilities, sample)[1].mean())


def by_references(probabilities: np.ndarray, sample: Sample) -> tuple[MeasuredError, ...]:
    """`over_relations` by the number of references, if at least `MIN_RELATIONS` relations were asked about with it."""
    found = []
    for fewest, below in zip((0, *FEWEST), (*FEWEST, math.inf), strict=True):
        rows = (sample.shots >= fewest) & (sample.shots < below)
        part = sample.take(rows)
        own = probabilities[rows]
        if (count := len(np.unique(part.groups))) >= MIN_RELATIONS:
            found.append(MeasuredError(fewest, count, over_relations(own, part), chance(own, part)))
    return tuple(found)


def _differences(probabilities: np.ndarray, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """The mean of probability − hit over the first answers about a relation, and its standard error (0 for one answer).

    Both are arrays with a value for each relation and number of references.
    """
    apart = (probabilities - sample.right)[sample.first]
    keys = np.stack([sample.groups, sample.shots], 1)[sample.first]
    which = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(which)
    means = np.bincount(which, apart) / counts
    squares = np.bincount(which, (apart - means[which]) ** 2)
    return means, np.sqrt(squares / counts / np.maximum(counts - 1, 1))


def _probabilities(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return sigmoid(features @ weights)


def reliability_bins(predicted: np.ndarray, right: np.ndarray) -> tuple[Bin, ...]:
    """Sort predictions into bins of equal width, without the empty ones."""
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
