"""Training: the loop, run folders that continue exactly, checkpoints and the metrics log."""

from fewlink.models.run import RunConfig, is_run, open_run, runs_in
from fewlink.training.trainer import RunResult, train_runs

__all__ = ["RunConfig", "RunResult", "is_run", "open_run", "runs_in", "train_runs"]
