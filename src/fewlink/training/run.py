"""What training writes into a run folder besides checkpoints: its configuration, vectors and metrics.

`fewlink.models.run` reads run folders.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError, InputError, reading, writing
from fewlink.core.files import exists, read_json, write_bytes
from fewlink.models.checkpoints import has_checkpoint
from fewlink.models.family import PretrainedVectors, TrainedFamily
from fewlink.models.folder import BENCHMARK, CONFIG, EMBEDDINGS, FIT, LOCK, check_complete
from fewlink.models.run import RunConfig
from fewlink.models.settings import ModelSettings
from fewlink.tasks.benchmark import Benchmark

BEFORE_CONFIG = (EMBEDDINGS, BENCHMARK)  # written before the configuration
METRICS = "metrics.jsonl"  # a line for each evaluation
TENSORBOARD = "tensorboard"


def start_or_continue(run: Path, wanted: RunConfig, vectors: PretrainedVectors) -> None:
    """Prepare a run folder for training. `config.json` is written last, so a folder that has one is a run folder.

    A run without a checkpoint may start again with other settings. The configuration of a run that continues is written
    when its checkpoint has been loaded.
    """
    embeddings = run / EMBEDDINGS
    has_config = (run / CONFIG).exists()
    continues = has_config and has_checkpoint(run)
    if continues:
        RunConfig.read(run).check_continues(run, wanted)
        return
    if _digest_of(wanted.family, embeddings) != wanted.embeddings["sha256"]:
        if embeddings.exists() and not has_config:  # never replace a user's vectors
            raise FewlinkError(f"{run} is not a run folder, and has other embeddings: choose another folder")
        vectors.save(embeddings, wanted.graph["fingerprint"], graph=wanted.benchmark["name"])
    wanted.write(run, id=wanted.new_id())


def _digest_of(family: TrainedFamily[Any], folder: Path) -> str | None:
    """The digest of the vectors in a folder; None if there are none that the family can open."""
    try:
        return str(family.open_vectors(folder).digest()) if exists(folder) else None
    except InputError:
        return None


def make_folder(run: Path) -> None:
    """Create a run folder and its parents."""
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewlinkError(f"{run} cannot be created ({error.strerror}): choose another folder") from None


def check_folder(run: Path) -> None:
    """Raise if a folder is neither empty nor a run folder, complete or just started."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    if not run.exists():
        return
    if (run / FIT).exists():
        raise FewlinkError(
            f"{run} was made by fewlink fit: continue it with fewlink fit GRAPH --out {run} --minutes N, or choose "
            "another folder"
        )
    check_complete(run, FIT)
    temporary = tuple(f".{name}." for name in (*BEFORE_CONFIG, CONFIG, LOCK))
    others = [p.name for p in run.iterdir() if p.name not in BEFORE_CONFIG and not p.name.startswith(temporary)]
    if others and not (CONFIG in others and _may_be_config(run / CONFIG)):
        raise FewlinkError(f"{run} exists and is not a run folder: choose another folder")


def _may_be_config(config: Path) -> bool:
    """Whether a file is the configuration of a run, or is damaged; reading it reports the damage."""
    try:
        content = read_json(config)
    except InputError:
        return True
    return isinstance(content, dict) and str(content.get("format")).startswith("fewlink-run/")


def check_may_train(run: Path, benchmark: Benchmark, settings: ModelSettings) -> None:
    """Raise if a run with these settings cannot start or continue in a folder."""
    check_folder(run)
    if (run / CONFIG).exists() and has_checkpoint(run):
        RunConfig.read(run).check_same(run, benchmark.fingerprint, settings)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl up to the first that is incomplete or damaged; none if there is no file."""
    path = run / METRICS
    with reading(path, "remove it, and training starts a new one"):
        texts = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    lines: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError, RecursionError):
        for text in texts:
            line = json.loads(text)
            if not isinstance(line, dict) or not isinstance(line.get("step"), int):
                break
            lines.append(line)
    return lines


def truncate_metrics(run: Path, last: dict[str, Any]) -> None:
    """Truncate metrics.jsonl to the last committed evaluation, whose line is `last`; add that line if it is missing."""
    lines = [line for line in read_metrics(run) if line["step"] <= last.get("step", 0)]
    if last and (not lines or lines[-1]["step"] != last["step"]):
        lines.append(last)
    write_bytes(run / METRICS, "".join(json.dumps(line) + "\n" for line in lines).encode())


class MetricsLog:
    """Appends lines to metrics.jsonl, and their numbers to `RUN/tensorboard` if TensorBoard is installed."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._writer: Any = None
        self._has_tensorboard = importlib.util.find_spec("tensorboard") is not None

    def add(self, line: dict[str, Any]) -> None:
        with writing(self.run / METRICS), (self.run / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if not self._has_tensorboard:
            return
        with writing(self.run / TENSORBOARD):
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self.run / TENSORBOARD), purge_step=line["step"])
            for name, value in _numbers(line):
                self._writer.add_scalar(name, value, line["step"])
            self._writer.flush()


def _numbers(line: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}/")
        elif f"{prefix}{name}" != "step":
            yield f"{prefix}{name}", float(value)
