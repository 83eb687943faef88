"""Few-shot link prediction: complete the long tail of a knowledge graph from a handful of examples.

import fewlink

benchmark = fewlink.open_benchmark("umls")
scorer = fewlink.learning_free("rules", benchmark.graph)
print(fewlink.evaluate(benchmark, scorer).metrics()["micro"])

vectors = fewlink.pretrain(benchmark, out="runs/vectors")
fewlink.train(benchmark, vectors, fewlink.TrainingSettings("fsrl"), "runs/fsrl")
print(fewlink.evaluate(benchmark, fewlink.open_run("runs/fsrl", benchmark)).metrics()["micro"])

linker = fewlink.load("runs/fsrl")
print(linker.predict(references=[("virus", "cell"), ("fungus", "human")], heads=["bacterium"], k=5))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fewlink.evaluation import Evaluation, Protocol, evaluate
    from fewlink.graph import Graph, compile_graph
    from fewlink.prediction import Linker, Predictions, calibrate, fit, load
    from fewlink.scorers import learning_free
    from fewlink.tasks import Benchmark, carve, open_benchmark
    from fewlink.training import (
        TrailSettings,
        TrainingSettings,
        open_run,
        pretrain,
        pretrain_views,
        train,
        train_together,
    )

_HOMES = {
    "Benchmark": "tasks",
    "Evaluation": "evaluation",
    "Graph": "graph",
    "Linker": "prediction",
    "Predictions": "prediction",
    "Protocol": "evaluation",
    "TrailSettings": "training",
    "TrainingSettings": "training",
    "calibrate": "prediction",
    "carve": "tasks",
    "compile_graph": "graph",
    "evaluate": "evaluation",
    "fit": "prediction",
    "learning_free": "scorers",
    "load": "prediction",
    "open_benchmark": "tasks",
    "open_run": "training",
    "pretrain": "training",
    "pretrain_views": "training",
    "train": "training",
    "train_together": "training",
}
__all__ = [
    "Benchmark",
    "Evaluation",
    "Graph",
    "Linker",
    "Predictions",
    "Protocol",
    "TrailSettings",
    "TrainingSettings",
    "__version__",
    "calibrate",
    "carve",
    "compile_graph",
    "evaluate",
    "fit",
    "learning_free",
    "load",
    "open_benchmark",
    "open_run",
    "pretrain",
    "pretrain_views",
    "train",
    "train_together",
]


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import fewlink` and the command's help cost nothing."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"fewlink.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fewlink' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
