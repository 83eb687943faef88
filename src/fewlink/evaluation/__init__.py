"""One evaluator for every scorer: ranks, metrics and result records.

Names are imported on first use, so that `evaluation.records` can be used without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names
from fewlink.core.metrics import LABELS, METRICS

if TYPE_CHECKING:
    from fewlink.evaluation.comparison import Comparison as Comparison
    from fewlink.evaluation.comparison import compare as compare
    from fewlink.evaluation.comparison import paired_bootstrap as paired_bootstrap
    from fewlink.evaluation.evaluator import Evaluation as Evaluation
    from fewlink.evaluation.evaluator import Protocol as Protocol
    from fewlink.evaluation.evaluator import TaskRanks as TaskRanks
    from fewlink.evaluation.evaluator import evaluate as evaluate
    from fewlink.evaluation.evaluator import rank_split as rank_split
    from fewlink.evaluation.evaluator import rank_task as rank_task
    from fewlink.evaluation.evaluator import realistic_ranks as realistic_ranks
    from fewlink.evaluation.evaluator import summarise as summarise

_HOMES = {
    "Comparison": "comparison",
    "compare": "comparison",
    "paired_bootstrap": "comparison",
    "Evaluation": "evaluator",
    "Protocol": "evaluator",
    "TaskRanks": "evaluator",
    "evaluate": "evaluator",
    "rank_split": "evaluator",
    "rank_task": "evaluator",
    "realistic_ranks": "evaluator",
    "summarise": "evaluator",
}
__all__ = ["LABELS", "METRICS", *_HOMES]
__getattr__ = lazy_names(__name__, _HOMES)
