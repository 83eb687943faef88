"""Translation evidence: TransE distances with offsets that are read off the references."""

from __future__ import annotations

import torch
from torch import Tensor

from fewlink.trail_0_1.context import CandidateSet, Features, Pairs, TaskContext, other_heads
from fewlink.trail_0_1.evidence.base import ColumnEvidence
from fewlink.trail_0_1.evidence.bilinear import AT_ONCE


def offsets(task: TaskContext) -> Tensor:
    """The offset tail − head (K, d) of each reference."""
    vectors = task.graph.transe_vectors
    return vectors(task.tails) - vectors(task.references[:, 0])


def mean_offset(task: TaskContext) -> Tensor:
    """The mean offset (d,) of the references."""
    return task.once(offsets).mean(0)


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (A, B) of rows, in double precision: as ‖a‖² − 2 a·b + ‖b‖² they are wrong near zero."""
    x, y = a.double(), b.double()
    squares = torch.addmm(y.square().sum(1), x, y.T, alpha=-2).add_(x.square().sum(1, keepdim=True))
    return squares.clamp_min_(0).sqrt_().float()


def transe_scores(task: TaskContext, heads: Tensor, offset: Tensor, candidates: Tensor) -> Tensor:
    """Scores (…, H, C) of an offset (d,), or of several (…, 1, d)."""
    moved, tails = task.graph.transe_vectors(heads) + offset, task.graph.transe_vectors(candidates)
    return -distance(moved.flatten(0, -2), tails).view(*moved.shape[:-1], len(tails))


def all_scores(pairs: Pairs) -> Tensor:
    """Scores (1 + K, H, C) of the mean offset, and of each reference's."""
    task = pairs.task
    every = torch.cat([task.once(mean_offset).unsqueeze(0), task.once(offsets)]).unsqueeze(1)  # (1 + K, 1, d)
    return transe_scores(task, pairs.heads.ids, every, pairs.candidates.ids)


def other_head_scores(candidates: CandidateSet) -> Tensor:
    """log Σ exp of the scores (C,) that other heads have with the candidates."""
    task, offset = candidates.task, candidates.task.once(mean_offset)
    heads, parts = task.once(other_heads), candidates.ids.split(AT_ONCE)
    return torch.cat([transe_scores(task, heads, offset, part).logsumexp(0) for part in parts])


def tail_cosines(candidates: CandidateSet) -> Tensor:
    """Cosines (C, K) of the vectors of candidates and references' tails."""
    unit = candidates.task.graph.unit_transe
    return unit(candidates.ids) @ unit(candidates.task.tails).T


class TranslationEvidence(ColumnEvidence):
    """The TransE score of the pair, how far it is above that of other heads, and the best by a single reference."""

    kind = "translation"
    words = "the TransE vectors"
    columns = ("score", "against other heads", "best reference")

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        by_mean, *by_each = pairs.once(all_scores)
        against = by_mean - pairs.candidates.once(other_head_scores)
        return (torch.stack([by_mean, against, torch.stack(by_each, -1).amax(-1)], -1),)

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor:
        return pairs.once(all_scores)[0]

    @classmethod
    def negative_score(cls, pairs: Pairs) -> Tensor:
        return transe_scores(pairs.task, pairs.heads.ids, pairs.task.once(mean_offset), pairs.candidates.ids)
