"""The checkpoints of a run, complete at every moment: `last/` to continue from, `best/` to use.

`last/` is written at each evaluation, and between evaluations at least once a minute. An evaluation is committed by
writing `last/`, which says whether its weights are the best so far; `best/` follows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file
from torch import Tensor

from fewlink.core import storage
from fewlink.core.errors import InputError, reading
from fewlink.core.storage import (
    exists,
    locked,
    locked_inside,
    new_folder,
    open_folder,
    read_folder,
    read_json,
    with_sha256,
    without_sha256,
    write_json,
)
from fewlink.embeddings.table import save_tensors

FORMAT = "fewlink-checkpoint/1"
CONFIG = "config.json"  # of the run
CALIBRATION, FIT, BENCHMARK, DEPLOYED = "calibration.json", "fit.json", "benchmark", "serving"  # a run may have
WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"
FORMER = "former.safetensors"  # weights that answer until the configuration names those that replace them
TRIES = 5  # of readers while a run is being trained, since `best/` may be replaced after `last/` was read
REMEDY = "restore the folder of this run, or train again in another folder"
MISSING = {
    CALIBRATION: "restore it from a copy, or make it again with fewlink card RUN",
    FIT: "restore it from a copy, or fit again into another folder",
    BENCHMARK: "restore it from a copy, or make the run again in another folder",
    DEPLOYED: "restore it from a copy, or make the run again in another folder",
}

T = TypeVar("T")


@dataclass
class State:
    """Where a run stands: steps taken, the best evaluation (step and dev figures), and how many were not better since.

    `line` is the last line of metrics.jsonl, `seconds` the time spent in all. `since` is what happened after the last
    evaluation: empty, or its `step`, the sums of the `losses` by name, and the `seconds` of training and of `sampling`.
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
        save_tensors(weights, folder / WEIGHTS)
        save_tensors(optimizer, folder / OPTIMIZER)
        write_json(folder / STATE, asdict(state))


def run_facts(run: Path) -> dict[str, Any]:
    """What the configuration of a run says; empty if there is none, or none that can be read."""
    with contextlib.suppress(InputError):
        content = read_json(run / CONFIG)
        return content if isinstance(content, dict) else {}
    return {}


def run_id(run: Path) -> str:
    """The id of the run in a folder; empty if it has none, as before its configuration is written."""
    return str(run_facts(run).get("id", ""))


def deployment(run: Path) -> str:
    """The same as long as the same scorer of a fit answers, which its calibration names; empty for other runs."""
    facts = run_facts(run)
    weights = facts.get("weights")
    return id_of(weights, facts.get("answers_with", ""), facts.get("names", False)) if weights else ""


def parts_held(run: Path, without: Container[str] = ()) -> list[str]:
    """The optional files and folders that a run has, or has according to its configuration."""
    listed = run_facts(run).get("holds")
    known = listed if isinstance(listed, list) else []
    return [name for name in MISSING if name not in without and (name in known or exists(run / name))]


def list_parts(run: Path) -> None:
    """Name in the configuration of a run what it has, so that a part that gets lost is missed."""
    path = Path(run) / CONFIG
    if path.exists():
        with locked(path):
            content = without_sha256(read_json(path), path, remedy=REMEDY)
            if isinstance(content, dict) and content.get("holds") != (held := parts_held(run)):
                write_json(path, with_sha256({**content, "holds": held}))


def check_complete(run: Path, *names: str) -> None:
    """Raise if a part that the configuration of a run names is missing, of all parts or of these."""
    for name in parts_held(run):
        if name in (names or MISSING) and not exists(run / name):
            raise InputError(run / name, f"is missing, but belongs to this run: {MISSING[name]}")


def read_run(run: Path, load: Callable[[], T]) -> T:
    """What `load` reads of a run, all of one version even if better weights are saved or others deployed meanwhile."""
    end = time.monotonic() + storage.MAX_READ_SECONDS
    while True:
        before = _version(run)
        try:
            loaded = load()
        except Exception:
            if _version(run) == before:
                raise
        else:
            if _version(run) == before:
                return loaded
        if time.monotonic() > end:
            raise InputError(run, f"was changed again and again for {storage.MAX_READ_SECONDS:.0f} s: try again later")
        time.sleep(storage.RETRY_SECONDS)


def _version(run: Path) -> list[Any]:
    """What differs if another configuration or other weights answer."""
    version: list[Any] = []
    for path in (run / CONFIG, storage.place_of(run / "best") / storage.MANIFEST):
        with contextlib.suppress(OSError):
            version.append(path.read_bytes())
    with contextlib.suppress(InputError, AttributeError):
        version.append(read_json(storage.place_of(run / "last") / STATE).get("best_step"))
    return version


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
    kind = manifest.get("checkpoint")
    if kind is not None and kind != folder.name:
        raise InputError(folder, f"holds the checkpoint '{kind}', not '{folder.name}': restore the folder of this run")


def _facts(run: Path, name: str, step: int) -> dict[str, Any]:
    """What the manifest of a checkpoint says."""
    return {"step": step, "checkpoint": name, "run": run_id(run)}


def _read(run: Path, name: str, load: Callable[[Path, dict[str, Any]], T]) -> T:
    """What `load` makes of the place and the manifest of a checkpoint of this run."""

    def of_this_run(place: Path, manifest: dict[str, Any]) -> T:
        check_belongs(manifest, run, run / name)
        return load(place, manifest)

    return read_folder(run / name, FORMAT, of_this_run)


