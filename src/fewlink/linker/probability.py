"""Probabilities: a logistic regression turns scores and trust into probabilities, and decisions adjust them.

A probability applies to the best tails of a head that has some tail. Besides scores, the regression reads the `Trust`
of the question: how many references it has, how many of them are found when they are held out, and what else is known.
`fewlink.fitting.calibrating` fits it to relations that were held out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from inspect import get_annotations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fewlink.core.errors import InputError, reading, wrong_format
from fewlink.core.files import read_json, with_sha256, without_sha256, write_json
from fewlink.curation.store import KINDS, Decision
from fewlink.graph import Graph
from fewlink.linker.query import Adjustment, logits_of
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import MANY_CANDIDATES, Trust, TrustNote, no_percentages, trust_note
from fewlink.models.folder import CALIBRATION, deployment_id, list_optional_files, run_id
from fewlink.tasks import Benchmark

Fields = TypeVar("Fields")
FORMAT = "fewlink-calibration/2"
FILE_FACTS = ("format", "candidates", "run", "deployed")  # not fields of `Calibration`
BUILT_IN = "trail.calibration.json"
ROUGH = 0.3  # with a larger error, no percentages are shown
FEWEST = (1, 2, 6, 20, 65)  # references, from which errors are measured separately
LOW_TRUST_FOUND = 0.5  # with low trust, at most this share of the references is found
MAX_LOG_ODDS = 5.0  # beyond which the odds of the softmax make no difference, in either direction twice as far below
PRIOR = 3.0  # references that must be held out for their share to count half
USUALLY_OUTSIDE = 0.3  # the share outside that is assumed if no reference was held out

# The features of the regression, and the sign of each weight that keeps a better rank at least as probable.
# Those of a whole relation of the graph are 0 for other questions, and all others are 0 for a whole relation.
SIGNS = {
    "constant": 0,
    "log softmax, tails": 1,  # log softmax + log(tails that the head has in each relation), at most 0
    "lead": 1,  # over the background, which right tails do not share in, however many a head has
    "lead, found": 1,  # times the next
    "found in ten": 0,  # the share of held-out references in the first ten
    "outside": 0,  # the share of held-out references whose tails are no candidates
    "skew": 0,
    "domain": 0,  # log10 of the entities like the references' heads
    "few candidates": 0,  # from 1 for a single candidate to 0 for `MANY_CANDIDATES`
    "log odds, few candidates": 1,  # of the softmax, times the one before
    "whole": 0,
    "log odds, whole": 1,  # of the softmax over the candidates
    "found first, whole": 0,  # log odds that a held-out reference has rank 1
}
FEATURES = tuple(SIGNS)
Weights = Mapping[str, float]
Columns = Mapping[str, np.ndarray | float]


def head_fans(graph: Graph, heads: np.ndarray, hidden: int | None = None) -> np.ndarray:
    """The logarithm of the mean number of edges per relation of each head (n,), without those of a `hidden` relation,
    which the model does not see."""
    own, which = np.unique(heads, return_inverse=True)
    firsts, counts, owners = graph.slots_of(own)
    if hidden is not None:
        kept = graph.relation_ids[firsts] % len(graph.relations) != hidden
        counts = counts[kept]
        owners = owners[kept]
    slots = np.bincount(owners, minlength=len(own))
    edges = np.bincount(owners, counts, len(own))
    return np.asarray(np.log(np.maximum(edges, 1) / np.maximum(slots, 1)))[which]


def row_features(pairs: RankedPairs, fans: np.ndarray, trust: Trust | None) -> np.ndarray:
    """The features (n, FEATURES) of ranked pairs; `fans` (n,) are those of their heads."""
    return _matrix(_columns(pairs, fans, trust or Trust(0)), FEATURES, len(pairs))


def logits(weights: Weights, pairs: RankedPairs, fans: np.ndarray, trust: Trust | None) -> np.ndarray:
    """The logits (n,) that weights give to ranked pairs."""
    matrix = _matrix(_columns(pairs, fans, trust or Trust(0)), tuple(weights), len(pairs))
    return np.asarray(matrix @ np.array([*weights.values()]))


def _matrix(columns: Columns, names: tuple[str, ...], rows: int) -> np.ndarray:
    matrix = np.zeros((rows, len(names)))
    for place, name in enumerate(names):
        matrix[:, place] = columns.get(name, 0.0)
    return matrix


def _columns(pairs: RankedPairs, fans: np.ndarray, trust: Trust) -> Columns:
    if trust.whole:
        odds = log_odds(pairs.log_softmax)
        return {"constant": 1.0, "whole": 1.0, "log odds, whole": odds, "found first, whole": _found_first(trust)}
    found = (trust.found() + 0.5) / (trust.tested + 1)
    outside = trust.ranks.count(np.inf)
    few = max(0.0, 1 - float(np.log(max(trust.candidates, 1)) / np.log(MANY_CANDIDATES)))
    return {
        "constant": 1.0,
        "log softmax, tails": np.minimum(0, pairs.log_softmax + fans),
        "lead": pairs.leads,
        "lead, found": found * pairs.leads,
        "found in ten": found,
        "outside": (outside + USUALLY_OUTSIDE) / (trust.tested + 1),
        "skew": trust.skew,
        "domain": np.log10(max(trust.domain, 1)),
        "few candidates": few,
        "log odds, few candidates": few * log_odds(pairs.log_softmax),
    }


def log_odds(log_softmax: np.ndarray) -> np.ndarray:
    """log p / (1 − p) of probabilities given as logarithms (n,), at most `MAX_LOG_ODDS` and at least −2 of it."""
    others = np.log1p(-np.exp(np.minimum(log_softmax, -1e-9)))
    return np.asarray(np.clip(log_softmax - others, -2 * MAX_LOG_ODDS, MAX_LOG_ODDS))


def _found_first(trust: Trust) -> float:
    """The log odds that a held-out reference has rank 1, shrunk towards 0 if few were tested."""
    found = trust.found(1)
    tested = trust.tested
    return float(np.log((found + 0.5) / (tested - found + 0.5)) * tested / (tested + PRIOR))


def named(weights: np.ndarray) -> Weights:
    """An array of weights (FEATURES,) by name."""
    return dict(zip(FEATURES, weights.tolist(), strict=True))


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability from `low` to `high`: their count, mean probability and share of right ones."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class MeasuredError:
    """The error of percentages with at least `fewest` references of a new relation; 0 stands for a whole relation.

    `measured` is the mean over `relations` relations of |mean probability of first answers − their hit rate|. It owes
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
        return sigmoid(logits(self.weights, pairs, fans, trust))

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
    remedy = "remove it and calibrate the run again (fewlink.calibrate)"
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
    """An object with these fields. Whole numbers of float fields become floats: numpy fails on large ones."""
    floats = {name for name, type in get_annotations(kind).items() if type == "float"}
    return kind(**{name: float(value) if name in floats else value for name, value in values.items()})


