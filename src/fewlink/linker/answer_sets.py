"""How many of the first answers it takes to have a right one among them, in 9 of 10 questions: conformal answer sets.

The size depends on the probability p of the first answer and on the number c of candidates:
log size = a + b · p + d · (1 − p) · log c. The weights are a quantile regression of the rank of the best right answer
on held-out relations, each counting the same; a is then shifted so that the share of questions of relations that the
weights did not see, whose best right answer is in the set, is the level asked for (split conformal prediction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.graph import Graph

LEVELS = (0.5, 0.8, 0.9)
STEPS, TOLERANCE, NEAR = 300, 1e-8, 0.05  # of the quantile regression; residuals nearer than this count as so near
RIDGE = 1.0
MISSING = 1.0  # log rank, beyond the last candidate, of a right answer that is no candidate
SHARES = {0.5: "half", 0.8: "8 of 10", 0.9: "9 of 10"}
IN_WORDS = {0.5: "half of such questions", 0.8: "8 of 10 such questions", 0.9: "9 of 10 such questions"}
UNLIKELY = 0.2  # probability of the first answer under which it is said that probably none is right


@dataclass(frozen=True)
class SetSize:
    """The size of answer sets at one level; `weights` are a, b and d.

    `coverage` is the share of questions with a right answer in the set, `mean` and `median` its size, all measured on
    graphs that were left out, each relation counting the same.
    """

    level: float
    weights: tuple[float, float, float]
    coverage: float | None = None
    mean: float | None = None
    median: float | None = None

    def size(self, first: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """The sizes (n,) of the sets, given probabilities of first answers and numbers of candidates (n,)."""
        logs = _features(first, candidates) @ np.array(self.weights)
        sizes: np.ndarray = np.floor(np.exp(np.minimum(logs, 30)) + 1e-9)
        return np.asarray(np.clip(sizes, 1, np.maximum(candidates, 1)), np.int64)


@dataclass(frozen=True)
class AnswerSet:
    """What is known of the answers to one question: the first `size` have a right one among them at `level`.

    `unlikely`: probably none of the candidates is right. `asked` is the entity asked about.
    """

    asked: str
    asked_name: str
    size: int
    level: float
    unlikely: bool
    sentence: str


@dataclass(frozen=True)
class Ranks:
    """Ranks of right answers to questions about held-out relations.

    Shapes, all (n,): `first`, the probability of the first answer; `candidates`, their number; `best`, the rank of the
    best right answer, infinite if it is no candidate; `groups`, the relation of each question.
    """

    first: np.ndarray
    candidates: np.ndarray
    best: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> Ranks:
        return Ranks(self.first[rows], self.candidates[rows], self.best[rows], self.groups[rows])

    @property
    def counts(self) -> np.ndarray:
        """What each question counts (n,): relations count the same."""
        _, which = np.unique(self.groups, return_inverse=True)
        return np.asarray(1 / np.bincount(which)[which])

    @property
    def logs(self) -> np.ndarray:
        return np.asarray(np.minimum(np.log(self.best), np.log(self.candidates) + MISSING))


def fit_set_size(ranks: Ranks, level: float) -> SetSize:
    """The size of sets at a level, fitted to all questions; the shift to relations left out, in two halves."""
    features, counts, logs = _features(ranks.first, ranks.candidates), ranks.counts, ranks.logs
    _, which = np.unique(ranks.groups, return_inverse=True)
    apart = np.zeros(len(logs))
    for half in (0, 1):
        seen, left_out = which % 2 == half, which % 2 != half
        if seen.any() and left_out.any():
            weights = _quantile_regression(features[seen], logs[seen], counts[seen], level)
            apart[left_out] = logs[left_out] - features[left_out] @ weights
    weights = _quantile_regression(features, logs, counts, level)
    weights[0] += weighted_quantile(apart, counts, level)
    return SetSize(level, (float(weights[0]), float(weights[1]), float(weights[2])))


def weighted_quantile(values: np.ndarray, counts: np.ndarray, level: float) -> float:
    """The least value that at least this share of the values, by what each counts, does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order]) / counts.sum()
    return float(values[order[min(int(np.searchsorted(reached, level - 1e-12)), len(values) - 1)]])


def answer_set(
    sizes: tuple[SetSize, ...], asked: tuple[str, str], first: float, candidates: int, shown: int, what: str = "tail"
) -> AnswerSet:
    """What is said of the first answers to one question, of which the first `shown` are listed.

    The highest level whose set is listed is named; else how far down the list one has to read.
    """
    number = np.array([candidates])
    by_level = {each.level: int(each.size(np.array([first]), number)[0]) for each in sizes}
    top = max(by_level)
    fitting = [level for level, size in by_level.items() if size <= shown]
    level = max(fitting, default=top)
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
    """The sets of all entities asked about; `asked`, `probabilities` and `new`, whether not known, are of rows (n,)."""
    sets = []
    for entity in dict.fromkeys(asked.tolist()) if sizes else ():
        of = np.flatnonzero((asked == entity) & new)
        if len(of):
            named = graph.entities[entity], graph.name(entity)
            sets.append(answer_set(sizes, named, float(probabilities[of].max()), candidates, len(of), what))
    return tuple(sets)


def _features(first: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(first)), first, (1 - first) * np.log(np.maximum(candidates, 1))], 1)


def _quantile_regression(features: np.ndarray, values: np.ndarray, counts: np.ndarray, level: float) -> np.ndarray:
    """Weights of least pinball loss plus a ridge penalty on all but the first, by reweighted least squares."""
    penalty = RIDGE * np.diag([0.0] + [1.0] * (features.shape[1] - 1))
    weights = np.zeros(features.shape[1])
    for _ in range(STEPS):
        apart = values - features @ weights
        each = np.where(apart >= 0, level, 1 - level) * counts / np.maximum(np.abs(apart), NEAR)
        new = np.linalg.solve((features.T * each) @ features + penalty, features.T @ (each * values))
        done = np.abs(new - weights).max() < TOLERANCE
        weights = new
        if done:
            break
    return weights
