"""Rank the tails of heads as the evaluator does, without those that a constraint rules out.

Constraints are properties of a relation, such as "a head has at most one tail". They never change a score. By default
there is one: a head is not its own tail, unless a known pair says so. Users name others, or have "auto" infer them from
the known pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch

from fewlink.core.errors import FewlinkError, ScoreError, choose
from fewlink.graph import Graph
from fewlink.linker.names import Names
from fewlink.linker.query import References
from fewlink.models.contract import Question, Scorer, SeveralQuestionsScorer, realistic_rank

BACKGROUND = 50  # the rank, at most, whose score stands for wrong tails, even if a head has several right ones
SCORES_PER_CALL = 1 << 23  # 32 MB of float32, and some masks of that shape
KINDS = {
    "irreflexive": "a head is not its own tail",
    "functional": "a head has at most one tail",
    "inverse-functional": "a tail has at most one head",
    "symmetric": "pairs hold both ways",
    "types": "tails have a type that all tails of the references have",
}
MIRRORED = {"functional": "inverse-functional", "inverse-functional": "functional"}  # names from tail to head
WORDS = {"auto": "inferred from the known pairs", "none": "no constraint"}
MIN_PAIRS_FOR_AUTO = 10  # with fewer known pairs, "auto" infers no constraint but irreflexive
ConstraintChoice = str | Iterable[str] | None


@dataclass(frozen=True)
class RankedPairs:
    """Ranked pairs of a head and a tail, as arrays.

    Shapes: all (n,). `heads`, `tails` entities; `scores`; `ranks` among the candidates that are not known answers, ties
    at their mean, as in evaluation; `log_softmax` over the same candidates and the tail itself; `leads`, by how much
    the score exceeds the `background`; `known` bool.
    """

    heads: np.ndarray
    tails: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray
    log_softmax: np.ndarray
    leads: np.ndarray
    known: np.ndarray

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def alone(self) -> np.ndarray:
        """Whether no other tail competes for the head (n,)."""
        return np.asarray((self.log_softmax == 0) & ~self.known)

    def take(self, places: np.ndarray | slice) -> Self:
        return type(self)(*(getattr(self, field.name)[places] for field in fields(self)))

    def first_of_heads(self, k: int) -> Self:
        """The first k pairs of each head, in their order."""
        order = np.argsort(self.heads, kind="stable")
        begins = np.flatnonzero(np.diff(self.heads[order], prepend=-1))
        within = np.arange(len(self)) - np.repeat(begins, np.diff(begins, append=len(self)))
        return self.take(np.sort(order[within < k]))

    def moved(self, by: np.ndarray) -> Self:
        """Add `by` (n,) to the scores, and update the rest; unlisted tails and the background keep their scores.

        The rows of a head are consecutive, and keep their order.
        """
        scores = self.scores + by
        ranks = scores.copy()
        log_softmax = scores.copy()
        begins = np.flatnonzero(np.diff(self.heads, prepend=-1))
        for rows in np.split(np.arange(len(scores)), begins[1:]) if len(scores) else []:
            own = scores[rows]
            unlisted = max(1 - float(np.exp(self.log_softmax[rows]).sum()), 0.0)  # share of the softmax before
            before = self.scores[rows[0]] - self.log_softmax[rows[0]]
            total = np.logaddexp(np.logaddexp.reduce(own), before + np.log(unlisted) if unlisted else -np.inf)
            above = (own[:, None] < own).sum(1)
            equal = (own[:, None] == own).sum(1) - 1
            ranks[rows] = realistic_rank(above, equal)
            log_softmax[rows] = own - total
        leads = self.leads + by
        return replace(self, scores=scores, ranks=ranks, log_softmax=log_softmax, leads=leads)

    @classmethod
    def joined(cls, parts: Sequence[RankedPairs]) -> Self:
        if not parts:
            return cls(*(np.zeros(0, kind) for kind in (np.int32, np.int32, *[float] * 4, bool)))
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def rank_tails(
    scorer: Scorer,
    question: Question,
    k: int,
    known_tails: Callable[[int], np.ndarray],
    *,
    with_known: bool = False,
    allowed: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> Iterator[RankedPairs]:
    """Yield the k best tails of each head of a question; `known_tails` maps a head to its known answers (m,).

    `allowed` maps a head and the candidates (c,) to whether each of them competes (c,); by default all do.
    """
    for place, scores in score_heads(scorer, question):
        head = int(question.heads[place])
        candidates = question.candidates
        if allowed is not None:
            may = allowed(head, candidates)
            candidates = candidates[may]
            scores = scores[may]
        yield rank_head(head, candidates, scores, known_tails(head), k, with_known)


def score_heads(scorer: Scorer, question: Question) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index of each head and its scores (c,); as many heads are scored together as memory allows."""
    most = max(1, SCORES_PER_CALL // max(1, len(question.candidates)))
    for begin in range(0, len(question.heads), most):
        part = replace(question, heads=question.heads[begin : begin + most])
        yield from enumerate(_checked(scorer, part, scorer(part)), begin)


def score_questions(scorer: Scorer, questions: Sequence[Question]) -> list[list[np.ndarray]]:
    """For each question the scores (c,) of its heads, all questions at once if the scorer can and memory allows."""
    if isinstance(scorer, SeveralQuestionsScorer):
        count = sum(len(question.heads) * len(question.candidates) for question in questions)
        if count <= SCORES_PER_CALL:
            answers = scorer.each(questions)
            return [[*_checked(scorer, *each)] for each in zip(questions, answers, strict=True)]
    return [[scores for _, scores in score_heads(scorer, question)] for question in questions]


def _checked(scorer: Scorer, question: Question, answer: torch.Tensor | np.ndarray) -> np.ndarray:
    """The answer (h, c) of a scorer, if it has a finite score for each head and candidate."""
    scores = answer.detach().cpu().numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)
    if scores.shape != (len(question.heads), len(question.candidates)) or not np.isfinite(scores).all():
        count = len(question.candidates)
        raise ScoreError(f"scorer '{scorer.name}' did not return a finite score for each of {count} candidates")
    return scores


