"""Ranks of true tails, ties at their mean, and the metrics computed from ranks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewlink.base.metrics import HITS, METRICS, realistic_rank


def realistic_ranks(
    scores: Tensor, rows: Tensor, true: Tensor, excluded: tuple[Tensor, Tensor], counted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The rank of each query's true tail, and the number of candidates it is ranked among.

    Shapes: `scores` (heads, candidates); `rows`, `true` (queries,) the query's row and the column of its true tail;
    `excluded` two tensors (x,): queries, and columns that do not compete in them (other known answers); `counted`
    (candidates,) bool, the columns that compete at all. Returns ranks (queries,) float64 and candidate counts
    (queries,) int64, the true tail included.
    """
    true_scores = scores[rows, true].unsqueeze(1)  # (queries, 1)
    candidate_scores = scores[rows]  # (queries, candidates)
    higher, tied = candidate_scores > true_scores, candidate_scores == true_scores
    if counted is not None:
        higher, tied = higher & counted, tied & counted
        total = counted.sum()
    else:
        total = torch.tensor(scores.shape[1], device=scores.device)
    cells = excluded[0] * scores.shape[1] + excluded[1]
    cells = torch.cat([cells, torch.arange(len(rows), device=rows.device) * scores.shape[1] + true]).unique()
    queries, columns = cells // scores.shape[1], cells % scores.shape[1]
    competes = torch.ones_like(columns, dtype=torch.bool) if counted is None else counted[columns]

    def without_excluded(counts: Tensor, flags: Tensor) -> Tensor:
        return counts.index_add(0, queries, -flags.to(counts.dtype))

    above = without_excluded(higher.sum(1), higher[queries, columns])
    level = without_excluded(tied.sum(1), tied[queries, columns])
    rivals = without_excluded(total.expand(len(rows)).contiguous(), competes)
    return realistic_rank(above.double(), level.double()), rivals + 1


def summarise(ranks: np.ndarray, candidates: np.ndarray) -> dict[str, float]:
    """Mean reciprocal rank, Hits@k, mean rank and the chance-adjusted mean rank index of a set of queries.

    The index is 1 − (MR − 1) / (E[MR] − 1), with E[MR] = mean((candidates + 1) / 2) that of random scores: 1 is
    perfect, 0 is chance. It is 0 if every query has a single candidate.
    """
    ranks, candidates = np.asarray(ranks, float), np.asarray(candidates, float)
    by_chance = float(np.mean((candidates + 1) / 2))
    mean_rank = float(ranks.mean())
    return {
        "mrr": float(np.mean(1 / ranks)),
        **{f"hits@{k}": float(np.mean(ranks <= k)) for k in HITS},
        "mr": mean_rank,
        "amri": 1 - (mean_rank - 1) / (by_chance - 1) if by_chance > 1 else 0.0,
    }


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over relations (the macro average)."""
    return {metric: float(np.mean([row[metric] for row in rows])) for metric in METRICS}
