"""MetaR as plain loops over single numbers in Python: one reference, one false tail, one coordinate at a time.

For a relation with references (h_k, t_k), k = 1 … K, each with false tails t'_k1 … t'_kN:

    x⁰ = [h_k ; t_k],   xˡ = LeakyReLU(Wˡ xˡ⁻¹ + bˡ),   R_k = Wᴸ xᴸ⁻¹ + bᴸ,   R = (1/K) Σ_k R_k
    s(h, t) = ‖h + R − t‖
    L(S) = Σ_k (1/N) Σ_n [γ + s(h_k, t_k) − s(h_k, t'_kn)]₊
    G = ∇_R L(S),   R' = R − β G

and L(Q) is the mean of [γ + s(h, t) − s(h, t')]₊ with R' over queries and their false tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = list[float]
Pair = tuple[Vector, Vector]
Layer = tuple[list[Vector], Vector]  # weight rows, bias


def relation_meta(pairs: Sequence[Pair], layers: Sequence[Layer]) -> Vector:
    total = [0.0] * len(layers[-1][1])
    for head, tail in pairs:
        x = [*head, *tail]
        for number, (weight, bias) in enumerate(layers):
            x = [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
            if number < len(layers) - 1:
                x = [v if v > 0 else 0.01 * v for v in x]
        total = [a + b for a, b in zip(total, x, strict=True)]
    return [a / len(pairs) for a in total]


def distance(head: Vector, relation: Vector, tail: Vector) -> float:
    return math.sqrt(sum((h + r - t) ** 2 for h, r, t in zip(head, relation, tail, strict=True)))


def support_loss(relation: Vector, pairs: Sequence[Pair], false: Sequence[Sequence[Vector]], margin: float) -> float:
    loss = 0.0
    for (head, tail), wrong in zip(pairs, false, strict=True):
        for other in wrong:
            slack = margin + distance(head, relation, tail) - distance(head, relation, other)
            loss += max(0.0, slack) / len(wrong)
    return loss


def gradient(
    relation: Vector, pairs: Sequence[Pair], false: Sequence[Sequence[Vector]], margin: float, step: float = 1e-6
) -> Vector:
    """G by central differences."""
    found = []
    for place in range(len(relation)):
        ends = []
        for sign in (1, -1):
            moved = list(relation)
            moved[place] += sign * step
            ends.append(support_loss(moved, pairs, false, margin))
        found.append((ends[0] - ends[1]) / (2 * step))
    return found


def query_loss(relation: Vector, pairs: Sequence[Pair], false: Sequence[Sequence[Vector]], margin: float) -> float:
    """The mean over queries of their mean over false tails."""
    return support_loss(relation, pairs, false, margin) / len(pairs)
