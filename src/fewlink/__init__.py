"""Few-shot link prediction: complete the long tail of a knowledge graph from a handful of examples.

import fewlink

linker = fewlink.load("graph.tsv")  # a file of triples or a benchmark, with the weights that come with fewlink
print(linker.predict(references=[("virus", "cell"), ("fungus", "human")], heads=["bacterium"], k=5))

run = fewlink.train("graph.tsv", out="runs/mine")  # trained on this graph; fewlink.load(run.run) opens it

benchmark = fewlink.open_benchmark("umls")
scorer = fewlink.learning_free("rules", benchmark.graph)
print(fewlink.evaluate(benchmark, scorer).metrics()["micro"])
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fewlink.core.memo import lazy_names

__version__ = "0.3.0.dev0"

WINDOWS = "fewlink runs on Linux and macOS; on Windows use WSL: https://learn.microsoft.com/windows/wsl/install"
if sys.platform == "win32":
    started = sys.argv[0].replace("\\", "/").rpartition("/")[2].partition(".")[0]
    if started == "fewlink" or sys.orig_argv[1:3] == ["-m", "fewlink"]:  # the command, not a program with an import
        print(f"error: {WINDOWS}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(WINDOWS)

if TYPE_CHECKING:
    from fewlink.bridges.frames import from_networkx as from_networkx
    from fewlink.bridges.frames import from_pandas as from_pandas
    from fewlink.bridges.frames import from_polars as from_polars
    from fewlink.bridges.frames import to_networkx as to_networkx
    from fewlink.bridges.frames import to_pandas as to_pandas
    from fewlink.bridges.frames import to_polars as to_polars
    from fewlink.core.errors import FewlinkError as FewlinkError
    from fewlink.evaluation import Protocol as Protocol
    from fewlink.evaluation import evaluate as evaluate
    from fewlink.fitting.calibrating import calibrate as calibrate
    from fewlink.fitting.fit import fit as fit
    from fewlink.graph import Graph as Graph
    from fewlink.graph import compile_graph as compile_graph
    from fewlink.linker import Linker as Linker
    from fewlink.linker import Predictions as Predictions
    from fewlink.linker import load as load
    from fewlink.models.baselines import learning_free as learning_free
    from fewlink.models.run import open_run as open_run
    from fewlink.tasks import Benchmark as Benchmark
    from fewlink.tasks import carve as carve
    from fewlink.tasks import open_benchmark as open_benchmark
    from fewlink.training.train import train as train

_HOMES = {
    "Benchmark": "tasks",
    "FewlinkError": "core.errors",
    "Graph": "graph",
    "Linker": "linker",
    "Predictions": "linker",
    "Protocol": "evaluation",
    "calibrate": "fitting.calibrating",
    "carve": "tasks",
    "compile_graph": "graph",
    "evaluate": "evaluation",
    "fit": "fitting.fit",
    "from_networkx": "bridges.frames",
    "from_pandas": "bridges.frames",
    "from_polars": "bridges.frames",
    "learning_free": "models.baselines",
    "load": "linker",
    "open_benchmark": "tasks",
    "open_run": "models.run",
    "to_networkx": "bridges.frames",
    "to_pandas": "bridges.frames",
    "to_polars": "bridges.frames",
    "train": "training.train",
}
__all__ = [*_HOMES, "__version__"]


__getattr__ = lazy_names(__name__, _HOMES)  # so that `import fewlink` and the command's help are quick


def __dir__() -> list[str]:
    return __all__
