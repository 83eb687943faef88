"""The rank of a score among others, and the keys and labels of the metrics computed from ranks."""

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
    """The rank of a score with `higher` scores above it and `tied` scores equal to it: the mean over all tie orders."""
    return 1 + higher + tied / 2


def labelled(*metrics: str) -> dict[str, str]:
    """The metrics by label, in this order, as the columns of a table."""
    return {LABELS[metric]: metric for metric in metrics}