def save_best(run: Path, weights: Mapping[str, Tensor], step: int) -> None:
    facts = {**_facts(run, "best", step), **({"last": True} if exists(run / "last") else {})}
    with new_folder(run / "best", FORMAT, facts) as folder:
        save_tensors(weights, folder / WEIGHTS)


def add_best(run: Path, weights: Mapping[str, Tensor], step: int) -> str:
    """Save weights that the configuration is about to name, beside those that it names; returns their sha256.

    So a reader finds the weights of the configuration that it has read, whenever it reads, and after a kill.
    """
    former = load_best(run) if run_facts(run).get("weights") else None
    facts = _facts(run, "best", step) | ({"former": former[1]} if former else {})
    with new_folder(run / "best", FORMAT, facts) as folder:
        save_tensors(weights, folder / WEIGHTS)
        if former:
            save_tensors(former[0], folder / FORMER)
    return weights_digest(run)


def weights_digest(run: Path) -> str:
    """The sha256 of the weights in `best/`."""
    return str(open_folder(run / "best", FORMAT)["files"][WEIGHTS]["sha256"])


def load_last(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], State] | None:
    """Weights, optimizer state and counters; None if nothing has been saved yet."""
    if not begun(run):
        return None
    return _read(
        run, "last", lambda place, _: (_load_tensors(place / WEIGHTS), _load_tensors(place / OPTIMIZER), _state(place))
    )


def begun(run: Path) -> bool:
    """Whether anything has been saved; raises if the best weights were saved after others that are missing."""
    if exists(run / "last"):
        return True
    after = exists(run / "best") and open_folder(run / "best", FORMAT, verify=False).get("last")
    if after and not exists(run / "last"):
        raise InputError(run / "last", f"is missing: {REMEDY}")
    return exists(run / "last")


def load_state(run: Path) -> State:
    """Where a run stands: at its beginning if nothing has been saved yet."""
    return _read(run, "last", lambda place, _: _state(place)) if begun(run) else State()


def load_best(run: Path) -> tuple[dict[str, Tensor], int]:
    """The best weights so far and their step; before the first evaluation, the last ones.

    Also of a run that is being trained or fitted, or was killed. A fit's configuration names its weights.
    """
    for _ in range(TRIES):
        has_best, state = exists(run / "best"), State()
        if named := str(run_facts(run).get("weights", "")):
            if found := _read(run, "best", lambda place, facts, name=named: _named(place, facts, name)):  # type: ignore[misc]
                return found
            continue
        if begun(run):
            state, weights = _read(run, "last", lambda place, _, best=has_best: _load_last_weights(place, best))  # type: ignore[misc]
            if weights is not None:
                return weights, state.step
        if not has_best:
            if state.best_step:
                raise InputError(run / "best", "is missing: restore the folder, or train again in another folder")
            raise InputError(run, "has no checkpoint yet: train it for a minute")
        weights, step = _read(run, "best", lambda place, facts: (_load_tensors(place / WEIGHTS), int(facts["step"])))
        if state.best_step in (0, step):
            return weights, step
    if named:
        raise InputError(run / "best", f"holds other weights than {CONFIG} names: restore the folder of this run")
    problem = f"is of step {step}, but the best one is of step {state.best_step}: restore the folder"
    raise InputError(run / "best", problem)


def _named(folder: Path, facts: Mapping[str, Any], digest: str) -> tuple[dict[str, Tensor], int] | None:
    """The weights with this sha256 and their step; None if they are not in the folder."""
    for name, step in ((WEIGHTS, "step"), (FORMER, "former")):
        if facts["files"].get(name, {}).get("sha256") == digest and type(facts.get(step)) is int:
            return _load_tensors(folder / name), facts[step]
    return None


def _load_last_weights(folder: Path, has_best: bool) -> tuple[State, dict[str, Tensor] | None]:
    """Where a run stands, and the last weights if they are the best so far or there are no others."""
    state = _state(folder)
    return state, _load_tensors(folder / WEIGHTS) if state.is_best or not (has_best or state.best_step) else None


def recover(run: Path) -> None:
    """After a kill: put both folders right, and bring `best/` up to `last/`."""
    for name in ("last", "best"):
        storage.recover(run / name)
    state = load_state(run)
    kept = _read(run, "best", lambda _, facts: int(facts["step"])) if exists(run / "best") else 0
    if state.is_best and kept != state.step:
        save_best(run, _load_tensors(run / "last" / WEIGHTS), state.step)


def locked_run(run: Path) -> contextlib.AbstractContextManager[None]:
    """Lock a run folder for long work; raises at once if another process has it. What a kill left is put right."""
    return locked_inside(run, f"{run} is being trained by another process: wait for it, or choose another folder")


def _state(folder: Path) -> State:
    with reading(folder / STATE, REMEDY):
        state = State(**read_json(folder / STATE))
        if not (type(state.step) is type(state.best_step) is int and isinstance(state.since, dict)):
            raise TypeError("steps are whole numbers")
        if isinstance(losses := state.since.get("losses"), list):  # written by version 0.2
            state.since["losses"] = dict(zip(("loss", "rank_loss", "reconstruction_loss"), losses, strict=True))
        return state


def _load_tensors(path: Path) -> dict[str, Tensor]:
    with reading(path, REMEDY):
        return load_file(path)
