"""Rank the tails of heads as the evaluator does, and keep the best as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch

from fewlink.core.errors import ScoreError
from fewlink.core.metrics import realistic_rank
from fewlink.core.threads import parallel_map
from fewlink.models.contract import Question, Scorer, SeveralQuestionsScorer, capabilities

MAX_MARGIN = 6.0
BACKGROUND = 50  # the rank, at most, whose score stands for wrong tails, even if a head has several right ones
SCORES_PER_CALL = 1 << 23  # 32 MB of float32, and some masks of that shape


@dataclass(frozen=True)
class RankedPairs:
    """Ranked pairs of a head and a tail, as arrays.

    Shapes: all (n,). `heads`, `tails` entities; `scores`; `ranks` among the candidates that are not known answers, ties
    at their mean, as in evaluation; `log_softmax` over the same candidates and the tail itself; `margins`, the
    difference between the head's two best scores, at most `MAX_MARGIN`; `leads`, by how much the score exceeds the
    `background`; `known` bool.
    """

    heads: np.ndarray
    tails: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray
    log_softmax: np.ndarray
    margins: np.ndarray
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

    def inverted(self) -> Self:
        """Heads and tails exchanged."""
        return replace(self, heads=self.tails, tails=self.heads)

    def moved(self, by: np.ndarray) -> Self:
        """Add `by` (n,) to the scores, and update the rest; unlisted tails and the background keep their scores.

        The rows of a head are consecutive, and keep their order.
        """
        scores = self.scores + by
        ranks = scores.copy()
        log_softmax = scores.copy()
        margins = scores.copy()
        begins = np.flatnonzero(np.diff(self.heads, prepend=-1))
        for rows in np.split(np.arange(len(scores)), begins[1:]) if len(scores) else []:
            own = scores[rows]
            unlisted = max(1 - float(np.exp(self.log_softmax[rows]).sum()), 0.0)  # share of the softmax before
            before = self.scores[rows[0]] - self.log_softmax[rows[0]]
            total = np.logaddexp(_log_sum_exp(own), before + np.log(unlisted) if unlisted else -np.inf)
            above = (own[:, None] < own).sum(1)
            equal = (own[:, None] == own).sum(1) - 1
            ranks[rows] = realistic_rank(above, equal)
            log_softmax[rows] = own - total
            margins[rows] = _margin(own)
        leads = self.leads + by
        return replace(self, scores=scores, ranks=ranks, log_softmax=log_softmax, margins=margins, leads=leads)

    @classmethod
    def joined(cls, parts: Sequence[RankedPairs]) -> Self:
        if not parts:
            return cls(*(np.zeros(0, kind) for kind in (np.int32, np.int32, *[float] * 5, bool)))
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
    """For each question the scores (c,) of its heads, side by side if the scorer can and memory allows."""
    if isinstance(scorer, SeveralQuestionsScorer):
        count = sum(len(question.heads) * len(question.candidates) for question in questions)
        if count <= SCORES_PER_CALL:
            answers = scorer.each(questions)
            return [[*_checked(scorer, *each)] for each in zip(questions, answers, strict=True)]

    def answer(question: Question) -> list[np.ndarray]:
        return [scores for _, scores in score_heads(scorer, question)]

    side_by_side = len(questions) > 1 and capabilities(scorer).thread_safe
    return parallel_map(answer, questions) if side_by_side else [answer(question) for question in questions]


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
    total = _log_sum_exp(rivals)
    precise = values.astype(np.float64)
    log_softmax = precise - np.where(known_best, np.logaddexp(total, precise), total)
    margins = np.full(len(best), _margin(rivals))
    leads = precise - background(rivals) if len(rivals) else np.zeros(len(best))
    heads = np.full(len(best), head, np.int32)
    return RankedPairs(heads, candidates[best], precise, ranks, log_softmax, margins, leads, known_best)


def background(scores: np.ndarray) -> float:
    """The score (of c) of rank `BACKGROUND`, or of the middle candidate if there are fewer than twice as many."""
    rank = min(BACKGROUND, max(2, len(scores) // 2), len(scores))
    return float(_highest(scores, rank)[-1])


def _margin(scores: np.ndarray) -> float:
    """The difference between the two highest scores, at most `MAX_MARGIN`."""
    if len(scores) < 2:
        return MAX_MARGIN
    first, second = _highest(scores, 2).astype(float)
    return float(min(first - second, MAX_MARGIN))


def _highest(scores: np.ndarray, k: int) -> np.ndarray:
    """The k highest scores (k,), highest first. `np.partition` is slow if millions of scores are equal."""
    return np.asarray(torch.from_numpy(scores).topk(k).values)


def _top(scores: np.ndarray, k: int) -> np.ndarray:
    """The indexes of the k highest scores, highest first; ties in order."""
    if k < len(scores):
        least = _highest(scores, k)[-1]
        above = np.flatnonzero(scores > least)
        places = np.sort(np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]]))
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


def _log_sum_exp(scores: np.ndarray) -> float:
    if not len(scores):
        return -np.inf
    most = float(scores.max())
    return most + float(np.log(np.exp(scores.astype(np.float64) - most).sum()))
