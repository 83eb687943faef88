"""Meta-training of few-shot models: the paper's Algorithm 1, run folders that continue exactly, and their scorers."""

from fewlink.training.pretraining import pretrain
from fewlink.training.run import RunConfig, is_run, open_run, runs_in
from fewlink.training.settings import TrainingSettings
from fewlink.training.trainer import RunResult, train, train_together

__all__ = [
    "RunConfig",
    "RunResult",
    "TrainingSettings",
    "is_run",
    "open_run",
    "pretrain",
    "runs_in",
    "train",
    "train_together",
]
