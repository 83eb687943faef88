"""Ranks with ties taken at their mean: 1 + (number scored higher) + (number tied) / 2."""

from __future__ import annotations

import torch
from torch import Tensor


def realistic_ranks(
    scores: Tensor, rows: Tensor, true: Tensor, excluded: tuple[Tensor, Tensor], counted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rank of each query's true tail, and among how many candidates it was ranked.

    Shapes: `scores` (heads, candidates); `rows`, `true` (queries,) the query's row and the column of its true tail;
    `excluded` two tensors (x,): queries, and columns that do not compete in them (other known answers); `counted`
    (candidates,) bool, the columns that compete at all. Returns ranks (queries,) float64 and candidate counts
    (queries,) int64, the true tail included.
    """
    own = scores[rows, true]  # (queries,)
    asked = scores[rows]  # (queries, candidates)
    higher, tied = asked > own[:, None], asked == own[:, None]
    if counted is not None:
        higher, tied = higher & counted, tied & counted
        total = counted.sum()
    else:
        total = torch.tensor(scores.shape[1], device=scores.device)
    places = excluded[0] * scores.shape[1] + excluded[1]
    places = torch.cat([places, torch.arange(len(rows), device=rows.device) * scores.shape[1] + true]).unique()
    queries, columns = places // scores.shape[1], places % scores.shape[1]
    competes = torch.ones_like(columns, dtype=torch.bool) if counted is None else counted[columns]

    def less_excluded(counts: Tensor, flags: Tensor) -> Tensor:
        return counts.index_add(0, queries, -flags.to(counts.dtype))

    above = less_excluded(higher.sum(1), higher[queries, columns])
    level = less_excluded(tied.sum(1), tied[queries, columns])
    rivals = less_excluded(total.expand(len(rows)).contiguous(), competes)
    return 1 + above.double() + level.double() / 2, rivals + 1
