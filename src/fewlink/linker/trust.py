"""How far answers can be trusted: whether the model finds the references again when each is held out.

`Trust` holds the result for one question, `row_features` turns it and the scores into the features of a calibration,
and `expected_error` measures how far probabilities are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fewlink.core.metrics import realistic_rank
from fewlink.data.candidates import open_candidates
from fewlink.graph import Graph
from fewlink.linker.predictions import TrustNote
from fewlink.linker.query import References
from fewlink.linker.ranking import RankedPairs, score_heads
from fewlink.scorers import Question, Scorer

MAX_HELD_OUT = 3  # references: each costs as much as a new relation
BINS = 10
FOUND_RANK = 10  # the last rank at which a reference counts as found

# The features of the regression, and the sign of each weight that keeps a better rank at least as probable.
SIGNS = {
    "constant": 0,
    "log softmax": 1,
    "log rank": -1,
    "first": 1,  # whether the row is its head's first answer
    "log softmax, fan": 1,  # log softmax plus the fan, at most 0: several tails share the softmax
    "log softmax, head fan": 1,
    "margin": 0,  # between the scores of the head's first and second answer
    "fan": 0,
    "head fan": 0,
    "one reference": 0,
    "found first": 0,  # share of the held-out references with rank 1, minus one half
    "found in ten": 0,
}
FEATURES = tuple(SIGNS)
Weights = Mapping[str, float]


@dataclass(frozen=True)
class Trust:
    """How well the references of a question predict each other.

    shots     the number of references
    ranks     the ranks of the tails of held-out references, with the others as references; empty if there is only one
              reference, or if the graph has the relation, so that nothing can be held out
    fan       log(entities like the references' tails / entities like their heads); a high value suggests several
              tails for each head
    known     whether the graph has the relation
    relation  the name of that relation, if the user did not name it
    """

    shots: int
    ranks: tuple[float, ...] = ()
    fan: float = 0.0
    known: bool = False
    relation: str = ""

    @property
    def tested(self) -> int:
        """The number of references that were held out."""
        return len(self.ranks)

    def found(self, last_rank: int = FOUND_RANK) -> int:
        """The number of held-out references that rank at `last_rank` or better."""
        return sum(rank <= last_rank for rank in self.ranks)

    @property
    def share_found(self) -> float:
        """The share of the held-out references in the first ten; 1 if none was held out."""
        return self.found() / self.tested if self.ranks else 1.0

    def sentence(self) -> str:
        """The result in words."""
        if self.known:
            return known_relation_note(self.relation) if self.relation else "the graph has this relation"
        if not self.ranks:
            return "one reference alone cannot be held out"
        tested = f"the {self.tested} tested" if self.tested < self.shots else f"your {self.tested}"
        return f"it would have found {self.found()} of {tested} references in its first ten"


def known_relation_note(relation: str) -> str:
    """The note on references that are all pairs of one relation of the graph, which the user did not name."""
    return f"the graph has the relation {relation} between all references: name it as the relation to skip known pairs"


def measure_trust(
    scorer: Scorer,
    graph: Graph,
    references: References,
    candidates: np.ndarray | None = None,
) -> Trust:
    """Hold out each of the first references in turn, and rank its tail among the candidates (c,) of the question.

    By default the candidates are the entities like the tails of the other references. A tail that is not a candidate
    has an infinite rank.
    """
    pairs, relation = references.ids, references.relation
    tails, heads = (len(open_candidates(graph, each)) for each in (pairs, pairs[:, ::-1]))
    fan = float(np.log(max(tails, 1) / max(heads, 1)))
    known = relation is not None and (relation.number >= 0 or relation.trained)
    if known or len(pairs) < 2:
        return Trust(len(pairs), fan=fan, known=known)
    ranks = []
    for place in range(min(len(pairs), MAX_HELD_OUT)):
        rest, (head, tail) = np.delete(pairs, place, axis=0), pairs[place].tolist()
        among = open_candidates(graph, rest) if candidates is None else candidates
        (_, scores), *_ = score_heads(scorer, Question("", rest, pairs[place : place + 1, 0], among))
        rivals = scores[~np.isin(among, references.known_tails(head))]
        score = scores[among == tail]  # (1,), or (0,) if the tail is not a candidate
        rank = realistic_rank((rivals > score).sum(), (rivals == score).sum()) if len(score) else np.inf
        ranks.append(float(rank))
    return Trust(len(pairs), tuple(ranks), fan)


def trust_note(trust: Trust | None, low: bool, error: float, rough: bool) -> TrustNote:
    """How far to trust the answers, in words; `error` is that of the percentages, and `rough` says it is large."""
    if trust is not None and low:
        sentence = f"low trust: {trust.sentence()}; ranks only, no percentages"
        return TrustNote(True, False, sentence, trust.found(), trust.tested)
    if trust is not None and trust.known:
        return TrustNote(False, False, f"{trust.sentence()}; no percentages, which are for new relations")
    if trust is not None and trust.ranks and not trust.found():
        return TrustNote(False, False, f"{trust.sentence()}; ranks only, no percentages", 0, trust.tested)
    measured = f"were off by {100 * error:.0f} points on average on relations that were held out"
    sentence = f"no percentages: they {measured}" if rough else f"percentages {measured}"
    if trust is None:
        return TrustNote(False, not rough, sentence)
    return TrustNote(False, not rough, f"{trust.sentence()}; {sentence}", trust.found(), trust.tested)


def head_fans(graph: Graph) -> np.ndarray:
    """The logarithm of the mean number of edges per relation of each entity (entities,); computed once per graph."""
    return graph.once(_head_fans)


def _head_fans(graph: Graph) -> np.ndarray:
    slots = np.bincount(graph.head_ids[graph.slot_starts], minlength=len(graph.entities))
    return np.asarray(np.log(np.maximum(graph.degrees, 1) / np.maximum(slots, 1)))


def row_features(pairs: RankedPairs, fans: np.ndarray, trust: Trust | None) -> np.ndarray:
    """The features (n, FEATURES) of ranked pairs; `fans` (n,) are those of their heads."""
    rows = np.repeat(question_features(trust or Trust(0))[None], len(pairs), 0)
    shared = max(0.0, trust.fan if trust else 0.0)
    columns = {
        "log softmax": pairs.log_softmax,
        "log rank": np.log(pairs.ranks),
        "first": pairs.ranks < 2,
        "log softmax, fan": np.minimum(0, pairs.log_softmax + shared),
        "log softmax, head fan": np.minimum(0, pairs.log_softmax + fans),
        "margin": pairs.margins,
        "head fan": fans,
    }
    for name, column in columns.items():
        rows[:, FEATURES.index(name)] = column
    return rows


def question_features(trust: Trust) -> np.ndarray:
    """The features (FEATURES,) that all rows of a question share; the others are 0.

    The more right tails a head may have, the less it means that a reference was not found.
    """
    share = float(np.exp(-max(0.0, trust.fan)))
    values = {
        "constant": 1.0,
        "fan": trust.fan,
        "one reference": float(trust.shots == 1 and not trust.known),
        "found first": share * _smoothed(trust.found(1), trust.tested),
        "found in ten": share * _smoothed(trust.found(), trust.tested),
    }
    return np.array([values.get(name, 0.0) for name in FEATURES])


def _smoothed(found: int, tested: int) -> float:
    """The share found minus one half, shrunk towards 0 if few were tested."""
    return (found + 0.5) / (tested + 1) - 0.5


def vector(weights: Weights) -> np.ndarray:
    """Named weights as an array (FEATURES,)."""
    return np.array([weights.get(name, 0.0) for name in FEATURES])


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