def rank_head(
    head: int, candidates: np.ndarray, scores: np.ndarray, known: np.ndarray, k: int, with_known: bool
) -> RankedPairs:
    """The k best of sorted candidates (c,) with these scores (c,), best first; ties in the order of the candidates.

    Known answers (m,) do not compete, and are returned only `with_known`.
    """
    places = np.searchsorted(candidates, known)
    inside = places < len(candidates)
    inside[inside] = candidates[places[inside]] == known[inside]
    is_known = np.zeros(len(candidates), bool)
    is_known[places[inside]] = True
    rivals = scores[~is_known]
    columns = np.arange(len(candidates)) if with_known else np.flatnonzero(~is_known)
    best = columns[_top(scores[columns], k)]
    values = scores[best]
    known_best = is_known[best]
    top = np.sort(rivals[rivals >= values.min()]) if len(values) else rivals[:0]
    below, up_to = (np.searchsorted(top, values, side) for side in ("left", "right"))
    ranks = realistic_rank(len(top) - up_to, up_to - below - ~known_best)
    total = float(torch.from_numpy(rivals).double().logsumexp(0))
    precise = values.astype(np.float64)
    log_softmax = precise - np.where(known_best, np.logaddexp(total, precise), total)
    leads = precise - background(rivals) if len(rivals) else np.zeros(len(best))
    heads = np.full(len(best), head, np.int32)
    return RankedPairs(heads, candidates[best], precise, ranks, log_softmax, leads, known_best)


def background(scores: np.ndarray) -> float:
    """The score (of c) of rank `BACKGROUND`, or of the middle candidate if there are fewer than twice as many."""
    rank = min(BACKGROUND, max(2, len(scores) // 2), len(scores))
    return float(torch.from_numpy(scores).topk(rank).values[-1])  # np.partition is slow if millions are equal


def _top(scores: np.ndarray, k: int) -> np.ndarray:
    """The indexes of the k highest scores, highest first; ties in order."""
    if k < len(scores):
        least = np.asarray(torch.from_numpy(scores).topk(k).values)[-1]
        above = np.flatnonzero(scores > least)
        places = np.sort(np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]]))
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


