"""Figures of merit from ranks."""

from __future__ import annotations

import numpy as np

HITS = (1, 5, 10)
METRICS = ("mrr", *(f"hits@{k}" for k in HITS), "mr", "amri")


def summarise(ranks: np.ndarray, candidates: np.ndarray) -> dict[str, float]:
    """Mean reciprocal rank, Hits@k, mean rank and the chance-adjusted mean rank index of a set of queries.

    The index is 1 − (MR − 1) / (E[MR] − 1), with E[MR] = mean((candidates + 1) / 2) that of random scores: 1 is
    perfect, 0 is chance. It is 0 where every query has a single candidate.
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
    """The mean of each figure over relations (the macro average)."""
    return {metric: float(np.mean([row[metric] for row in rows])) for metric in METRICS}
