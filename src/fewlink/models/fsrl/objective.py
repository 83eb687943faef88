"""The joint objective of ranking and reconstruction (Eqs. 9 and 10)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.core.errors import choose


class Objective(NamedTuple):
    """Each (runs,): `total` is minimised; `rank` and `reconstruction` are its terms."""

    total: Tensor
    rank: Tensor
    reconstruction: Tensor


def hinge(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Eq. 9, [ξ + s⁻ − s⁺]₊, with means for sums, so that γ is independent of the batch size.

    Shapes: positive (runs, …, B), negative (runs, …, B, N); to (runs,).
    """
    return (margin + negative - positive.unsqueeze(-1)).clamp_min(0).flatten(1).mean(1)


def softmax(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """−log of the softmax of the true tail among itself and the negatives; shapes as in `hinge`, no margin."""
    every = torch.cat([positive.unsqueeze(-1), negative], -1)  # (runs, …, B, 1 + N)
    return (every.logsumexp(-1) - positive).flatten(1).mean(1)


LOSSES = {"hinge": hinge, "softmax": softmax}


def objective(
    scores: Tensor,
    reconstruction: Tensor,
    queries: int,
    *,
    loss: str,
    margin: float,
    weight: float,
    temperature: float = 1.0,
) -> Objective:
    """L_joint = L_rank + γ L_re (Eq. 10) of the scores divided by the temperature; γ is `weight`.

    Shapes: scores (runs, episodes, B + B·N), those of the B queries, then of the N negatives of each query in turn;
    reconstruction (runs, episodes).
    """
    scores = scores / temperature
    positive = scores[..., :queries]
    negative = scores[..., queries:].unflatten(-1, (queries, -1))  # (runs, episodes, B, N)
    rank = choose("loss", loss, LOSSES)(positive, negative, margin)
    restored = reconstruction.mean(-1)
    return Objective(rank + weight * restored, rank, restored)
