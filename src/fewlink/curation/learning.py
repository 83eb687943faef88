"""Learning from decisions: pairs that resemble rejected ones score lower, those that resemble accepted ones higher.

The correction of a score is the posterior mean of a Gaussian process on pairs, given which pairs are true (references
and accepted ones) and which are not. Its covariance says what resembles what:

    k((h, t), (h', t')) = 1 + [h = h'] + ¼ like(h, h') + 4 like(h, h') · like(t, t')

where `like` is the mean of two cosines, of the relations that entities take part in and of the neighbours they have by
them, rare ones counting more. It reads the graph and the decisions only, so a new decision costs milliseconds and works
with any scorer. Nothing changes until a pair is rejected. The constants were chosen in simulations on relations of
NELL-One, FB15k-237, CoDEx-S and ATT&CK that are in no test split (benchmarks/curation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from fewlink.data.candidates import likely_tails
from fewlink.graph import Graph
from fewlink.graph.groups import spans
from fewlink.scorers import Question, Scorer, capabilities

ANY, SAME_HEAD, LIKE_HEAD, LIKE_PAIR = 1.0, 1.0, 0.25, 4.0  # variances of what pairs share
TRUE = 1.0  # the prior logit of a true pair: references are known to be good examples
ANSWERED = -0.5  # added to the logit of a pair whose head has a true tail already
SCALE, LIKELY = 4.0, 12.0  # of TRAIL's scores: what a logit is worth, and where a pair is as likely true as not
SPREAD, BEST = 1.3, 30  # mean standard deviation of TRAIL's best scores of a head: other scorers are measured by it
MOST = 400  # decisions that are read, the last of each kind: solving takes the third power of their number
STEPS = 20
MANY_EDGES = 20_000_000  # above which neighbours are not compared


class Profiles(NamedTuple):
    """Features of each entity. Shapes: `offsets` (entities + 1,) into `features` (n,); `weights` of each feature;
    `norms` (entities,)."""

    offsets: np.ndarray
    features: np.ndarray
    weights: np.ndarray
    norms: np.ndarray

    @classmethod
    def of(cls, entities: np.ndarray, features: np.ndarray, count: int) -> Profiles:
        """From sorted entities (n,) and their features (n,); those of few entities weigh more, of one only nothing."""
        having = np.bincount(features, minlength=1)
        weights = np.log1p(count / np.maximum(having, 1)) * (having > 1)
        norms = np.sqrt(np.bincount(entities, weights[features] ** 2, minlength=count))
        offsets = np.searchsorted(entities, np.arange(count + 1))
        return cls(offsets, features.astype(np.int64), weights, np.maximum(norms, 1e-9))

    def cosines(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """How alike entities (n,) and others (m,) are: (n, m), from 0 to 1."""
        at, columns = spans(self.offsets[others], self.offsets[others + 1])
        present, places = np.unique(self.features[at], return_inverse=True)
        table = np.zeros((len(present) + 1, len(others)), np.float32)  # the last row: features that no other has
        table[places, columns] = self.weights[self.features[at]] ** 2
        at, rows = spans(self.offsets[some], self.offsets[some + 1])
        places = np.searchsorted(present, self.features[at])
        shared = np.append(present, -1)[places] == self.features[at]
        starts = torch.from_numpy(np.searchsorted(rows[shared], np.arange(len(some))))
        sums = embedding_bag(torch.from_numpy(places[shared]), torch.from_numpy(table), starts, mode="sum").numpy()
        return np.asarray(sums / (self.norms[some][:, None] * self.norms[others][None]))


def profiles(graph: Graph) -> list[Profiles]:
    """The relations, inverse ones included, of each entity, and the neighbours it has by each; made once.

    Of a graph with more than `MANY_EDGES` edges only the relations.
    """
    return graph.once(_profiles)


def _profiles(graph: Graph) -> list[Profiles]:
    count, first = len(graph.entities), graph.slot_starts
    made = [Profiles.of(graph.head_ids[first], graph.relation_ids[first], count)]
    if len(graph.head_ids) <= MANY_EDGES:
        keys = graph.relation_ids.astype(np.int64) * count + graph.tail_ids
        made.append(Profiles.of(graph.head_ids, np.unique(keys, return_inverse=True)[1], count))
    return made


def likeness(graph: Graph, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How alike entities (n,) and others (m,) are: (n, m), from 0 to 1, the mean over profiles."""
    return np.asarray(sum(each.cosines(some, others) for each in profiles(graph)) / len(profiles(graph)))


