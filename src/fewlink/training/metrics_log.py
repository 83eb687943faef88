"""The metrics of a run: a line of metrics.jsonl for each evaluation, and the same numbers for TensorBoard."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.core.errors import reading, writing
from fewlink.core.files import write_bytes

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl up to the first that is incomplete or damaged; none if there is no file."""
    path = run / METRICS
    with reading(path, "remove it, and training starts a new one"):
        texts = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    lines = (metrics_line(text) for text in texts)
    return list(itertools.takewhile(lambda line: line is not None, lines))  # type: ignore[arg-type]


def truncate_metrics(run: Path, last: dict[str, Any]) -> None:
    """Truncate metrics.jsonl to the last committed evaluation, whose line is `last`; add that line if it is missing."""
    lines = [line for line in read_metrics(run) if line["step"] <= last.get("step", 0)]
    if last and (not lines or lines[-1]["step"] != last["step"]):
        lines.append(last)
    write_bytes(run / METRICS, "".join(json.dumps(line) + "\n" for line in lines).encode())


def metrics_line(text: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None if it is incomplete or damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        line = json.loads(text)
        return line if isinstance(line, dict) and isinstance(line.get("step"), int) else None
    return None


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
