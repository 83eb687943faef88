"""Answer sets: the shortest list of first answers that contains a right one in, say, 9 of 10 questions.

With z the log odds of the first answer's probability, the first s answers contain a right one with the probability
1/(1 + exp(−(a + b · z + c · log s + d · z · log s))), fitted to held-out relations, all with equal weight. The set at a
level is as long as it takes to reach that level. If it takes more than `LONGEST` answers, or more than there are
candidates, nothing is promised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.graph import Graph
from fewlink.linker.logistic import fit_logistic

LEVELS = (0.5, 0.8, 0.9)
LONGEST = 20
SIZES = (1, 2, 3, 5, 7, 10, 14, LONGEST)  # that the probability is fitted to
RIDGE = 0.3
MIN_PROBABILITY = 1e-4  # of a first answer; the log odds of smaller ones make no difference
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
        logits = np.stack([_features(first, size) @ np.array(self.weights) for size in range(1, LONGEST + 1)], 1)
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


@dataclass(frozen=True)
class Ranks:
    """Ranks of right answers to n questions about held-out relations.

    Shapes, all (n,): `first`, the probability of the first answer; `best`, the rank of the best right answer, infinite
    if it is not a candidate; `groups`, the relation of each question.
    """

    first: np.ndarray
    best: np.ndarray
    groups: np.ndarray

    def take(self, rows: np.ndarray) -> Ranks:
        return Ranks(self.first[rows], self.best[rows], self.groups[rows])

    @property
    def counts(self) -> np.ndarray:
        """The weight of each question (n,): the questions of a relation add up to 1."""
        _, which = np.unique(self.groups, return_inverse=True)
        return np.asarray(1 / np.bincount(which)[which])


def fit_coverage(ranks: Ranks) -> Coverage:
    """Fit the probability that the first answers contain a right one."""
    features = np.concatenate([_features(ranks.first, size) for size in SIZES])
    right = np.concatenate([ranks.best <= size for size in SIZES])
    a, b, c, d = fit_logistic(features, right, np.tile(ranks.counts / len(SIZES), len(SIZES)), RIDGE).tolist()
    return Coverage((a, b, c, d))


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


def _features(first: np.ndarray, size: int) -> np.ndarray:
    """1, z, log s and z · log s of each question (n, 4)."""
    limited = np.clip(first, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    odds = np.log(limited / (1 - limited))
    log_size = np.log(size)
    return np.stack([np.ones(len(first)), odds, np.full(len(first), log_size), odds * log_size], 1)
