"""The curves of a run in TensorBoard, where the extra `track` is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


class Board:
    """Writes the numbers of each line of metrics.jsonl under `RUN/tensorboard`; without the extra, nothing."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._writer: Any = None
        self._there = importlib.util.find_spec("tensorboard") is not None

    def add(self, line: dict[str, Any]) -> None:
        if not self._there:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.run / FOLDER), purge_step=line["step"])
        for name, value in _numbers(line):
            self._writer.add_scalar(name, value, line["step"])
        self._writer.flush()


def _numbers(line: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}/")
        elif f"{prefix}{name}" != "step":
            yield f"{prefix}{name}", float(value)
