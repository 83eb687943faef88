"""What a run writes: checkpoints, whole at every moment (`last/` to continue from, `best/` to use), and metrics.

`last/` is written at each evaluation, and between evaluations at least once a minute. An evaluation is committed by
writing `last/`, which says whether its weights are the best so far; `best/` follows. A folder is replaced by two
renames; between them the old one has a hidden name, where readers find it and from where the next training restores it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from fewlink.base.errors import FewlinkError, InputError, reading, writing
from fewlink.base.storage import new_folder, open_folder, read_json, write_bytes, write_json

FORMAT = "fewlink-checkpoint/1"
CONFIG = "config.json"  # of the run
WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
REMEDY = "restore the folder of this run, or train again in another folder"
TRIES, PAUSE = 5, 0.02  # of readers while a run is being trained, since a folder may be replaced meanwhile

T = TypeVar("T")


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
    with new_folder(run / "last", FORMAT, _facts(run, "last", state.step)) as folder:
        _save_tensors(weights, folder / WEIGHTS)
        _save_tensors(optimizer, folder / OPTIMIZER)
        write_json(folder / STATE, asdict(state))


def run_id(run: Path) -> str:
    """The id of the run in a folder; empty if it has none, as before its configuration is written."""
    with contextlib.suppress(InputError):
        content = read_json(run / CONFIG)
        return str(content.get("id", "")) if isinstance(content, dict) else ""
    return ""


def id_of(*facts: Any) -> str:
    """An id for what these facts describe."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def check_belongs(manifest: Mapping[str, Any], run: Path, folder: Path) -> None:
    """Raise if a folder was written for another run than the one it lies in, or is another of its checkpoints.

    Folders of earlier versions do not say.
    """
    if manifest.get("format") == FORMAT and type(manifest.get("step")) is not int:
        raise InputError(folder, f"does not say its step: {REMEDY}")
    mine, other = run_id(run), manifest.get("run")
    if mine and other and mine != other:
        raise InputError(folder, f"belongs to another run ({other}, not {mine}): restore the folder of this run")
    kind, name = manifest.get("checkpoint"), folder.name.strip(".").split(".")[0]  # it may have a hidden name
    if kind is not None and kind != name:
        raise InputError(folder, f"holds the checkpoint '{kind}', not '{name}': restore the folder of this run")


def _facts(run: Path, name: str, step: int) -> dict[str, Any]:
    """What the manifest of a checkpoint says."""
    return {"step": step, "checkpoint": name, "run": run_id(run)}


def _open(run: Path, folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint of this run."""
    manifest = open_folder(folder, FORMAT)
    check_belongs(manifest, run, folder)
    return manifest


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
    with new_folder(run / "best", FORMAT, _facts(run, "best", step)) as folder:
        _save_tensors(weights, folder / WEIGHTS)


def load_last(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], State] | None:
    """Weights, optimizer state and counters; None if nothing has been saved yet."""
    folder = run / "last"
    if not folder.exists():
        return None
    _open(run, folder)
    return _load_tensors(folder / WEIGHTS), _load_tensors(folder / OPTIMIZER), _state(folder)


def begun(run: Path) -> bool:
    """Whether anything has been saved, or was being saved when the run was killed."""
    return _place(run, "last") is not None


def load_state(run: Path) -> State:
    """Where a run stands: at its beginning if nothing has been saved yet."""
    folder = run / "last"
    if not folder.exists():
        return State()
    _open(run, folder)
    return _state(folder)


def load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    """The best weights so far and their step; before the first evaluation, the last ones.

    Also of a run that is being trained, or was killed.
    """
    return _with_retries(lambda: _load_best(run))


def _load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    last, best = _place(run, "last"), _place(run, "best")
    if last is not None:
        _open(run, last)
        if (state := _state(last)).is_best or not (best or state.best_step):
            return _load_tensors(last / WEIGHTS), state.step
        if best is None:
            raise InputError(run / "best", "is missing: restore the folder, or train again in another folder")
    if best is None:
        raise InputError(run, "has no checkpoint yet: train it for a minute")
    step = int(_open(run, best)["step"])
    if last is not None and state.best_step not in (0, step):
        raise InputError(best, f"is of step {step}, but the best one is of step {state.best_step}: restore the folder")
    return _load_tensors(best / WEIGHTS), step


def recover(run: Path) -> None:
    """After a kill: restore folders that were set aside, remove partial ones, and bring `best/` up to `last/`."""
    for name in ("last", "best"):
        place = _place(run, name)
        if place is not None and place != run / name:
            os.rename(place, run / name)
    for left in (*run.glob(".*.part"), *run.glob(".*.old")):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    state = load_state(run)
    kept = int(_open(run, run / "best")["step"]) if (run / "best").exists() else 0
    if state.is_best and kept != state.step:
        save_best(run, _load_tensors(run / "last" / WEIGHTS), state.step)


@contextlib.contextmanager
def locked(run: Path, named: Path | None = None) -> Iterator[None]:
    """Lock the run folder for this process; the lock ends with the process, however it ends.

    `named` is the folder that an error names, by default the locked one.
    """
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    handle = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FewlinkError(
                f"{named or run} is being trained by another process: wait for it, or choose another folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _place(run: Path, name: str) -> Path | None:
    """The folder of this name, or its hidden name while it is replaced."""
    if (run / name).exists():
        return run / name
    return max(run.glob(f".{name}.*.old"), default=None)


def _state(folder: Path) -> State:
    with reading(folder / STATE, REMEDY):
        state = State(**read_json(folder / STATE))
        if not (type(state.step) is type(state.best_step) is int and isinstance(state.since, dict)):
            raise TypeError("steps are whole numbers")
        return state


def _load_tensors(path: Path) -> dict[str, Tensor]:
    with reading(path, REMEDY):
        return load_file(path)


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    with writing(path):
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)


def _with_retries(read: Callable[[], T]) -> T:
    for _ in range(TRIES - 1):
        try:
            return read()
        except (InputError, OSError):
            time.sleep(PAUSE)
    return read()


def check_weights(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], run: Path) -> None:
    """Raise if a checkpoint's weights have other names or shapes than the model's."""
    mine, theirs = ({name: tuple(w.shape) for name, w in weights.items()} for weights in (expected, found))
    if mine != theirs:
        names = ", ".join(name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name))
        raise InputError(run, f"holds weights of another version of its model ({names}): train again")


METRICS, TENSORBOARD = "metrics.jsonl", "tensorboard"


def truncate_metrics(run: Path, last: dict[str, Any]) -> None:
    """Bring metrics.jsonl to where a run stands: its lines up to the last committed evaluation, each once."""
    lines: list[dict[str, Any]] = []
    path = run / METRICS
    with reading(path, "remove it, training begins a new one"):
        texts = path.read_text("utf-8", errors="replace").splitlines() if path.exists() else []
    for text in texts:
        line = metrics_line(text)
        if line is None:
            break
        if line["step"] <= last.get("step", 0):
            lines.append(line)
    if last and (not lines or lines[-1]["step"] != last["step"]):
        lines.append(last)
    write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def metrics_line(text: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None if it was cut off by a kill or damaged."""
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
