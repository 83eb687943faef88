"""The figures of a run over time: metrics.jsonl, and TensorBoard where the extra `track` is installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.base.storage import write_bytes

METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"


def truncate_metrics(run: Path, last: dict[str, Any]) -> None:
    """Bring metrics.jsonl to where a run stands: its lines up to the last committed evaluation, each once."""
    lines: list[dict[str, Any]] = []
    path = run / METRICS
    for text in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:  # cut off by a kill
            break
        if not isinstance(line, dict) or "step" not in line:
            break
        if line["step"] <= last.get("step", 0):
            lines.append(line)
    if last and (not lines or lines[-1]["step"] != last["step"]):
        lines.append(last)
    write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


class MetricsLog:
    """Appends lines to metrics.jsonl, and their numbers to `RUN/tensorboard` if TensorBoard is installed."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._writer: Any = None
        self._has_tensorboard = importlib.util.find_spec("tensorboard") is not None

    def add(self, line: dict[str, Any]) -> None:
        with (self.run / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if not self._has_tensorboard:
            return
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