@functools.cache
def shipped_calibration() -> Calibration | None:
    """The calibration of the built-in weights, fitted on relations of graphs that these weights never saw."""
    entry = files("fewlink") / "builtin" / BUILT_IN
    with as_file(entry) as path:
        return open_calibration(path) if path.exists() else None


def sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -values)))


# Answer sets

LEVELS = (0.5, 0.8, 0.9)  # probabilities that a set holds the answer
LONGEST = 20  # answer set: a longer one helps no reader
MIN_FIRST = 1e-4  # of a first answer; the log odds of smaller ones make no difference
SHARES = {0.5: "half", 0.8: "8 of 10", 0.9: "9 of 10"}
IN_WORDS = {0.5: "half of such questions", 0.8: "8 of 10 such questions", 0.9: "9 of 10 such questions"}
UNLIKELY = 0.2  # if the first answer is less probable, the sentence says that it is probably wrong


@dataclass(frozen=True)
class Coverage:
    """How probably a right answer is among the first ones; `weights` are a, b, c and d."""

    weights: tuple[float, float, float, float]

    def probabilities(self, first: np.ndarray) -> np.ndarray:
        """The probabilities (n, LONGEST) that the first 1, 2, … answers contain a right one, given that (n,) of the
        first answer."""
        logits = np.stack(
            [coverage_features(first, size) @ np.array(self.weights) for size in range(1, LONGEST + 1)], 1
        )
        return np.asarray(np.exp(-np.logaddexp(0, -logits)))

    def sizes(self, first: np.ndarray, level: float) -> np.ndarray:
        """The sizes (n,) of the sets at a level, 0 for none, given the probability of the first answer (n,)."""
        enough = self.probabilities(first) >= level
        return np.where(enough.any(1), enough.argmax(1) + 1, 0)


@dataclass(frozen=True)
class AnswerSet:
    """The answer set of one query entity (`asked`): its first `size` answers contain a right one at this `level`.

    If `unlikely`, the first answer is probably wrong.
    """

    asked: str
    asked_name: str
    size: int
    level: float
    unlikely: bool
    sentence: str


def answer_set(
    coverage: Coverage, asked: tuple[str, str], first: float, candidates: int, shown: int, what: str = "tail"
) -> AnswerSet | None:
    """The answer set of one query entity, by id and name, whose first `shown` answers are listed.

    It has the highest level whose set is fully listed, or the highest level of all; None if no level is reached.
    `first` is the probability of the first answer, and `what` the kind of answers: tails or heads.
    """
    sizes = {level: int(coverage.sizes(np.array([first]), level)[0]) for level in LEVELS}
    sizes = {level: size for level, size in sizes.items() if 0 < size <= candidates}
    if not sizes:
        return None
    top = max(sizes)
    level = max((level for level, size in sizes.items() if size <= shown), default=top)
    size = sizes[level]
    unlikely = first < UNLIKELY
    which = f"the first {what} is" if size == 1 else f"one of the first {size} {what}s is"
    sentence = f"{which} right in {IN_WORDS[level]}"
    if level < top:
        sentence += f"; for {SHARES[top]} it takes the first {sizes[top]}"
    if unlikely:
        sentence = f"the first {what} is probably wrong: {sentence}"
    return AnswerSet(*asked, size, level, unlikely, sentence)


