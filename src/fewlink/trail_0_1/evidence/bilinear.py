"""Bilinear evidence: ComplEx scores with a relation vector that is estimated from the references."""

from __future__ import annotations

import torch
from torch import Tensor

from fewlink.embeddings.interactions import ComplEx
from fewlink.trail_0_1.context import CandidateSet, Features, GraphContext, Pairs, TaskContext, other_heads
from fewlink.trail_0_1.evidence.base import ColumnEvidence

AT_ONCE = 1 << 14  # candidates that are compared with all other heads at once
FIT_STEPS, FIT_RATE, FIT_WEIGHT = 40, 0.1, 1.0


@torch.no_grad()
def estimate(graph: GraphContext, references: Tensor, weights: Tensor | None = None) -> Tensor:
    """ComplEx vectors (Q, d) of Q relations from the references (Q, K, 2) of each, with the entities' vectors fixed.

    Adam minimises −log softmax of the references' tails, and of their heads, against `negatives`, the mean over the
    references by their weights (Q, K), and N3 of the vector. The gradients are written out, which halves the time.
    """
    model, negatives = ComplEx(), graph.complex_vectors(graph.negatives)
    heads, tails = graph.complex_vectors(references[..., 0]), graph.complex_vectors(references[..., 1])  # (Q, K, d)
    weights = torch.ones_like(references[..., 0], dtype=negatives.dtype) if weights is None else weights
    shares = (weights / weights.sum(1, keepdim=True)).unsqueeze(-1)  # (Q, K, 1)
    start = torch.sin(torch.arange(heads.shape[-1], device=negatives.device) * 12.9898) * 0.1  # anything but zero
    relation = start.expand(len(references), -1).clone()
    first, second = torch.zeros_like(relation), torch.zeros_like(relation)

    def pull(known_end: Tensor, true: Tensor, vector: Tensor) -> Tensor:
        """The gradient of −log softmax of one end, given the other: conj(known end) ⊙ (Σ p_j e_j − e_true)."""
        query = model.query(known_end, vector.unsqueeze(1))
        scores = torch.cat([model.compare(query, true).unsqueeze(-1), model.against(query, negatives)], -1)
        chances = scores.softmax(-1)
        moved = (chances[..., :1] - 1) * true + chances[..., 1:] @ negatives
        return (shares * model.query(moved, model.inverse(known_end.flatten(0, -2)).view_as(known_end))).sum(1)

    for step in range(1, FIT_STEPS + 1):
        back = pull(tails, heads, model.inverse(relation))
        re, im = relation.chunk(2, -1)
        modulus = (re.square() + im.square()).sqrt()
        slope = pull(heads, tails, relation) + model.inverse(back)
        slope = slope + 3 * FIT_WEIGHT * torch.cat([modulus, modulus], -1) * relation
        first = first.lerp(slope, 0.1)
        second = second.lerp(slope.square(), 0.001)
        size = (second / (1 - 0.999**step)).sqrt() + 1e-8
        relation = relation - FIT_RATE * first / (1 - 0.9**step) / size
    return relation


def relation_vectors(task: TaskContext) -> Tensor:
    """The vectors (1 + n, d) of a task's relation, and of those with each of n references held out, in one fit."""
    count, held = len(task.references), task.held_out
    weights = torch.ones(1 + held, count, device=task.references.device)
    weights[1:, :held].fill_diagonal_(0)
    return estimate(task.graph, task.references.expand(1 + held, -1, -1), weights)


def relation_vector(task: TaskContext) -> Tensor:
    """The vector (d,) of a task's relation."""
    return (task.whole or task).once(relation_vectors)[1 + task.left_out]


def complex_scores(task: TaskContext, heads: Tensor, candidates: Tensor) -> Tensor:
    """Scores (H, C)."""
    vectors, relation = task.graph.complex_vectors, task.once(relation_vector)
    return ComplEx().against(ComplEx().query(vectors(heads), relation), vectors(candidates))


def scores(pairs: Pairs) -> Tensor:
    """ComplEx scores (H, C) of pairs."""
    return complex_scores(pairs.task, pairs.heads.ids, pairs.candidates.ids)


def other_head_scores(candidates: CandidateSet) -> Tensor:
    """log Σ exp of the scores (C,) that other heads have with the candidates."""
    task, parts = candidates.task, candidates.ids.split(AT_ONCE)
    return torch.cat([complex_scores(task, task.once(other_heads), part).logsumexp(0) for part in parts])


def tail_cosines(candidates: CandidateSet) -> Tensor:
    """Cosines (C, K) of the vectors of candidates and references' tails."""
    unit = candidates.task.graph.unit_complex
    return unit(candidates.ids) @ unit(candidates.task.tails).T


class BilinearEvidence(ColumnEvidence):
    """The ComplEx score of the pair, and how far it is above that of other heads with the candidate."""

    kind = "bilinear"
    words = "the ComplEx vectors"
    columns = ("score", "against other heads")

    @classmethod
    def extract(cls, pairs: Pairs) -> Features:
        own = pairs.once(scores)
        return (torch.stack([own, own - pairs.candidates.once(other_head_scores)], -1),)

    @classmethod
    def single_score(cls, pairs: Pairs) -> Tensor:
        return pairs.once(scores)

    negative_score = single_score
