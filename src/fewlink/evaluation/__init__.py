"""Ranks, metrics and result records, by one evaluator for every scorer."""

from fewlink.base.metrics import LABELS, METRICS
from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks, evaluate, merge, rank_split, rank_task
from fewlink.evaluation.ranks import realistic_ranks, summarise

__all__ = [
    "LABELS",
    "METRICS",
    "Evaluation",
    "Protocol",
    "TaskRanks",
    "evaluate",
    "merge",
    "rank_split",
    "rank_task",
    "realistic_ranks",
    "summarise",
]
