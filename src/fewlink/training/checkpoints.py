"""What a run writes: checkpoints, whole at every moment (`last/` to continue from, `best/` to use), and metrics.

`last/` is written at each evaluation, and between evaluations at least once a minute. An evaluation is committed by
writing `last/`, which says whether its weights are the best so far; `best/` follows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim import Optimizer

from fewlink.base import storage
from fewlink.base.errors import InputError
from fewlink.base.storage import (
    exists,
    locked_inside,
    new_folder,
    open_folder,
    read_folder,
    read_json,
    write_bytes,
    write_json,
)
from fewlink.embeddings.table import save_tensors

FORMAT = "fewlink-checkpoint/1"
WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"


@dataclass
class State:
    """Where a run stands: steps taken, the best evaluation (step and dev figures), and how many were not better since.

    `line` is the last line of metrics.jsonl, `seconds` the time spent in all. `since` is what happened after the last
    evaluation: empty, or its `step`, the summed `losses` (3,), and the `seconds` of training and of `sampling`.
    """

    step: int = 0
    best_step: int = 0
    best: dict[str, float] = field(default_factory=dict)
    waited: int = 0
    seconds: float = 0.0
    line: dict[str, Any] = field(default_factory=dict)
    since: dict[str, Any] = field(default_factory=dict)

    @property
    def is_best(self) -> bool:
        return self.step == self.best_step and not self.since


def save_last(run: Path, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: State) -> None:
    with new_folder(run / "last", FORMAT, {"step": state.step}) as folder:
        save_tensors(weights, folder / WEIGHTS)
        save_tensors(optimizer, folder / OPTIMIZER)
        write_json(folder / STATE, asdict(state))


def moments_of(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state of each parameter, by the parameter's name and the name of the part."""
    return {
        f"{name}.{part}": value
        for name, parameter in module.named_parameters()
        for part, value in optimizer.state[parameter].items()
    }


def restore_moments(module: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that `moments_of` returned."""
    on_device = bool(optimizer.defaults.get("capturable"))  # a captured step counts on the device
    for name, parameter in module.named_parameters():
        own = {key.rpartition(".")[2]: value for key, value in moments.items() if key.rpartition(".")[0] == name}
        if own:
            optimizer.state[parameter] = {
                part: value.clone() if part == "step" and not on_device else value.to(parameter.device)
                for part, value in own.items()
            }


def save_best(run: Path, weights: Mapping[str, Tensor], step: int) -> None:
    with new_folder(run / "best", FORMAT, {"step": step}) as folder:
        save_tensors(weights, folder / WEIGHTS)


def load_last(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], State] | None:
    """Weights, optimizer state and counters; None if nothing has been saved yet."""
    if not begun(run):
        return None
    return read_folder(
        run / "last",
        FORMAT,
        lambda place, manifest: (load_file(place / WEIGHTS), load_file(place / OPTIMIZER), _state(place)),
    )


def begun(run: Path) -> bool:
    """Whether anything has been saved."""
    return exists(run / "last")


def load_state(run: Path) -> State:
    """Where a run stands: at its beginning if nothing has been saved yet."""
    return read_folder(run / "last", FORMAT, lambda place, manifest: _state(place)) if begun(run) else State()


def load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    """The best weights so far and their step; before the first evaluation, the last ones.

    Also of a run that is being trained, or was killed.
    """
    has_best = exists(run / "best")
    if begun(run):
        last = read_folder(run / "last", FORMAT, lambda place, manifest: _load_last_weights(place, has_best))
        if last is not None:
            return last
    if not has_best:
        raise InputError(run, "has no checkpoint yet: train it for a minute")
    return read_folder(
        run / "best", FORMAT, lambda place, manifest: (load_file(place / WEIGHTS), int(manifest["step"]))
    )


def _load_last_weights(folder: Path, has_best: bool) -> tuple[dict[str, Tensor], int] | None:
    """The last weights and their step, if they are the best so far or there are no others."""
    state = _state(folder)
    return (load_file(folder / WEIGHTS), state.step) if state.is_best or not has_best else None


def recover(run: Path) -> None:
    """After a kill: put both folders right, and bring `best/` up to `last/`."""
    for name in ("last", "best"):
        storage.recover(run / name)
    state = load_state(run)
    kept = int(open_folder(run / "best", FORMAT)["step"]) if (run / "best").exists() else 0
    if state.is_best and kept != state.step:
        save_best(run, load_file(run / "last" / WEIGHTS), state.step)


def locked_run(run: Path) -> contextlib.AbstractContextManager[None]:
    """Lock a run folder for long work; raises at once if another process has it. What a kill left is put right."""
    return locked_inside(run, f"{run} is being trained by another process: wait for it, or choose another folder")


def _state(folder: Path) -> State:
    return State(**read_json(folder / STATE))


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
