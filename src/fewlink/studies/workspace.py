"""The workspace of a study: its benchmark, its folders and its device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fewlink.core.errors import FewlinkError
from fewlink.core.recipes import PER_RUN_SETTINGS
from fewlink.core.settings import Settings
from fewlink.evaluation.records import RecordStore
from fewlink.models.family import Reporter
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import Benchmark


class StoredBenchmark(NamedTuple):
    """A benchmark that is not on this machine, as records describe it, which is enough to show them."""

    name: str
    fingerprint: str
    problem: FewlinkError


def benchmark_or_records(source: str, results: Path) -> Benchmark | StoredBenchmark:
    """Open a benchmark; if it is not on this machine, describe it from the records in a folder, or raise."""
    try:
        return open_benchmark(source)
    except FewlinkError as problem:
        records = RecordStore(results).records if results.is_dir() else []
        fingerprints = {record.data_sha256 for record in records if record.benchmark == source}
        if len(fingerprints) != 1:
            raise
        return StoredBenchmark(source, fingerprints.pop(), problem)


def _silent(title: str) -> Reporter:
    return lambda event: None


def _unheard(line: str) -> None:
    """Log nothing."""


@dataclass(frozen=True)
class Workspace:
    """The workspace of a study.

    results     a folder of records
    work        a folder of runs and vectors
    checkpoint  a file of weights that a model needs, such as ULTRA's
    processes   how many may work at once, where a study can share its work
    log         receives a line about each job
    on_epoch    makes a reporter of pretraining epochs from a title
    on_step     makes a reporter of training events from a title
    """

    benchmark: Benchmark | StoredBenchmark
    results: Path
    work: Path
    device: str = "cpu"
    checkpoint: Path | None = None
    processes: int = 1
    log: Callable[[str], None] = _unheard
    on_epoch: Callable[[str], Reporter] = _silent
    on_step: Callable[[str], Reporter] = _silent

    @property
    def data(self) -> Benchmark:
        """The benchmark; raises if it is not on this machine."""
        if isinstance(self.benchmark, StoredBenchmark):
            raise self.benchmark.problem
        return self.benchmark

    @property
    def store(self) -> RecordStore:
        """The store of the records in `results`."""
        return RecordStore(self.results)

    def without_reporters(self) -> Workspace:
        """The same workspace for a worker, which reports nothing."""
        return replace(self, log=_unheard, on_epoch=_silent, on_step=_silent)

    def run_folder(self, name: str, settings: Settings) -> Path:
        """A folder for runs with these settings, independent of seed and device."""
        choices = {name: value for name, value in settings.as_dict().items() if name not in PER_RUN_SETTINGS}
        digest = hashlib.sha256(json.dumps([choices, self.benchmark.fingerprint]).encode()).hexdigest()[:8]
        return self.work / f"{name}-{digest}"
