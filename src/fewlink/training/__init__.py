"""Meta-training of few-shot models: the paper's Algorithm 1, run folders that continue exactly, and their scorers."""

from fewlink.training.pretraining import pretrain
from fewlink.training.run import RunConfig, is_run, open_run, runs_in
from fewlink.training.settings import TrailSettings, TrainingSettings, settings_of
from fewlink.training.trail_vectors import TrailVectors, pretrain_views
from fewlink.training.trainer import RunResult, train, train_together

__all__ = [
    "RunConfig",
    "RunResult",
    "TrailSettings",
    "TrailVectors",
    "TrainingSettings",
    "is_run",
    "open_run",
    "pretrain",
    "pretrain_views",
    "runs_in",
    "settings_of",
    "train",
    "train_together",
]
