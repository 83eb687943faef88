"""What a run answers questions with, where that is more than it was trained on: a larger graph and its vectors.

A run is trained and measured on a benchmark, part of which is hidden from it. To answer users it may look at more: the
whole graph it was carved from, or triples that came later. That is kept in the run's folder, apart from what its
figures were measured on, and replaced in one step:

serving/benchmark/   the graph to look at, with task relations where it has some
serving/vectors/     vectors of that graph
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fewlink.embeddings.table import Embeddings
from fewlink.errors import InputError
from fewlink.models import FewShotScorer, TrailScorer
from fewlink.storage import new_folder, open_folder
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.catalogue import open_benchmark
from fewlink.together import use
from fewlink.training.run import RunConfig, scorer_on
from fewlink.training.settings import TrailSettings
from fewlink.training.trail_vectors import TrailVectors

SERVING, FORMAT = "serving", "fewlink-serving/1"
BENCHMARK, VECTORS = "benchmark", "vectors"


@dataclass(frozen=True)
class Serving:
    """A graph, as a benchmark that may have no tasks, and the vectors of what is known of it."""

    benchmark: Benchmark
    vectors: Embeddings | TrailVectors

    def save(self, run: Path) -> None:
        """Write the folder, or put this in its place, in one step."""
        fingerprint = self.benchmark.graph.fingerprint
        with new_folder(Path(run) / SERVING, FORMAT, {"fingerprint": self.benchmark.fingerprint}) as beside:
            self.benchmark.save(beside / BENCHMARK)
            self.vectors.save(beside / VECTORS, fingerprint, graph=self.benchmark.name)

    @classmethod
    def open(cls, run: Path) -> Serving | None:
        """What a run's folder holds; None where it answers with what it was trained on."""
        folder = Path(run) / SERVING
        if not folder.exists() and not any(Path(run).glob(f".{SERVING}.*.old")):
            return None
        open_folder(folder, FORMAT)
        benchmark = open_benchmark(folder / BENCHMARK)
        fingerprint = benchmark.graph.fingerprint
        if isinstance(RunConfig.read(run).settings, TrailSettings):
            return cls(benchmark, TrailVectors.open(folder / VECTORS, fingerprint, for_training=False))
        return cls(benchmark, Embeddings.open(folder / VECTORS, fingerprint))

    def scorer(self, run: Path, *, device: str = "cpu") -> FewShotScorer | TrailScorer:
        """The best model of the run, looking at this."""
        found = RunConfig.read(run)
        if found.embeddings["dim"] != self.vectors.dim:
            raise InputError(Path(run) / SERVING, f"holds vectors of {self.vectors.dim} reals: fit the run again")
        return scorer_on(Path(run), self.benchmark, self.vectors, use(device))
