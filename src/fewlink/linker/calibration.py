"""Calibration: a logistic regression on held-out relations that turns scores into probabilities, and its errors.

The sample: pairs of each held-out relation are the references, some or all but the pairs that are asked about; the
candidates are those of the `open` protocol, and the best tails of each head are collected, right or wrong. So a
probability applies to the best tails of a head that has some tail. Besides scores, the regression reads the `Trust` of
the question: how many references it has, how many of them are found when they are held out, and what else is known.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from inspect import get_annotations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.core.files import read_json, with_sha256, without_sha256, write_json
from fewlink.graph import Graph
from fewlink.linker.answer_sets import Coverage
from fewlink.linker.logistic import fit_logistic
from fewlink.linker.predictions import TrustNote
from fewlink.linker.query import References
from fewlink.linker.ranking import RankedPairs, rank_tails
from fewlink.linker.trust import (
    FEATURES,
    SIGNS,
    Bin,
    HeadFans,
    Trust,
    Weights,
    expected_error,
    logits,
    measure_trust,
    named,
    no_percentages,
    reliability_bins,
    row_features,
    trust_note,
)
from fewlink.models.contract import GraphScorer, Question, Scorer
from fewlink.models.folder import CALIBRATION, deployment_id, list_optional_files, run_id
from fewlink.tasks import Benchmark, Task
from fewlink.tasks.candidates import open_candidates

Fields = TypeVar("Fields")
FORMAT = "fewlink-calibration/2"
FILE_FACTS = ("format", "candidates", "run", "deployed")  # not fields of `Calibration`
BUILT_IN = "trail.calibration.json"
TOP = 10  # collected tails of each head
FOLDS = 10
MAX_FOLDS = 50  # of cross-fitting: one for each relation, or FOLDS if that makes more than MAX_FOLDS
RIDGE = 0.3  # penalty beside the loss, in which each relation has the weight of one row
FIRST = 0.75  # share of the weight of a relation that its first answers have
ROUGH = 0.3  # with a larger error, no percentages are shown
MIN_RELATIONS = 8  # with fewer, the built-in calibration is kept and low trust is not defined
FEWEST = (1, 2, 6, 20, 65)  # references, from which errors are measured separately
ASKED = 16  # pairs of a whole relation that are asked about
LOW_TRUST_FOUND = 0.5  # with low trust, at most this share of the references is found
MOST_OF_LOW_TRUST = 0.3  # and the probability of first answers is below this at most
LOW_TRUST_HITS = 0.4  # and the hit rate is below this share of the others': safely below half


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


@dataclass(frozen=True)
class MeasuredError:
    """The error of percentages with at least `fewest` references of a new relation; 0 stands for a whole relation.

    `measured` is the mean over so many `relations` of |mean probability of first answers − their hit rate|. It owes
    `chance` to the few questions about each.
    """

    fewest: int
    relations: int
    measured: float
    chance: float

    @property
    def error(self) -> float:
        """What remains without chance: √(measured² − chance²)."""
        return math.sqrt(max(self.measured**2 - self.chance**2, 0.0))


@dataclass(frozen=True)
class Calibration:
    """P(right) = 1/(1 + exp(−Σ weight · feature)), fitted to `count` answers on held-out relations.

    All errors and bins are cross-fitted: each relation's probabilities come from weights fitted without it.

    weights                  of the features, by name
    count, base              the number of answers, and the share of right ones
    error, bins              expected calibration error of the best `top` answers of each head
    own_error                the same on the rows that the weights were fitted to
    first_error, first_bins  the same for first answers only
    over_relations           mean over relations of |mean probability of first answers − their hit rate|
    crossed                  what was left out in turn: `relation`, `graph`, or `head` if there is only one relation
    relations, shots, top    of the sample: relations, references of each, answers collected for each head
    step, benchmark          identify the weights and the data that were calibrated
    least                    trust is low if at most half of the references are found and the probability of first
                             answers is below this
    coverage                 gives the sizes of answer sets; None if there are none
    by_references            `over_relations` by the number of references, where it was measured
    """

    weights: Weights
    count: int
    base: float
    error: float
    own_error: float
    bins: tuple[Bin, ...]
    first_error: float
    first_bins: tuple[Bin, ...]
    over_relations: float
    crossed: str
    relations: int
    shots: int
    top: int
    step: int
    benchmark: str
    least: float = 0.0
    coverage: Coverage | None = None
    by_references: tuple[MeasuredError, ...] = ()

    def probabilities(self, pairs: RankedPairs, fans: np.ndarray, trust: Trust | None = None) -> np.ndarray:
        """The probabilities (n,) of ranked pairs, never higher for a worse rank; `fans` (n,) are those of heads."""
        return _sigmoid(logits(self.weights, pairs, fans, trust))

    def note(self, trust: Trust | None, first: float, missing: str = "", error: float | None = None) -> TrustNote:
        """How far to trust the answers to a question; `first` is the mean probability of its first answers.

        `missing` says why no answer has a probability, if none has. `error` is that of the probabilities if they were
        recalibrated.
        """
        if missing:
            return TrustNote(False, False, no_percentages(missing))
        low = trust is not None and not trust.whole and trust.share_found <= LOW_TRUST_FOUND and first < self.least
        error = self.error_for(trust) if error is None else error
        return trust_note(trust, low, error, error > ROUGH)

    def error_for(self, trust: Trust | None) -> float:
        """The error measured with as many references as a question has; the error of all if that was not measured."""
        if trust is None:
            return self.measured_error
        fewest = 0 if trust.whole else max(each for each in FEWEST if each <= max(trust.shots, 1))
        found = [each.error for each in self.by_references if each.fewest == fewest]
        return found[0] if found else self.measured_error

    @property
    def measured_error(self) -> float:
        """The larger error of first answers, by rows or over relations: it decides whether percentages are shown."""
        return max(self.first_error, self.over_relations)

    @property
    def rough(self) -> bool:
        """Whether the error is too large to show percentages."""
        return self.measured_error > ROUGH

    def save(self, run: Path) -> Path:
        """Write the calibration into a run folder and list it in the run's configuration."""
        run = Path(run)
        self.write(run / CALIBRATION, run_id(run), deployment_id(run))
        list_optional_files(run)
        return run / CALIBRATION

    def write(self, path: Path, run: str = "", deployed: str = "") -> None:
        """Write a file with a checksum; `run` and `deployed` are the ids of the calibrated run and of its scorer."""
        facts = {"format": FORMAT, "candidates": "open", "run": run}
        if deployed:
            facts["deployed"] = deployed
        write_json(path, with_sha256({**facts, **asdict(self)}))


