"""Learning from decisions: pairs that resemble rejected ones score lower, those that resemble accepted ones higher.

The correction of a score is the posterior mean of a Gaussian process on pairs, given true pairs (references and
accepted ones) and rejected pairs. Its covariance measures how much two pairs resemble each other:

    k((h, t), (h', t')) = 1 + [h = h'] + ¼ like(h, h') + 4 like(h, h') · like(t, t')

where `like` is the mean of two cosine similarities, of the relations of two entities and of their neighbours, with more
weight for rare ones. It reads only the graph and the decisions, so a new decision costs milliseconds and works with any
scorer. Nothing changes until a pair is rejected. The constants were chosen in simulations of curators on relations that
no figure is reported for (benchmarks/curation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from fewlink.graph import Graph
from fewlink.graph.groups import spans
from fewlink.models.contract import Question, Scorer, capabilities
from fewlink.tasks.candidates import likely_tails

ANY = 1.0  # the variance of what all pairs share
SAME_HEAD = 1.0  # of what pairs with one head share
LIKE_HEAD = 0.25  # of what pairs with similar heads share
LIKE_PAIR = 4.0  # of what pairs with similar heads and tails share
TRUE_LOGIT = 1.0  # the prior logit of a true pair: references are good examples
ANSWERED_LOGIT = -0.5  # added to the logit of a pair whose head already has a true tail
TRAIL_SCALE = 2.0  # TRAIL's score per logit
TRAIL_SPREAD = 1.3  # mean standard deviation of TRAIL's best scores of a head, to scale other scorers
BEST_SCORES = 30  # of a head, to measure that standard deviation
MAX_DECISIONS = 400  # the last of each kind: the time to solve grows with the third power
MAX_STEPS = 20  # of Newton's method, which usually ends after a few
MAX_PAIRS = 300  # best pairs to compare for information
MAX_EDGES = 20_000_000  # in larger graphs, neighbours are not compared


class Profiles(NamedTuple):
    """The features of each entity.

    Shapes: `offsets` (entities + 1,) into `features` (n,); `weights`, one per feature; `norms` (entities,).
    """

    offsets: np.ndarray
    features: np.ndarray
    weights: np.ndarray
    norms: np.ndarray

    @classmethod
    def of(cls, entities: np.ndarray, features: np.ndarray, count: int) -> Profiles:
        """Build from sorted entities (n,) and their features (n,); rare features weigh more, unique ones nothing."""
        having = np.bincount(features, minlength=1)
        weights = np.log1p(count / np.maximum(having, 1)) * (having > 1)
        norms = np.sqrt(np.bincount(entities, weights[features] ** 2, minlength=count))
        offsets = np.searchsorted(entities, np.arange(count + 1))
        return cls(offsets, features.astype(np.int64), weights, np.maximum(norms, 1e-9))

    def cosines(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The cosine similarity (n, m), from 0 to 1, of entities (n,) and others (m,)."""
        at, columns = spans(self.offsets[others], self.offsets[others + 1])
        present, places = np.unique(self.features[at], return_inverse=True)
        table = np.zeros((len(present) + 1, len(others)), np.float32)  # the last row is for features that no other has
        table[places, columns] = self.weights[self.features[at]] ** 2
        at, rows = spans(self.offsets[some], self.offsets[some + 1])
        places = np.searchsorted(present, self.features[at])
        shared = np.append(present, -1)[places] == self.features[at]
        starts = torch.from_numpy(np.searchsorted(rows[shared], np.arange(len(some))))
        sums = embedding_bag(torch.from_numpy(places[shared]), torch.from_numpy(table), starts, mode="sum").numpy()
        return np.asarray(sums / (self.norms[some][:, None] * self.norms[others][None]))


def profiles(graph: Graph) -> list[Profiles]:
    """The profiles of entities by relations (inverse ones included) and by neighbours; computed once per graph.

    A graph with more than `MAX_EDGES` edges has only the first.
    """
    return graph.once(_profiles)


def _profiles(graph: Graph) -> list[Profiles]:
    count = len(graph.entities)
    first = graph.slot_starts
    made = [Profiles.of(graph.head_ids[first], graph.relation_ids[first], count)]
    if len(graph.head_ids) <= MAX_EDGES:
        keys = graph.relation_ids.astype(np.int64) * count + graph.tail_ids
        made.append(Profiles.of(graph.head_ids, np.unique(keys, return_inverse=True)[1], count))
    return made


