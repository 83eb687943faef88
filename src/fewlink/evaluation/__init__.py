"""Honest ranks, metrics and result records."""

from fewlink.evaluation.evaluator import Evaluation, Protocol, TaskRanks, evaluate, merge, rank_split, rank_task
from fewlink.evaluation.metrics import METRICS, summarise
from fewlink.evaluation.ranks import realistic_ranks

__all__ = [
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