def read_calibration(run: Path, benchmark: str, step: int) -> Calibration | None:
    """The calibration of a run; None if it has none for this benchmark, step and scorer."""
    path = Path(run) / CALIBRATION
    if not path.exists():
        return None
    calibration = open_calibration(path, run_id(Path(run)))
    mine = deployment_id(Path(run))
    other = read_json(path).get("deployed")
    if mine and other and mine != other:
        return None
    return calibration if (calibration.benchmark, calibration.step) == (benchmark, step) else None


def calibration_of(run: Path, benchmark: Benchmark, step: int) -> Calibration | None:
    """The calibration of a run on its benchmark, or on an earlier version that the benchmark was extended from."""
    fingerprints = (benchmark.fingerprint, *benchmark.extended_from)
    found = (read_calibration(run, fingerprint, step) for fingerprint in fingerprints)
    return next((calibration for calibration in found if calibration is not None), None)


def open_calibration(path: Path, run: str = "") -> Calibration:
    """Read a calibration; raise if it belongs to another run than the one with the id `run`."""
    content = read_json(path)
    remedy = "remove it and run fewlink card again"
    file_format = content.get("format") if isinstance(content, dict) else None
    if file_format != FORMAT:
        raise wrong_format(path, file_format, FORMAT, remedy)
    content = without_sha256(content, path, remedy=remedy)
    if run and content.get("run") not in (run, "", None):
        raise InputError(path, f"belongs to another run ({content['run']}, not {run}): {remedy}")
    with reading(path, remedy):
        values: dict[str, Any] = {k: v for k, v in content.items() if k not in FILE_FACTS}
        values["weights"] = {name: float(weight) for name, weight in values["weights"].items()}
        values["by_references"] = tuple(_made(MeasuredError, each) for each in values.get("by_references", ()))
        if values.get("coverage") is not None:
            a, b, c, d = map(float, values["coverage"]["weights"])
            values["coverage"] = Coverage((a, b, c, d))
        for bins in ("bins", "first_bins"):
            values[bins] = tuple(_made(Bin, each) for each in values[bins])
        calibration = _made(Calibration, values)
        weights = [calibration.weights["constant"], *calibration.weights.values()]
        weights += [calibration.least, calibration.measured_error]
        weights += calibration.coverage.weights if calibration.coverage else ()
        weights += [each.error for each in calibration.by_references]
        if not all(map(math.isfinite, weights)):
            raise ValueError("a weight is not finite")
    return calibration


def _made(kind: type[Fields], values: dict[str, Any]) -> Fields:
    """An object of these fields. Its floats are floats: numpy does not compute with the large integers of JSON."""
    floats = {name for name, type in get_annotations(kind).items() if type == "float"}
    return kind(**{name: float(value) if name in floats else value for name, value in values.items()})


@functools.cache
def shipped_calibration() -> Calibration | None:
    """The calibration of the built-in weights, fitted on relations of graphs that these weights never saw."""
    entry = files("fewlink") / "builtin" / BUILT_IN
    with as_file(entry) as path:
        return open_calibration(path) if path.exists() else None


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
    first, right = probabilities[sample.first], sample.right[sample.first]
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
    fans = HeadFans(graph)
    parts = []
    asked = Question(relation, question.ids, heads.astype(np.int32), open_candidates(graph, question.ids))
    for head, part in zip(heads.tolist(), rank_tails(scorer, asked, top, question.known_tails), strict=True):
        right = np.isin(part.tails, known[head])
        features = row_features(part, fans[part.heads], trust)
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
    """Of the first answers about each relation with each number of references: the mean of probability − hit, and its
    standard error, 0 for a single answer."""
    apart = (probabilities - sample.right)[sample.first]
    keys = np.stack([sample.groups, sample.shots], 1)[sample.first]
    which = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(which)
    means = np.bincount(which, apart) / counts
    squares = np.bincount(which, (apart - means[which]) ** 2)
    return means, np.sqrt(squares / counts / np.maximum(counts - 1, 1))


def _probabilities(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return _sigmoid(features @ weights)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -values)))
