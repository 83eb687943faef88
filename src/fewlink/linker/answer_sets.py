"""Answer sets: the shortest list of first answers that contains a right one in, say, 9 of 10 questions.

With p the probability of the first answer and c the number of candidates, log size = a + b · p + d · (1 − p) · log c.
A quantile regression fits a, b and d to the rank of the best right answer on held-out relations, all with equal weight.
Then a is shifted until the sets reach their level on relations that the regression did not see (split conformal
prediction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.graph import Graph

LEVELS = (0.5, 0.8, 0.9)
MAX_STEPS, TOLERANCE = 300, 1e-8  # of the quantile regression
MIN_RESIDUAL = 0.05  # smaller residuals are weighted like this one
RIDGE = 1.0
MISSING = 1.0  # log rank, beyond the last candidate, of a right answer that is not a candidate
SHARES = {0.5: "half", 0.8: "8 of 10", 0.9: "9 of 10"}
IN_WORDS = {0.5: "half of such questions", 0.8: "8 of 10 such questions", 0.9: "9 of 10 such questions"}
UNLIKELY = 0.2  # if the first answer is less probable, the sentence warns that probably none is right


@dataclass(frozen=True)
class SetSize:
    """The size of answer sets at one level; `weights` are a, b and d.

    `coverage` is the share of questions whose set contains a right answer; `mean` and `median` are sizes. All three
    were measured on held-out graphs, with equal weight for each relation.
    """

    level: float
    weights: tuple[float, float, float]
    coverage: float | None = None
    mean: float | None = None
    median: float | None = None

    def size(self, first: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """The sizes (n,) of sets, given the probability of each first answer (n,) and the number of candidates (n,)."""
        logs = _features(first, candidates) @ np.array(self.weights)
        sizes: np.ndarray = np.floor(np.exp(np.minimum(logs, 30)) + 1e-9)
        return np.asarray(np.clip(sizes, 1, np.maximum(candidates, 1)), np.int64)


@dataclass(frozen=True)
class AnswerSet:
    """The answer set of one query entity (`asked`): its first `size` answers contain a right one at this `level`.

    If `unlikely`, probably no candidate is right.
    """

    asked: str
    asked_name: str
    size: int
    level: float
    unlikely: bool
    sentence: str


@dataclass(frozen=True)
class Ranks:
    """Ranks of right answers to n questions about held-out relations.

    Shapes, all (n,): `first`, the probability of the first answer; `candidates`, their number; `best`, the rank of the
    best right answer, infinite if it is not a candidate; `groups`, the relation of each question.
    """

    first: np.ndarray
    candidates: np.ndarray
    best: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> Ranks:
        return Ranks(self.first[rows], self.candidates[rows], self.best[rows], self.groups[rows])

    @property
    def counts(self) -> np.ndarray:
        """The weight of each question (n,): the questions of a relation add up to 1."""
        _, which = np.unique(self.groups, return_inverse=True)
        return np.asarray(1 / np.bincount(which)[which])

    @property
    def logs(self) -> np.ndarray:
        """The logarithms (n,) of the ranks."""
        return np.asarray(np.minimum(np.log(self.best), np.log(self.candidates) + MISSING))


def fit_set_size(ranks: Ranks, level: float) -> SetSize:
    """Fit the size of sets at a level to all questions.

    The shift of a is measured by fitting to each half of the relations and predicting the other half.
    """
    features, counts, logs = _features(ranks.first, ranks.candidates), ranks.counts, ranks.logs
    _, which = np.unique(ranks.groups, return_inverse=True)
    residuals = np.zeros(len(logs))
    for half in (0, 1):
        seen, left_out = which % 2 == half, which % 2 != half
        if seen.any() and left_out.any():
            weights = _quantile_regression(features[seen], logs[seen], counts[seen], level)
            residuals[left_out] = logs[left_out] - features[left_out] @ weights
    weights = _quantile_regression(features, logs, counts, level)
    weights[0] += weighted_quantile(residuals, counts, level)
    return SetSize(level, (float(weights[0]), float(weights[1]), float(weights[2])))


def weighted_quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """The least value that a share of at least `level` of the weighted values does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order]) / counts.sum()
    return float(values[order[min(int(np.searchsorted(reached, level - 1e-12)), len(values) - 1)]])


def answer_set(
    sizes: tuple[SetSize, ...], asked: tuple[str, str], first: float, candidates: int, shown: int, what: str = "tail"
) -> AnswerSet:
    """The answer set of one query entity, by id and name, whose first `shown` answers are listed.

    It has the highest level whose set is fully listed, or the top level if none is. `first` is the probability of the
    first answer, and `what` the kind of answers: tails or heads.
    """
    by_level = {each.level: int(each.size(np.array([first]), np.array([candidates]))[0]) for each in sizes}
    top = max(by_level)
    listed = [level for level, size in by_level.items() if size <= shown]
    level = max(listed, default=top)
    size = by_level[level]
    unlikely = first < UNLIKELY
    words = IN_WORDS.get(level, f"{level:.0%} of such questions")
    which = f"the first {what} is" if size == 1 else f"one of the first {size:,} {what}s is"
    sentence = f"{which} right in {words}"
    if level < top:
        sentence += f"; for {SHARES.get(top, f'{top:.0%}')} it takes the first {by_level[top]:,}"
    if unlikely:
        sentence = f"probably none of the first {what}s is right: {sentence}"
    return AnswerSet(*asked, size, level, unlikely, sentence)


def answer_sets(
    sizes: tuple[SetSize, ...],
    graph: Graph,
    asked: np.ndarray,
    probabilities: np.ndarray,
    new: np.ndarray,
    candidates: int,
    what: str = "tail",
) -> tuple[AnswerSet, ...]:
    """The answer set of each query entity, given n ranked pairs.

    Shapes, all (n,): `asked`, the query entities; `probabilities`; `new`, whether the pair is not known.
    """
    if not sizes:
        return ()
    sets = []
    for entity in dict.fromkeys(asked.tolist()):
        rows = np.flatnonzero((asked == entity) & new)
        if len(rows):
            named = graph.entities[entity], graph.name(entity)
            sets.append(answer_set(sizes, named, float(probabilities[rows].max()), candidates, len(rows), what))
    return tuple(sets)


def _features(first: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(first)), first, (1 - first) * np.log(np.maximum(candidates, 1))], 1)


def _quantile_regression(features: np.ndarray, values: np.ndarray, counts: np.ndarray, level: float) -> np.ndarray:
    """Minimise pinball loss plus a ridge penalty on all weights but the first, by reweighted least squares."""
    penalty = RIDGE * np.diag([0.0] + [1.0] * (features.shape[1] - 1))
    weights = np.zeros(features.shape[1])
    for _ in range(MAX_STEPS):
        residuals = values - features @ weights
        row_weights = np.where(residuals >= 0, level, 1 - level) * counts / np.maximum(np.abs(residuals), MIN_RESIDUAL)
        new = np.linalg.solve((features.T * row_weights) @ features + penalty, features.T @ (row_weights * values))
        converged = np.abs(new - weights).max() < TOLERANCE
        weights = new
        if converged:
            break
    return weights
