"""The checkpoints of a run: `last/` to continue from and `best/` to use. Both are complete at every moment.

`last/` is written at each evaluation and, between evaluations, at least once a minute. Writing `last/` commits an
evaluation: its state says whether its weights are the best so far. `best/` is written afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file
from torch import Tensor

from fewlink.core.errors import InputError, reading
from fewlink.core.files import exists, locked, new_folder, open_folder, read_folder, read_json, write_json
from fewlink.models.embeddings.table import save_tensors
from fewlink.models.folder import (
    BEST,
    CONFIG,
    LAST,
    REMEDY,
    STATE,
    check_belongs,
    config_content,
    read_consistently,
    run_id,
)

FORMAT = "fewlink-checkpoint/1"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
FORMER = "former.safetensors"  # weights in use until the configuration names the ones that replace them

T = TypeVar("T")


@dataclass
class State:
    """The progress of a run.

    step       the number of steps taken
    best_step  the step of the best evaluation
    best       its figures on dev
    waited     the number of evaluations since then
    seconds    the total time
    line       the last line of metrics.jsonl
    since      empty at an evaluation; after it, the `step` of the last one and the sums of the `losses` since, by name
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


def write_checkpoint(
    folder: Path,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    facts: dict[str, Any],
) -> None:
    """Replace a checkpoint atomically: what training continues from. Its manifest states the facts."""
    with new_folder(folder, FORMAT, facts) as draft:
        save_tensors(weights, draft / WEIGHTS)
        save_tensors(optimizer, draft / OPTIMIZER)
        write_json(draft / STATE, state)


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Any]:
    """The weights, the optimizer's tensors and the state of a checkpoint. Raise if it is damaged."""
    return read_folder(folder, FORMAT, lambda place, _: _load_checkpoint(place))


def save_last(run: Path, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: State) -> None:
    write_checkpoint(run / LAST, weights, optimizer, asdict(state), _manifest(run, state.step))


def save_best(run: Path, weights: Mapping[str, Tensor], step: int) -> None:
    manifest = _manifest(run, step)
    if exists(run / LAST):
        manifest["last"] = True
    with new_folder(run / BEST, FORMAT, manifest) as folder:
        save_tensors(weights, folder / WEIGHTS)


def add_best(run: Path, weights: Mapping[str, Tensor], step: int) -> str:
    """Save new best weights beside the ones that the configuration names; return the sha256 of the new file.

    A reader finds the weights that its configuration names, even if the process is killed before it updates the
    configuration.
    """
    former = load_best(run) if config_content(run).get("weights") else None
    manifest = _manifest(run, step)
    if former:
        manifest["former"] = former[1]
    with new_folder(run / BEST, FORMAT, manifest) as folder:
        save_tensors(weights, folder / WEIGHTS)
        if former:
            save_tensors(former[0], folder / FORMER)
    return str(open_folder(run / BEST, FORMAT)["files"][WEIGHTS]["sha256"])


def _manifest(run: Path, step: int) -> dict[str, Any]:
    """The facts in the manifest of a checkpoint."""
    return {"step": step, "run": run_id(run)}


def has_checkpoint(run: Path) -> bool:
    """Whether a run has saved `last/`; raises if `last/` was saved before `best/` and is now missing."""
    lost = not exists(run / LAST) and exists(run / BEST) and open_folder(run / BEST, FORMAT).get("last")
    if lost and not exists(run / LAST):
        raise InputError(run / LAST, f"is missing: {REMEDY}")
    return exists(run / LAST)


def load_last(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], State] | None:
    """The weights, the optimizer's state and the progress in `last/`; None before the first checkpoint."""
    if not has_checkpoint(run):
        return None

    return _read(run, LAST, lambda folder, _: (*_load_checkpoint(folder)[:2], _load_state(folder)))


def load_state(run: Path) -> State:
    """The progress of a run; that of a new run before the first checkpoint."""
    if not has_checkpoint(run):
        return State()
    return _read(run, LAST, lambda folder, _: _load_state(folder))


def load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    """The best weights so far and their step; before the first evaluation, the last weights.

    This also works while a run is being trained or fitted, and after a kill. For a fit, the best weights are those
    that its configuration names.
    """
    return read_consistently(run, lambda: _load_best(run))


def _load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    has_best = exists(run / BEST)
    named = str(config_content(run).get("weights", ""))
    if named:
        return _read(run, BEST, lambda folder, manifest: _load_named(folder, manifest, named))
    state = State()
    if has_checkpoint(run):
        state, weights = _read(run, LAST, lambda folder, _: _load_if_best(folder, has_best))
        if weights is not None:
            return weights, state.step
    if not has_best:
        if state.best_step:
            raise InputError(run / BEST, "is missing: restore the folder, or train again in another folder")
        raise InputError(run, "has no checkpoint yet: train it for a minute")
    weights, step = _read(run, BEST, lambda folder, manifest: (_load_tensors(folder / WEIGHTS), manifest["step"]))
    if state.best_step not in (0, step):
        raise InputError(run / BEST, f"is of step {step}, but the best step is {state.best_step}: restore the folder")
    return weights, step


def recover(run: Path) -> None:
    """Bring `best/` up to date with `last/` after a kill, and remove what the killed process was writing."""
    for name in (LAST, BEST):
        with locked(run / name):
            pass  # a lock removes leftovers
    state = load_state(run)
    saved_step = _read(run, BEST, lambda _, manifest: manifest["step"]) if exists(run / BEST) else 0
    if state.is_best and saved_step != state.step:
        save_best(run, _load_tensors(run / LAST / WEIGHTS), state.step)


def _read(run: Path, name: str, load: Callable[[Path, dict[str, Any]], T]) -> T:
    """Read a checkpoint with `load`, which receives its folder and its manifest."""

    def load_checked(folder: Path, manifest: dict[str, Any]) -> T:
        check_belongs(manifest, run, run / name)
        return load(folder, manifest)

    return read_folder(run / name, FORMAT, load_checked)


def _load_named(folder: Path, manifest: Mapping[str, Any], digest: str) -> tuple[dict[str, Tensor], int]:
    """The weights with this sha256 and their step."""
    for file, step in ((WEIGHTS, "step"), (FORMER, "former")):
        if manifest["files"].get(file, {}).get("sha256") == digest:
            return _load_tensors(folder / file), manifest[step]
    raise InputError(folder, f"holds other weights than {CONFIG} names: restore the folder of this run")


def _load_if_best(folder: Path, has_best: bool) -> tuple[State, dict[str, Tensor] | None]:
    """The state in `last/`, and its weights if they are the best so far or the only ones."""
    state = _load_state(folder)
    only_weights = not has_best and not state.best_step
    return state, _load_tensors(folder / WEIGHTS) if state.is_best or only_weights else None


def _load_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Any]:
    return _load_tensors(folder / WEIGHTS), _load_tensors(folder / OPTIMIZER), read_json(folder / STATE)


def _load_state(folder: Path) -> State:
    with reading(folder / STATE, REMEDY):
        return State(**read_json(folder / STATE))


def _load_tensors(path: Path) -> dict[str, Tensor]:
    with reading(path, REMEDY):
        return load_file(path)
