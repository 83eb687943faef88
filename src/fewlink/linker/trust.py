"""What tells how far answers can be trusted besides their scores: are the references found when they are held out?

`Trust` is what is known of a question; `row_features` are what a calibration reads of its answers; `expected_error` is
how far probabilities are off.
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

MOST = 3  # references that are held out: each costs as much as a new relation
BINS = 10
FIRST = 10  # ranks up to which a reference counts as found

# What the regression reads of each row, and the sign that keeps a better rank of a head at least as probable.
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
    "found first": 0,  # share of the held-out references with rank 1, less one half
    "found in ten": 0,
}
FEATURES = tuple(SIGNS)
Weights = Mapping[str, float]


@dataclass(frozen=True)
class Trust:
    """What is known about a question besides its scores.

    `shots`: the number of references. `ranks` (n,): of the tails of references that were held out, with the others as
    references; empty if there is one reference, or if the graph has the relation itself, so that nothing can be held
    out (`known`; `relation` is its name if the user did not give it). `fan`: the logarithm of the number of entities
    like the references' tails over that of entities like their heads; a high one suggests several tails for each head.
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

    def found(self, first: int = FIRST) -> int:
        """The number of held-out references with a rank up to `first`."""
        return sum(rank <= first for rank in self.ranks)

    @property
    def share_found(self) -> float:
        """The share of the held-out references that was found in the first ten; 1 if none was held out."""
        return self.found() / self.tested if self.ranks else 1.0

    def sentence(self) -> str:
        """What was found, in words."""
        if self.known:
            return already_there(self.relation) if self.relation else "the graph has this relation"
        if not self.ranks:
            return "one reference alone cannot be held out"
        tried = f"the {self.tested} tried" if self.tested < self.shots else f"your {self.tested}"
        return f"it would have found {self.found()} of {tried} references in its first ten"


def already_there(relation: str) -> str:
    """What is said of references that a relation of the graph, which the user did not name, holds for."""
    between = f"the graph has the relation {relation} between all references"
    return f"{between}: name it as the relation to leave out what it already holds"


def measure_trust(
    scorer: Scorer,
    graph: Graph,
    references: References,
    candidates: np.ndarray | None = None,
) -> Trust:
    """Hold out the first references in turn, and rank their tails among the candidates (c,) of the question.

    By default the candidates are the entities like the tails of the other references. The rank of a tail that is not
    among them is infinite.
    """
    pairs, relation = references.ids, references.relation
    tails, heads = (len(open_candidates(graph, each)) for each in (pairs, pairs[:, ::-1]))
    fan = float(np.log(max(tails, 1) / max(heads, 1)))
    known = relation is not None and (relation.number >= 0 or relation.trained)
    if known or len(pairs) < 2:
        return Trust(len(pairs), fan=fan, known=known)
    ranks = []
    for place in range(min(len(pairs), MOST)):
        rest, (head, tail) = np.delete(pairs, place, axis=0), pairs[place].tolist()
        among = open_candidates(graph, rest) if candidates is None else candidates
        (_, scores), *_ = score_heads(scorer, Question("", rest, pairs[place : place + 1, 0], among))
        rivals, own = scores[~np.isin(among, references.known_tails(head))], scores[among == tail]
        ranks.append(_rank(rivals, float(own[0])) if len(own) else np.inf)
    return Trust(len(pairs), tuple(ranks), fan)


def _rank(rivals: np.ndarray, score: float) -> float:
    return float(realistic_rank((rivals > score).sum(), (rivals == score).sum()))


def trust_note(trust: Trust | None, low: bool, error: float, rough: bool) -> TrustNote:
    """How far to trust the answers, in words; `error` is the measured one of percentages, `rough` if it is large."""
    if trust is not None and low:
        sentence = f"low trust: {trust.sentence()}; ranks only, no percentages"
        return TrustNote(True, False, sentence, trust.found(), trust.tested)
    if trust is not None and trust.known:
        return TrustNote(False, False, f"{trust.sentence()}; no percentages: they are for relations that it lacks")
    if trust is not None and trust.ranks and not trust.found():
        return TrustNote(False, False, f"{trust.sentence()}; ranks only, no percentages", 0, trust.tested)
    measured = f"were off by {100 * error:.0f} points on average on relations that were held out"
    sentence = f"no percentages: they {measured}" if rough else f"percentages {measured}"
    if trust is None:
        return TrustNote(False, not rough, sentence)
    return TrustNote(False, not rough, f"{trust.sentence()}; {sentence}", trust.found(), trust.tested)


def head_fans(graph: Graph) -> np.ndarray:
    """For each entity (entities,), the logarithm of its mean number of edges in a relation; computed once."""
    return graph.once(_head_fans)


def _head_fans(graph: Graph) -> np.ndarray:
    slots = np.bincount(graph.head_ids[graph.slot_starts], minlength=len(graph.entities))
    return np.asarray(np.log(np.maximum(graph.degrees, 1) / np.maximum(slots, 1)))


def row_features(pairs: RankedPairs, fans: np.ndarray, trust: Trust | None) -> np.ndarray:
    """The features (n, FEATURES) of pairs whose heads have these fans (n,)."""
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
    """The features (FEATURES,) that all rows of a question share; 0 for the others.

    A reference that is not found says the less, the more right tails its head may have.
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
    """The share found, less one half, drawn towards 0 where few were tested."""
    return (found + 0.5) / (tested + 1) - 0.5


def vector(weights: Weights) -> np.ndarray:
    """Weights by name as an array (FEATURES,)."""
    return np.array([weights.get(name, 0.0) for name in FEATURES])


def named(weights: np.ndarray) -> Weights:
    return dict(zip(FEATURES, weights.tolist(), strict=True))


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability from `low` to `high`: how many, their mean, and the share of right ones."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


def reliability_bins(predicted: np.ndarray, right: np.ndarray) -> tuple[Bin, ...]:
    """Bins of equal width; empty ones are left out."""
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
