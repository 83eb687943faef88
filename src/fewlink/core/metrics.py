"""The keys and labels of the metrics computed from ranks."""

from __future__ import annotations

HITS = (1, 5, 10)  # the ranks up to which an answer is a hit, as in the paper's tables
LABELS = {"mrr": "MRR", **{f"hits@{k}": f"Hits@{k}" for k in HITS}, "mr": "MR", "amri": "AMRI"}  # in tables, by key
METRICS = tuple(LABELS)


def labelled(*metrics: str) -> dict[str, str]:
    """The metrics by label, in this order, as the columns of a table."""
    return {LABELS[metric]: metric for metric in metrics}