def likeness(graph: Graph, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The similarity (n, m), from 0 to 1, of entities (n,) and others (m,): the mean over profiles."""
    (distinct, rows), (among, columns) = (np.unique(each, return_inverse=True) for each in (some, others))
    mean = sum(each.cosines(distinct, among) for each in profiles(graph)) / len(profiles(graph))
    return np.asarray(mean)[rows[:, None], columns]


def covariance(graph: Graph, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The prior covariance (n, m) of pairs (n, 2) and others (m, 2)."""
    like_head, like_tail = (likeness(graph, some[:, end], others[:, end]) for end in (0, 1))
    same = some[:, None, 0] == others[None, :, 0]
    return np.asarray(ANY + SAME_HEAD * same + like_head * (LIKE_HEAD + LIKE_PAIR * like_tail))


@dataclass(frozen=True)
class Learned:
    """What decisions imply for any pair of a graph.

    Shapes: `pairs` (n, 2), the decided ones; `weights` (n,) and `precision` (n,) of each in the posterior; `answered`,
    the heads with a true tail.
    """

    graph: Graph
    pairs: np.ndarray
    weights: np.ndarray
    precision: np.ndarray
    answered: np.ndarray

    def table(self, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """The corrections (h, t) of the logits of all pairs of heads (h,) and tails (t,)."""
        like_head = likeness(self.graph, heads, self.pairs[:, 0])
        same = heads[:, None] == self.pairs[None, :, 0]
        alone = (ANY + SAME_HEAD * same + LIKE_HEAD * like_head) @ self.weights + ANSWERED_LOGIT * np.isin(
            heads, self.answered
        )
        together = (like_head * self.weights) @ likeness(self.graph, tails, self.pairs[:, 1]).T
        return np.asarray(alone[:, None] + LIKE_PAIR * together)

    def logits(self, pairs: np.ndarray) -> np.ndarray:
        """The corrections (m,) of the logits of pairs (m, 2)."""
        answered = ANSWERED_LOGIT * np.isin(pairs[:, 0], self.answered)
        return np.asarray(covariance(self.graph, pairs, self.pairs) @ self.weights + answered)

    def spread(self, pairs: np.ndarray) -> np.ndarray:
        """The posterior covariance (m, m) of pairs (m, 2)."""
        across = covariance(self.graph, pairs, self.pairs)
        own = covariance(self.graph, self.pairs, self.pairs) + np.diag(1 / self.precision)
        return np.asarray(covariance(self.graph, pairs, pairs) - across @ np.linalg.solve(own, across.T))


def learn(graph: Graph, accepted: np.ndarray, rejected: np.ndarray) -> Learned:
    """Learn from true pairs (n, 2) and rejected pairs (m, 2); of more than `MAX_DECISIONS`, the last ones count."""
    accepted, rejected = (np.asarray(each, np.int32).reshape(-1, 2) for each in (accepted, rejected))
    few = min(len(rejected), max(MAX_DECISIONS // 2, MAX_DECISIONS - len(accepted)))
    accepted = _last(accepted, MAX_DECISIONS - few)
    rejected = _last(rejected, few)
    answered = np.unique(accepted[:, 0])
    pairs = np.concatenate([accepted, rejected])
    right = np.arange(len(pairs)) < len(accepted)
    prior = np.where(right, TRUE_LOGIT, ANSWERED_LOGIT * np.isin(pairs[:, 0], answered))
    own = covariance(graph, pairs, pairs)
    shift = np.zeros(len(pairs))
    weights = shift
    precision = np.ones(len(pairs))
    for _ in range(MAX_STEPS):  # Newton's method on the log posterior
        probable = sigmoid(prior + shift)
        precision = np.maximum(probable * (1 - probable), 1e-4)
        target = precision * shift + right - probable
        root = np.sqrt(precision)
        inner = np.eye(len(pairs)) + root[:, None] * own * root
        weights = target - root * np.linalg.solve(inner, root * (own @ target))
        moved = own @ weights
        done = np.abs(moved - shift).max(initial=0) < 1e-6
        shift = moved
        if done:
            break
    return Learned(graph, pairs, weights, precision, answered)


class Units(NamedTuple):
    """The score per logit, and the score of a pair with probability ½."""

    scale: float
    likely: float


def units_of(scorer: Scorer, scores: Sequence[np.ndarray]) -> Units:
    """The units of a scorer, estimated from the scores (c,) of some heads; the scale is fixed for TRAIL."""
    best = [np.sort(each)[::-1][:BEST_SCORES] for each in scores if len(each)]
    likely = float(np.median([each[0] for each in best])) if best else 0.0
    if capabilities(scorer).scores_are_logits:
        return Units(TRAIL_SCALE, likely)
    spread = float(np.mean([each.std() for each in best])) if best else 0.0
    return Units(TRAIL_SCALE / TRAIL_SPREAD * max(spread, 1e-6), likely)


class LearningScorer:
    """Corrects the scores of another scorer by what accepted and rejected pairs show.

    Corrections are logits, converted to the units of the scorer.
    """

    def __init__(self, scorer: Scorer, graph: Graph, accepted: np.ndarray, rejected: np.ndarray) -> None:
        self.name = scorer.name
        self.scorer = scorer
        self.learned = learn(graph, accepted, rejected)
        self.rejected = rejected
        self._scale = TRAIL_SCALE if capabilities(scorer).scores_are_logits else None

    def __call__(self, question: Question) -> np.ndarray:
        scores = _array(self.scorer(question))
        if self._scale is None:  # estimated once, from the first rejected head and tails like the decided ones
            tails = likely_tails(self.learned.graph, np.unique(self.learned.pairs[:, 1]))
            measured = _array(self.scorer(replace(question, heads=self.rejected[:1, 0], candidates=tails)))
            self._scale = units_of(self.scorer, [*measured]).scale
        corrections = self._scale * self.learned.table(question.heads, question.candidates)
        return np.asarray(scores + corrections, scores.dtype)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Probabilities from logits."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -50, 50))))


def _last(pairs: np.ndarray, most: int) -> np.ndarray:
    return pairs[max(len(pairs) - most, 0) :]


def _array(scores: torch.Tensor | np.ndarray) -> np.ndarray:
    return scores.detach().cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)


def informative(learned: Learned, pairs: np.ndarray, scores: np.ndarray, units: Units) -> np.ndarray:
    """How informative (n,) a decision on each pair (n, 2) is about all of them, given their uncorrected scores (n,).

    With p the probability that a pair is true, its uncertainty is u = p (1 − p); its influence is the variance that a
    decision on it removes from all pairs, Σ u' cov² / (1 + u · var).
    """
    probable = sigmoid((scores - units.likely) / units.scale + learned.logits(pairs))
    unsure = probable * (1 - probable)
    left = learned.spread(pairs)
    influence = (left**2) @ unsure / (1 + unsure * np.maximum(np.diag(left), 0))
    return np.asarray(unsure * influence)


def spread_over_tails(values: np.ndarray, tails: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """The order (n,) of pairs with these values (n,) and tails (n,), given the tails (m,) of decided pairs.

    The value of a pair is divided by 1 + the number of pairs with its tail that are decided or come before it, so tails
    that were decided often have to wait.
    """
    distinct, tail = np.unique(tails, return_inverse=True)
    before = 1.0 + (distinct[:, None] == decided).sum(1)
    left = values.astype(float)
    order = np.zeros(len(values), int)
    for place in range(len(values)):
        order[place] = np.argmax(left / before[tail])
        left[order[place]] = -np.inf
        before[tail[order[place]]] += 1
    return order


def suggest(
    learned: Learned | None, pairs: np.ndarray, scores: np.ndarray, units: Units, *, teach: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The order (n,) in which to decide pairs (n, 2), and their corrected scores (n,).

    The best pair comes first; with `teach`, the most informative one, spread over tails. Without decisions, pairs are
    ordered by score.
    """
    corrected = scores if learned is None else scores + units.scale * learned.logits(pairs)
    order = np.argsort(-corrected, kind="stable")
    if teach and learned is not None:
        first = order[:MAX_PAIRS]
        values = informative(learned, pairs[first], scores[first], units)
        spread = spread_over_tails(values, pairs[first, 1], learned.pairs[:, 1])
        order = np.concatenate([first[spread], order[MAX_PAIRS:]])
    return order, corrected
