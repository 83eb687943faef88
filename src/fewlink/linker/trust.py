"""How far answers can be trusted: does the model find references again that are held out, and is there any evidence?

`Trust` holds what is known about one question, `row_features` turns it and the scores into the features of a
calibration, `evidence_for` says which heads have any evidence, `Answered` which have their tail already, and
`expected_error` measures how far probabilities are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fewlink.core.metrics import realistic_rank
from fewlink.core.seeds import by_hash
from fewlink.graph import Graph
from fewlink.graph.components import joined
from fewlink.linker.predictions import TrustNote
from fewlink.linker.query import References, Relation
from fewlink.linker.ranking import RankedPairs, score_questions
from fewlink.models.contract import EvidenceScorer, Question, Scorer
from fewlink.tasks.candidates import open_candidates

IN_TURN = 5
MAX_IN_TURN = 2  # of up to five references, the first two are held out one after the other
TOGETHER = 16  # of more, up to sixteen, evenly spaced, are held out at once
BINS = 10
NO_PATH = "no path joins {} to the references"
SINGLE = "there is a single candidate for {}"
FOUND_RANK = 10  # the last rank at which a reference counts as found
HARDLY_ANY = 0.1  # share of heads with several tails up to which heads have one

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
MANY_CANDIDATES = 50
MAX_LOG_ODDS = 5.0  # beyond which the odds of the softmax make no difference, in either direction twice as far below
PRIOR = 3.0  # references that must be held out for their share to count half
USUALLY_OUTSIDE = 0.3  # the share outside that is assumed if no reference was held out


@dataclass(frozen=True)
class Trust:
    """What is known about a question, and how well its references predict each other.

    shots       the number of references
    ranks       the ranks of the tails of held-out references, with the others as references; empty if there is only
                one reference, or if the model sees the relation in the graph, so that nothing can be held out
    domain      the number of entities like the references' heads
    fan         log(entities like the references' tails / entities like their heads); a high value suggests several
                tails for each head
    known       whether the model sees the relation in the graph
    largest     the number of references with the most frequent tail
    whole       whether the references are the known pairs of a relation, at least half of them, and not just examples
    candidates  the number of candidates
    """

    shots: int
    ranks: tuple[float, ...] = ()
    domain: int = 1
    fan: float = 0.0
    known: bool = False
    largest: int = 1
    whole: bool = False
    candidates: int = MANY_CANDIDATES

    @property
    def tested(self) -> int:
        """The number of references that were held out."""
        return len(self.ranks)

    def found(self, last_rank: int = FOUND_RANK) -> int:
        """The number of held-out references that rank at `last_rank` or better."""
        return sum(rank <= last_rank for rank in self.ranks)

    @property
    def last_rank(self) -> int:
        """The last rank at which a reference is reported as found: among ten candidates, all are in the first ten."""
        return FOUND_RANK if self.candidates > FOUND_RANK else 1

    @property
    def share_found(self) -> float:
        """The share of the held-out references in the first ten; 1 if none was held out."""
        return self.found() / self.tested if self.ranks else 1.0

    @property
    def skew(self) -> float:
        """How far one tail crowds out the others: 0 if all references have different tails, near 1 if all have one."""
        return (self.largest - 1) / max(self.shots, 1)

    def sentence(self) -> str:
        """The result in words."""
        if self.known:
            return "the model sees this relation in the graph"
        if not self.ranks:
            return "one reference alone cannot be held out"
        found = self.found(self.last_rank)
        was = "was" if found < 2 else "were"
        where = "found in the first ten" if self.last_rank > 1 else f"first among {self.candidates} candidates"
        if self.tested == self.shots:
            return f"{found or 'none'} of your {self.shots} references {was} {where} when held out"
        number = {0: "none", self.tested: "both" if self.tested == 2 else "all"}.get(found, str(found))
        return f"{self.tested} of {self.shots:,} references were held out, and {number} {was} {where}"


def measure_trust(
    scorer: Scorer,
    graph: Graph,
    references: References,
    candidates: np.ndarray | None = None,
    hidden: int | None = None,
) -> Trust:
    """Hold out some references, and rank the tail of each among the candidates (c,) of the question.

    Up to `IN_TURN` references are held out one at a time; of more, up to `TOGETHER` are held out at once, because each
    set of references costs as much as a new relation. The scorer may read these sets side by side, together with all
    references, which the question that follows needs. By default the candidates are the entities like the tails of the
    references that are left. A tail that is not a candidate has an infinite rank. `hidden` is the relation of the graph
    that the scorer does not see. It does not choose candidates either, because it joins the pairs that are held out.
    """
    pairs = by_hash(references.ids)
    relation = references.relation
    tails, heads = (open_candidates(graph, each, hidden) for each in (pairs, pairs[:, ::-1]))
    known = relation is not None and (relation.number >= 0 or relation.trained)
    whole = relation is not None and not known and is_whole(len(pairs), relation)

    sets = [] if known else held_out(len(pairs))
    questions = []
    for places in sets:
        rest = np.delete(pairs, places, axis=0)
        among = open_candidates(graph, rest, hidden) if candidates is None else candidates
        questions.append(Question("", rest, np.unique(pairs[places, 0]), among))
    following = Question("", pairs, pairs[:0, 0], tails if candidates is None else candidates)
    found = score_questions(scorer, [*questions, following]) if questions else []
    ranks = []
    for places, question, rows in zip(sets, questions, found, strict=False):
        scores_of = dict(zip(question.heads.tolist(), rows, strict=True))
        for head, tail in pairs[places].tolist():
            scores = scores_of[head]
            among = question.candidates
            rivals = scores[~np.isin(among, references.known_tails(head))]
            score = scores[among == tail]  # (1,), or (0,) if the tail is not a candidate
            rank = realistic_rank((rivals > score).sum(), (rivals == score).sum()) if len(score) else np.inf
            ranks.append(float(rank))
    return Trust(
        shots=len(pairs),
        ranks=tuple(ranks),
        domain=len(heads),
        fan=float(np.log(max(len(tails), 1) / max(len(heads), 1))),
        known=known,
        largest=int(np.unique(pairs[:, 1], return_counts=True)[1].max()),
        whole=whole,
        candidates=len(tails) if candidates is None else len(candidates),
    )


def is_whole(references: int, relation: Relation) -> bool:
    """Whether so many references stand for the known pairs of a relation, and are not just examples."""
    return 2 * references >= len(relation.pairs())


def held_out(count: int) -> list[np.ndarray]:
    """The places of the references to hold out, of so many: sets that are held out one after the other."""
    if count < 2:
        return []
    if count <= IN_TURN:
        return [np.array([place]) for place in range(min(count, MAX_IN_TURN))]
    together = min(max(count // 3, MAX_IN_TURN), TOGETHER)
    return [np.linspace(0, count - 1, together).round().astype(int)]


def no_percentages(why: str) -> str:
    """A note that answers have no percentages."""
    return f"{why}: ranks only, no percentages"


def trust_note(trust: Trust | None, low: bool, error: float, rough: bool) -> TrustNote:
    """How far to trust the answers, in words; `error` is that of the percentages, and `rough` says it is large."""
    if trust is None:
        return TrustNote(False, not rough, _measured(error, rough))
    counts = trust.found(trust.last_rank), trust.tested
    if trust.known:
        return TrustNote(False, False, f"{trust.sentence()}; ranks only, no percentages", *counts)
    sentence = f"{'low trust: ' * low}{trust.sentence()}; {_measured(error, rough)}"
    return TrustNote(low, not rough, sentence, *counts)


def _measured(error: float, rough: bool) -> str:
    measured = f"were off by {100 * error:.0f} points on average on relations that were held out"
    return f"ranks only: percentages {measured}" if rough else f"percentages {measured}"


def evidence_for(scorer: Scorer, graph: Graph, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Whether the scorer has any evidence for each head (n,), given references (K, 2).

    A scorer that does not tell has some if a path of the graph joins the head to an end of a reference.
    """
    if isinstance(scorer, EvidenceScorer):
        return scorer.has_evidence(references, heads)
    return joined(graph, references, heads)


class HeadFans:
    """The logarithm of the mean number of edges per relation of entities: `fans[heads]` (n,).

    A `hidden` relation, which the model does not see, does not count.
    """

    def __init__(self, graph: Graph, hidden: int | None = None) -> None:
        self.graph = graph
        self.hidden = hidden

    def __getitem__(self, heads: np.ndarray) -> np.ndarray:
        own, which = np.unique(heads, return_inverse=True)
        firsts, counts, owners = self.graph.slots_of(own)
        if self.hidden is not None:
            kept = self.graph.relation_ids[firsts] % len(self.graph.relations) != self.hidden
            counts = counts[kept]
            owners = owners[kept]
        slots = np.bincount(owners, minlength=len(own))
        edges = np.bincount(owners, counts, len(own))
        return np.asarray(np.log(np.maximum(edges, 1) / np.maximum(slots, 1)))[which]


class Answered:
    """Which heads of a relation with these known pairs (n, 2) have their tail, if heads have one, as a person has one
    father."""

    def __init__(self, pairs: np.ndarray) -> None:
        heads, tails = np.unique(pairs[:, 0], return_counts=True)
        several = int((tails > 1).sum())
        self.share = (several + 1) / (len(heads) + 2)  # of heads with several, by the rule of succession
        self.heads = heads if self.share <= HARDLY_ANY else heads[:0]

    def chances(self, heads: np.ndarray) -> np.ndarray:
        """The factor (h,) by which a further tail of each head is less probable."""
        return np.where(np.isin(heads, self.heads), self.share, 1.0)


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
