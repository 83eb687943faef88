"""The rank of a score among others with ties, and the metrics made from ranks: their keys and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Counts = TypeVar("Counts", "np.ndarray", "Tensor")

HITS = (1, 5, 10)
LABELS = {"mrr": "MRR", **{f"hits@{k}": f"Hits@{k}" for k in HITS}, "mr": "MR", "amri": "AMRI"}  # in tables, by key
METRICS = tuple(LABELS)


def realistic_rank(higher: Counts, tied: Counts) -> Counts:
    """The rank of a score below `higher` others and level with `tied` others: the mean over all orders of the ties."""
    return 1 + higher + tied / 2


def labelled(*metrics: str) -> dict[str, str]:
    """The metrics by their labels, in this order: the columns of a table."""
    return {LABELS[metric]: metric for metric in metrics}
