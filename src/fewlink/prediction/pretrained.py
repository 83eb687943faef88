"""A trained model in one folder that needs nothing else: a run's configuration, best weights and vectors, and its data.

config.json, best/, embeddings/   as in a run folder, without what only training needs
benchmark/                        the compiled benchmark
serving/                          the graph it answers with and its vectors, where that is another one
calibration.json, README.md …     where the run has them
manifest.json                     every file with its sha256
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.storage import is_folder_of, new_folder, open_folder, write_json
from fewlink.data import Benchmark, open_benchmark
from fewlink.training import RunConfig, is_run, runs_in
from fewlink.training import run as training_run
from fewlink.training.checkpoints import load_best, save_best
from fewlink.training.run import BENCHMARK, CONFIG, EMBEDDINGS, Deployed, vectors_of

FORMAT = "fewlink-pretrained/1"
CALIBRATION, CARD, RELIABILITY = "calibration.json", "README.md", "reliability.svg"


def save(run: Path, benchmark: Benchmark, folder: Path) -> Path:
    """Write the folder in one step; one of this kind that is there is replaced."""
    if folder.resolve() == run.resolve():
        raise FewlinkError(f"{folder} is the run itself: choose another folder")
    config = RunConfig.read(run)
    weights, step = load_best(run)
    facts = {"model": config.settings.model, "benchmark": benchmark.name, "fingerprint": benchmark.fingerprint}
    with new_folder(folder, FORMAT, {**facts, "step": step}) as beside:
        own = {key: value for key, value in config.benchmark.items() if key != "source"}
        write_json(beside / CONFIG, replace(config, benchmark={**own, "source": ""}).as_dict())
        save_best(beside, weights, step)
        vectors_of(run).save(beside / EMBEDDINGS, config.graph["fingerprint"], graph=benchmark.name)
        benchmark.save(beside / BENCHMARK)
        if deployed := Deployed.open(run):
            deployed.save(beside)
        for name in (CALIBRATION, CARD, RELIABILITY):
            if (run / name).is_file():
                shutil.copyfile(run / name, beside / name)
    return folder


def refuse_saved(folder: Path) -> None:
    """An error for a folder that `save` wrote: its checksums would not hold any more."""
    if is_folder_of(folder, FORMAT):
        raise InputError(folder, "is a saved model, which does not change: do this to its run, then save it again")


def benchmark_of(folder: Path, bench: str | Path | None = None) -> Benchmark:
    """The benchmark of a run, or of a folder that has its own: where the user says it is, where it was, or by name."""
    if is_folder_of(folder, FORMAT):
        open_folder(folder, FORMAT)
        return open_benchmark(bench or folder / BENCHMARK)
    if not is_run(folder):
        if several := runs_in(folder):
            raise InputError(folder, f"holds {len(several)} runs: choose one, such as {several[0]}")
        raise InputError(folder, "is not a training run: fewlink train makes one")
    return training_run.benchmark_of(folder, bench)
