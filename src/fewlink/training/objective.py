"""The joint objective of meta-training (Eqs. 9 and 10)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.choices import choose


class Objective(NamedTuple):
    """Scalars: `total` is what is minimised, `rank` and `reconstruction` what it is made of."""

    total: Tensor
    rank: Tensor
    reconstruction: Tensor


def hinge(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Eq. 9, [ξ + s⁻ − s⁺]₊, its sums taken as means so that γ means the same for any batch.

    Shapes: positive (…,), negative (…, N); to a scalar.
    """
    return (margin + negative - positive.unsqueeze(-1)).clamp_min(0).mean()


def softmax(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """−log of the softmax of the true tail among itself and the polluted ones; shapes as in `hinge`, no margin."""
    every = torch.cat([positive.unsqueeze(-1), negative], -1)  # (…, 1 + N)
    return (every.logsumexp(-1) - positive).mean()


LOSSES = {"hinge": hinge, "softmax": softmax}


def objective(
    scores: Tensor, reconstruction: Tensor, queries: int, *, loss: str, margin: float, weight: float
) -> Objective:
    """L_joint = L_rank + γ L_re (Eq. 10), γ being `weight`.

    Shapes: scores (episodes, B + B·N), first those of the B queries, then of the N polluted tails of each query in
    turn; reconstruction (episodes,).
    """
    positive, polluted = scores[:, :queries], scores[:, queries:]
    negative = polluted.unflatten(1, (queries, -1))  # (episodes, B, N)
    rank = choose("loss", loss, LOSSES)(positive, negative, margin)
    restored = reconstruction.mean()
    return Objective(rank + weight * restored, rank, restored)
