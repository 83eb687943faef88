"""Training: run folders that continue exactly, checkpoints, pretrained vectors, and the contract of model families."""

from fewlink.training.family import families, family_of, trained_family, training_recipe
from fewlink.training.run import RunConfig, is_run, open_run, runs_in
from fewlink.training.trainer import RunResult, train_runs
from fewlink.training.vectors import pretrain

__all__ = [
    "RunConfig",
    "RunResult",
    "families",
    "family_of",
    "is_run",
    "open_run",
    "pretrain",
    "runs_in",
    "train_runs",
    "trained_family",
    "training_recipe",
]
