"""The best tails of each head from a grid of scores, with the ranks that the evaluator would give them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch

from fewlink.base.errors import ScoreError
from fewlink.scorers import Question, Scorer

SCORED_AT_ONCE = 1 << 23  # scores held at once: 32 MB of float32, and some masks of that shape


@dataclass(frozen=True)
class Rows:
    """Ranked pairs of a head and a tail.

    Shapes: all (n,). `heads`, `tails` entities; `scores`; `ranks` among the candidates that are not known answers, ties
    at their mean, as in evaluation; `chances` log softmax over the same candidates and the tail itself; `known` bool.
    """

    heads: np.ndarray
    tails: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray
    chances: np.ndarray
    known: np.ndarray

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, places: np.ndarray) -> Self:
        return type(self)(*(getattr(self, field.name)[places] for field in fields(self)))

    @classmethod
    def joined(cls, parts: list[Rows]) -> Self:
        if not parts:
            return cls(*(np.zeros(0, kind) for kind in (np.int32, np.int32, float, float, float, bool)))
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def ask(scorer: Scorer, question: Question) -> Iterator[tuple[int, np.ndarray]]:
    """For each head its place and its scores (c,), some heads being scored together."""
    most = max(1, SCORED_AT_ONCE // max(1, len(question.candidates)))
    for begin in range(0, len(question.heads), most):
        heads = question.heads[begin : begin + most]
        answer = scorer(Question(question.relation, question.references, heads, question.candidates))
        scores = answer.detach().cpu().numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)
        if scores.shape != (len(heads), len(question.candidates)) or not np.isfinite(scores).all():
            raise ScoreError(
                f"scorer '{scorer.name}' gave no finite score for each of {len(question.candidates)} candidates"
            )
        yield from enumerate(scores, begin)


def best(head: int, candidates: np.ndarray, scores: np.ndarray, known: np.ndarray, k: int, with_known: bool) -> Rows:
    """The k best of a head's candidates (c,), sorted, with their scores (c,), best first; ties in that order.

    `known` (m,) are tails that are known answers: they do not compete, and are among the best only `with_known`.
    """
    places = np.searchsorted(candidates, known)
    inside = places < len(candidates)
    inside[inside] = candidates[places[inside]] == known[inside]
    answered = np.zeros(len(candidates), bool)
    answered[places[inside]] = True
    rivals = scores[~answered]
    columns = np.arange(len(candidates)) if with_known else np.flatnonzero(~answered)
    chosen = columns[_top(scores[columns], k)]
    values, own = scores[chosen], answered[chosen]
    top = np.sort(rivals[rivals >= values.min()]) if len(values) else rivals[:0]
    below, up_to = (np.searchsorted(top, values, side) for side in ("left", "right"))
    ranks = 1.0 + (len(top) - up_to) + (up_to - below - ~own) / 2
    total = _log_sum(rivals)
    precise = values.astype(np.float64)
    chances = precise - np.where(own, np.logaddexp(total, precise), total)
    return Rows(np.full(len(chosen), head, np.int32), candidates[chosen], precise, ranks, chances, own)


def _top(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores, highest first; ties in order."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        above = np.flatnonzero(scores > least)
        places = np.sort(np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]]))
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


def _log_sum(scores: np.ndarray) -> float:
    """log Σ exp."""
    if not len(scores):
        return -np.inf
    most = float(scores.max())
    return most + float(np.log(np.exp(scores.astype(np.float64) - most).sum()))
