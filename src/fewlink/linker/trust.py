"""How far answers can be trusted: does the model find references again that are held out, and is there any evidence?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.core.seeds import by_hash
from fewlink.graph import Graph
from fewlink.linker.query import References, Relation
from fewlink.linker.ranking import score_questions
from fewlink.models.contract import EvidenceScorer, Question, Scorer, realistic_rank
from fewlink.tasks.candidates import open_candidates

IN_TURN = 5  # references at most, if they are held out one after the other
MAX_IN_TURN = 2  # of these, which are the first
TOGETHER = 16  # of more references, those that are held out at once, evenly spaced
NO_PATH = "no path joins {} to the references"
SINGLE = "there is a single candidate for {}"
FOUND_RANK = 10  # the last rank at which a reference counts as found
HARDLY_ANY = 0.1  # share of heads with several tails up to which heads have one
MANY_CANDIDATES = 50  # from this number on, answers count as having enough candidates


@dataclass(frozen=True)
class TrustNote:
    """How far the answers to a question can be trusted, as a `sentence`.

    `shown` says whether they have probabilities; `low` marks answers whose references are hardly found again. `found`
    of `tested` references ranked in the first ten when they were held out, or first of at most ten candidates.
    """

    low: bool
    shown: bool
    sentence: str
    found: int = 0
    tested: int = 0


@dataclass(frozen=True)
class Trust:
    """What is known about a question, and how well its references predict each other.

    shots       the number of references
    ranks       the ranks of the tails of held-out references, with the others as references; empty if there is only
                one reference, or if the model sees the relation in the graph, so that nothing can be held out
    domain      the number of entities like the references' heads
    known       whether the model sees the relation in the graph
    largest     the number of references with the most frequent tail
    whole       whether the references are the known pairs of a relation, at least half of them, and not just examples
    candidates  the number of candidates
    """

    shots: int
    ranks: tuple[float, ...] = ()
    domain: int = 1
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
        known=known,
        largest=int(np.unique(pairs[:, 1], return_counts=True)[1].max()),
        whole=whole,
        candidates=len(tails) if candidates is None else len(candidates),
    )


def is_whole(references: int, relation: Relation) -> bool:
    """Whether the references are most of the known pairs of a relation, so that they stand for the whole of it."""
    return 2 * references >= len(relation.pairs())


def held_out(count: int) -> list[np.ndarray]:
    """Which of `count` references to hold out: sets of their places, each of which is held out at once."""
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
    warning = "low trust: " if low else ""
    return TrustNote(low, not rough, f"{warning}{trust.sentence()}; {_measured(error, rough)}", *counts)


def _measured(error: float, rough: bool) -> str:
    measured = f"were off by {100 * error:.0f} points on average on relations that were held out"
    return f"ranks only: percentages {measured}" if rough else f"percentages {measured}"


def evidence_for(scorer: Scorer, graph: Graph, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Whether the scorer has any evidence for each head (n,), given references (K, 2).

    A scorer that does not tell has some if a path of the graph joins the head to an end of a reference.
    """
    if isinstance(scorer, EvidenceScorer):
        return scorer.has_evidence(references, heads)
    return graph.joined(references, heads)


class Answered:
    """The heads that already have their tail, if heads have only one (such as a father) by the known pairs (n, 2)."""

    def __init__(self, pairs: np.ndarray) -> None:
        heads, tails = np.unique(pairs[:, 0], return_counts=True)
        several = int((tails > 1).sum())
        self.share = (several + 1) / (len(heads) + 2)  # of heads with several, by the rule of succession
        self.heads = heads if self.share <= HARDLY_ANY else heads[:0]

    def chances(self, heads: np.ndarray) -> np.ndarray:
        """The factor (h,) by which a further tail of each head is less probable."""
        return np.where(np.isin(heads, self.heads), self.share, 1.0)