def answer_sets(
    coverage: Coverage | None,
    graph: Graph,
    asked: np.ndarray,
    probabilities: np.ndarray,
    new: np.ndarray,
    candidates: int,
    what: str = "tail",
) -> tuple[AnswerSet, ...]:
    """The answer sets of the query entities that have one, given n ranked pairs.

    Shapes, all (n,): `asked`, the query entities; `probabilities`; `new`, whether the pair is not known.
    """
    if coverage is None:
        return ()
    sets = []
    for entity in dict.fromkeys(asked.tolist()):
        rows = np.flatnonzero((asked == entity) & new)
        if len(rows):
            named = graph.entities[entity], graph.name(entity)
            sets.append(answer_set(coverage, named, float(probabilities[rows].max()), candidates, len(rows), what))
    return tuple(each for each in sets if each is not None)


def coverage_features(first: np.ndarray, size: int) -> np.ndarray:
    """1, z, log s and z · log s of each question (n, 4)."""
    limited = np.clip(first, MIN_FIRST, 1 - MIN_FIRST)
    odds = np.log(limited / (1 - limited))
    log_size = np.log(size)
    return np.stack([np.ones(len(first)), odds, np.full(len(first), log_size), odds * log_size], 1)


# Adjustment to the decisions of a project

PRIOR_SHIFT = 0.0  # without decisions, probabilities stay as they are
PRIOR_MORE = -0.5  # a head with a true tail is less likely to have another
PRIOR_STRENGTHS = 2.5, 2.5  # ridge penalties on the differences from the prior
LAST = 20  # decisions that count: earlier probabilities are of a model with fewer references


@dataclass(frozen=True)
class ProjectReading:
    """The pairs of a project that a query uses, accepted ones among its `references`, and the adjustment that its
    decisions make to probabilities."""

    name: str
    references: tuple[tuple[str, str], ...]
    rejected: tuple[tuple[str, str], ...]
    adjustment: Adjustment | None
    lacking: tuple[tuple[str, str], ...] = ()  # pairs with entities that the graph lacks; not used

    def notes(self, adjusted: bool) -> list[str]:
        """Notes for the reader of answers; `adjusted` says whether their probabilities are adjusted."""
        notes = []
        if self.adjustment and adjusted:
            notes.append(self.adjustment.sentence(self.name))
        if self.lacking:
            notes.append(lacking_note(self.lacking))
        return notes

    def answered(self) -> set[str]:
        """The heads that have a true tail."""
        return {head for head, _ in self.references}

    @classmethod
    def of(cls, file: str | Path, name: str | None = None) -> ProjectReading:
        """Read a project; its name is needed if the file has several projects."""
        from fewlink.curation.store import ProjectFile

        with ProjectFile(file, write=False) as opened:
            chosen = opened.only(name)
            states = opened.decisions(chosen)
        pairs = {kind: [state.pair for state in states if state.kind == kind] for kind in KINDS}
        references = (*pairs["reference"], *pairs["accepted"])
        return cls(chosen, references, tuple(pairs["rejected"]), adjustment_of(states))


def lacking_note(pairs: Sequence[tuple[str, str]]) -> str:
    """The note on decisions whose entities the graph lacks."""
    few = "; ".join(f"{head} → {tail}" for head, tail in pairs[:3]) + ("; …" if len(pairs) > 3 else "")
    if len(pairs) == 1:
        return f"1 decided pair names an entity that this graph lacks; it is kept but not used: {few}"
    return f"{len(pairs):,} decided pairs name entities that this graph lacks; they are kept but not used: {few}"


def adjustment_of(states: Iterable[Decision]) -> Adjustment | None:
    """Fit the adjustment to the current decisions with a stored probability; None if there are none."""
    rows: list[tuple[float, bool, bool]] = []
    answered: set[str] = set()
    for state in sorted(states, key=lambda state: state.number):
        if state.kind != "reference" and state.probability is not None:
            rows.append((state.probability, state.kind == "accepted", state.head in answered))
        if state.kind != "rejected":
            answered.add(state.head)
    return adjustment(rows)


def adjustment(decisions: Sequence[tuple[float, bool, bool]]) -> Adjustment | None:
    """Fit the adjustment to the last of these decisions; None if there are none.

    A decision consists of the model's unadjusted probability of the pair, whether the curator accepted the pair, and
    whether its head already had a true tail.
    """
    decisions = decisions[-LAST:]
    if not decisions:
        return None
    probabilities, accepted, answered = (np.array(column, float) for column in zip(*decisions, strict=True))
    scale = np.sqrt(PRIOR_STRENGTHS)
    features = np.stack([np.ones(len(decisions)), answered], 1) / scale
    prior = np.array([PRIOR_SHIFT, PRIOR_MORE]) * scale
    counts = np.ones(len(decisions))
    shift, more = fit_logistic(features, accepted, counts, 1.0, prior, logits_of(probabilities)) / scale
    return Adjustment(min(float(shift), 0.0), float(more), len(decisions))


# Logistic regression

MAX_STEPS = 100  # of Newton's method, which usually ends after a few
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