def covariance(graph: Graph, some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How much decisions on pairs (n, 2) say of others (m, 2): (n, m). Alike heads and tails are compared once each."""
    (heads, of_head), (tails, of_tail) = (np.unique(some[:, end], return_inverse=True) for end in (0, 1))
    like_head = likeness(graph, heads, others[:, 0])[of_head]
    like_tail = likeness(graph, tails, others[:, 1])[of_tail]
    same = some[:, None, 0] == others[None, :, 0]
    return np.asarray(ANY + SAME_HEAD * same + like_head * (LIKE_HEAD + LIKE_PAIR * like_tail))


@dataclass(frozen=True)
class Learned:
    """What decisions say of any pair of a graph. `pairs` (n, 2) were decided; `weights` (n,) are what each adds;
    `precision` (n,) is how much is known at each; `answered` are heads with a true tail."""

    graph: Graph
    pairs: np.ndarray
    weights: np.ndarray
    precision: np.ndarray
    answered: np.ndarray

    def table(self, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """The corrections (h, t) of the logits of all pairs of heads (h,) and tails (t,)."""
        like_head, same = likeness(self.graph, heads, self.pairs[:, 0]), heads[:, None] == self.pairs[None, :, 0]
        alone = (ANY + SAME_HEAD * same + LIKE_HEAD * like_head) @ self.weights + ANSWERED * np.isin(
            heads, self.answered
        )
        together = (like_head * self.weights) @ likeness(self.graph, tails, self.pairs[:, 1]).T
        return np.asarray(alone[:, None] + LIKE_PAIR * together)

    def logits(self, pairs: np.ndarray) -> np.ndarray:
        """The corrections (m,) of the logits of pairs (m, 2)."""
        answered = ANSWERED * np.isin(pairs[:, 0], self.answered)
        return np.asarray(covariance(self.graph, pairs, self.pairs) @ self.weights + answered)

    def spread(self, pairs: np.ndarray) -> np.ndarray:
        """The covariance (m, m) of pairs (m, 2) that is left after the decisions."""
        across = covariance(self.graph, pairs, self.pairs)
        own = covariance(self.graph, self.pairs, self.pairs) + np.diag(1 / self.precision)
        return np.asarray(covariance(self.graph, pairs, pairs) - across @ np.linalg.solve(own, across.T))


def learn(graph: Graph, accepted: np.ndarray, rejected: np.ndarray) -> Learned:
    """What true pairs (n, 2) and rejected pairs (m, 2) say; of more than MOST the last ones are read."""
    accepted, rejected = (np.asarray(each, np.int32).reshape(-1, 2) for each in (accepted, rejected))
    few = min(len(rejected), max(MOST // 2, MOST - len(accepted)))
    accepted, rejected = _last(accepted, MOST - few), _last(rejected, few)
    answered, pairs = np.unique(accepted[:, 0]), np.concatenate([accepted, rejected])
    right = np.arange(len(pairs)) < len(accepted)
    prior = np.where(right, TRUE, ANSWERED * np.isin(pairs[:, 0], answered))
    own = covariance(graph, pairs, pairs)
    shift = np.zeros(len(pairs))
    weights, precision = shift, np.ones(len(pairs))
    for _ in range(STEPS):  # Newton's method on the logarithm of the posterior
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
    """What one unit of a logit is worth in scores, and the score at which a pair is as likely true as not."""

    scale: float = SCALE
    likely: float = LIKELY


def units_of(scorer: Scorer, scores: Sequence[np.ndarray]) -> Units:
    """The units of a scorer: known of TRAIL; of others, read off the scores (c,) of some heads by their spread."""
    if capabilities(scorer).scores_are_logits:
        return Units()
    best = [np.sort(each)[::-1][:BEST] for each in scores if len(each)]
    spread = float(np.mean([each.std() for each in best])) if best else 0.0
    likely = float(np.median([each[0] for each in best])) if best else 0.0
    return Units(SCALE / SPREAD * max(spread, 1e-6), likely)


class LearningScorer:
    """Another scorer whose scores are corrected by what was rejected, on a graph with its ids.

    A correction is in logits, which are turned into units of the scorer.
    """

    def __init__(self, scorer: Scorer, graph: Graph, accepted: np.ndarray, rejected: np.ndarray) -> None:
        self.name, self.scorer = scorer.name, scorer
        self.learned, self.rejected = learn(graph, accepted, rejected), rejected
        self._units: Units | None = Units() if capabilities(scorer).scores_are_logits else None

    def __call__(self, question: Question) -> np.ndarray:
        scores = _array(self.scorer(question))
        if self._units is None:  # measured once, at the first head that was rejected and tails like the decided ones
            tails = likely_tails(self.learned.graph, np.unique(self.learned.pairs[:, 1]))
            measured = _array(self.scorer(replace(question, heads=self.rejected[:1, 0], candidates=tails)))
            self._units = units_of(self.scorer, [*measured])
        corrections = self._units.scale * self.learned.table(question.heads, question.candidates)
        return np.asarray(scores + corrections, scores.dtype)


def learning_scorer(scorer: Scorer, graph: Graph, accepted: np.ndarray, rejected: np.ndarray) -> Scorer:
    """A scorer that has learnt from true pairs (n, 2) and rejected pairs (m, 2); the same one if none was rejected."""
    return LearningScorer(scorer, graph, accepted, rejected) if len(rejected) else scorer


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -50, 50))))


def choose_references(graph: Graph, pairs: np.ndarray, most: int, first: int = 0) -> np.ndarray:
    """At most `most` of true pairs (n, 2) as references: the `first` ones, which a person gave, then the most varied.

    Each next one is the pair that resembles the chosen ones least, so that references show all that the relation
    joins; of equal ones, the last decided.
    """
    pairs = np.asarray(pairs, np.int32).reshape(-1, 2)
    if len(pairs) <= most:
        return pairs
    chosen = list(range(min(max(first, 1), most, len(pairs))))
    alike = covariance(graph, pairs, pairs)
    near = alike[:, chosen].max(1)
    while len(chosen) < most:
        near[chosen] = np.inf
        least = np.flatnonzero(near <= near.min() + 1e-9)
        chosen.append(int(least[-1]))
        near = np.maximum(near, alike[:, chosen[-1]])
    return pairs[chosen]


def _last(pairs: np.ndarray, most: int) -> np.ndarray:
    return pairs[max(len(pairs) - most, 0) :]


def _array(scores: torch.Tensor | np.ndarray) -> np.ndarray:
    return scores.detach().cpu().numpy() if isinstance(scores, torch.Tensor) else np.asarray(scores)