def check_kinds(choice: ConstraintChoice) -> tuple[str, ...]:
    """The names in a choice of constraints; raises for unknown names, and for "none" with others."""
    kinds = (choice,) if isinstance(choice, str) else tuple(choice or ())
    for kind in kinds:
        choose("constraint", kind, {**KINDS, **WORDS})
    if "none" in kinds and len(set(kinds)) > 1:
        raise FewlinkError("constraint 'none' excludes all others: leave it out, or give no other")
    return kinds


@dataclass(frozen=True)
class Constraints:
    """The constraints of one query.

    `inferred` come from the known pairs, `named` from the user. `too_few` says that "auto" had too few known pairs.
    """

    graph: Graph
    references: References
    inferred: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    too_few: bool = False

    @classmethod
    def of(cls, choice: ConstraintChoice, graph: Graph, references: References) -> Constraints:
        """Choose constraints: "none" for none; otherwise irreflexive if no known pair is reflexive, and the named ones.

        "auto" infers all that the known pairs satisfy. Raises if a known pair violates a named constraint.
        """
        kinds = check_kinds(choice)
        empty = cls(graph, references)
        if kinds == ("none",):
            return empty
        named = frozenset(empty.mirrored(kind) for kind in kinds) & frozenset(KINDS)
        for kind in sorted(named):
            problem = empty._problem(kind)
            if problem:
                name = empty.mirrored(kind)
                raise FewlinkError(f"constraint '{name}' ({empty.words(name)}) does not hold here: {problem}")
        enough = len(empty.known) >= MIN_PAIRS_FOR_AUTO
        inferable = KINDS if "auto" in kinds and enough else ["irreflexive"]
        inferred = frozenset(kind for kind in inferable if kind not in named and empty._holds(kind))
        return cls(graph, references, inferred, named, too_few="auto" in kinds and not enough)

    def mirrored(self, kind: str) -> str:
        """The user's name for a kind, and back: in a query for heads, some kinds swap names."""
        return MIRRORED.get(kind, kind) if self.references.inverse else kind

    def words(self, kind: str) -> str:
        """The meaning of a kind, by the user's name for it."""
        return KINDS[kind].replace("tails", "heads") if kind == "types" and self.references.inverse else KINDS[kind]

    @functools.cached_property
    def kinds(self) -> frozenset[str]:
        """All constraints in force."""
        return self.inferred | self.named

    @functools.cached_property
    def known(self) -> np.ndarray:
        """The distinct known pairs (n, 2): the references and the pairs of the named relation."""
        relation = self.references.relation
        pairs = self.references.ids
        return np.unique(pairs if relation is None else np.concatenate([pairs, relation.pairs()]), axis=0)

    def _problem(self, kind: str) -> str:
        """How the known pairs violate a constraint; empty if they do not."""
        heads, tails = self.known.T
        names = Names(self.graph)
        if kind == "irreflexive" and (heads == tails).any():
            return f"{names.quoted(int(heads[heads == tails][0]))} is its own tail"
        for one, column, others, what in (
            ("functional", heads, tails, "tails"),
            ("inverse-functional", tails, heads, "heads"),
        ):
            values, counts = np.unique(column, return_counts=True)
            if kind == one and (counts > 1).any():
                several = int(values[counts > 1][0])
                first, second = others[column == several][:2].tolist()
                what = {"heads": "tails", "tails": "heads"}[what] if self.references.inverse else what
                return f"{names.quoted(several)} has the {what} {names.quoted(first)} and {names.quoted(second)}"
        if kind == "types" and not len(self._typed):
            if self.graph.types is None:
                return "the graph has no types"
            return f"the references' {self._end}s share no type"
        return ""

    def _holds(self, kind: str) -> bool:
        """Whether all known pairs satisfy a constraint."""
        if kind == "symmetric":
            return {(h, t) for h, t in self.known.tolist()} == {(t, h) for h, t in self.known.tolist()}
        return not self._problem(kind) and (kind != "types" or bool(np.isin(self.known[:, 1], self._typed).all()))

    @functools.cached_property
    def _typed(self) -> np.ndarray:
        """The entities (n,), sorted, with a type that all tails of the references share."""
        types = self.graph.types
        tails = np.unique(self.references.ids[:, 1])
        if types is None:
            return np.zeros(0, np.int32)
        shared = set(types.of_entities(tails[:1]).tolist())
        for tail in tails[1:]:
            shared &= set(types.of_entities(np.array([tail])).tolist())
        return types.members(np.array(sorted(shared), np.int64))

    @property
    def _end(self) -> str:
        """The end of a pair that the query is for."""
        return "head" if self.references.inverse else "tail"

    def open_heads(self, heads: np.ndarray) -> np.ndarray:
        """The heads among `heads` (h,) that may have another tail."""
        return heads[~np.isin(heads, self.known[:, 0])] if "functional" in self.kinds else heads

    def allowed(self, head: int, candidates: np.ndarray) -> np.ndarray:
        """Whether each candidate (c,) may be a tail of a head: (c,) bool. Known tails may, rejected ones may not."""
        kinds = self.kinds
        heads, tails = self.known.T
        may = np.ones(len(candidates), bool)
        if "irreflexive" in kinds:
            may &= candidates != head
        if "functional" in kinds and (heads == head).any():
            may[:] = False
        if "inverse-functional" in kinds:
            may &= ~np.isin(candidates, tails)
        if "symmetric" in kinds:
            may &= ~np.isin(candidates, heads[tails == head])
        if "types" in kinds:
            may &= np.isin(candidates, self._typed)
        may |= np.isin(candidates, tails[heads == head])
        rejected = self.references.rejected_ids
        return np.asarray(may & ~np.isin(candidates, rejected[rejected[:, 0] == head, 1]))

    @property
    def between_pairs(self) -> bool:
        """Whether one predicted pair can rule out another."""
        return bool(self.kinds & {"functional", "inverse-functional", "symmetric"})

    def settle(self, pairs: RankedPairs, key: np.ndarray, k: int, overall: bool) -> RankedPairs:
        """Drop the ranked pairs that better ones rule out, and keep the order; a larger `key` (n,) is better.

        Pairs are chosen one by one, the best first. If `overall`, the chosen pairs are the result, at most k; otherwise
        each head keeps at most k of its tails, without those chosen for another head.
        """
        kinds = self.kinds
        heads = pairs.heads.tolist()
        tails = pairs.tails.tolist()
        by_head: dict[int, int] = {}
        by_tail: dict[int, int] = {}
        chosen: set[tuple[int, int]] = set()
        kept = np.zeros(len(pairs), bool)
        one_tail = "functional" in kinds or not overall
        one_head = "inverse-functional" in kinds
        for place in np.argsort(-key, kind="stable").tolist():
            head = heads[place]
            tail = tails[place]
            if pairs.known[place]:
                kept[place] = True
                continue
            twice = "symmetric" in kinds and overall and (tail, head) in chosen
            if (one_tail and head in by_head) or (one_head and tail in by_tail) or twice:
                continue
            by_head[head] = tail
            by_tail[tail] = head
            kept[place] = True
            chosen.add((head, tail))
        if not overall:
            free = [not one_head or by_tail.get(t, h) == h for h, t in zip(heads, tails, strict=True)]
            kept |= np.array(free, bool)
        places = np.flatnonzero(kept)
        if overall:
            return pairs.take(places[:k])
        return pairs.take(places).first_of_heads(k)

    def notes(self, heads: np.ndarray, candidates: np.ndarray) -> list[str]:
        """Notes on the constraints in force and on the heads that they skip."""
        inferred = self.inferred
        if not np.isin(heads, candidates).any():  # no head is among the candidates
            inferred -= {"irreflexive"}
        source = "references" if self.references.relation is None else "known pairs"
        used = []
        for kind in KINDS:
            if self.mirrored(kind) in self.named:
                used.append(f"{self.words(kind)} ({kind}, given)")
            elif self.mirrored(kind) in inferred:
                used.append(f"{self.words(kind)} ({kind}, read off the {source})")
        notes = [f"constraints: {'; '.join(used)}"] if used else []
        if self.too_few:
            notes.append(
                f"auto infers constraints from {MIN_PAIRS_FOR_AUTO} known pairs or more: {len(self.known)} are known"
            )
        closed = np.setdiff1d(heads, self.open_heads(heads))
        if len(closed):
            notes.append(f"skipped, because a {self._end} is known already: {Names(self.graph).listed(closed)}")
        return notes
