"""The files of a run folder, its id, and reads and locks that cover the whole folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.errors import InputError
from fewlink.core.files import (
    exists,
    identity,
    locked,
    place_of,
    read_json,
    version_of,
    while_unchanged,
    with_sha256,
    without_sha256,
    write_json,
)

CONFIG = "config.json"
EMBEDDINGS = "embeddings"
LAST = "last"
BEST = "best"  # checkpoints
STATE = "state.json"  # in a checkpoint
CALIBRATION = "calibration.json"
FIT = "fit.json"
BENCHMARK = "benchmark"
DEPLOYED = "serving"
LOCK = "run"  # the name of what is locked, and so of the lock file
FIT_FORMAT = "fewlink-fit/3"
REMEDY = "restore the folder of this run, or train again in another folder"
OPTIONAL = {  # files and folders that a run may have, and the remedy if one is lost
    CALIBRATION: "restore it from a copy, or calibrate the run again (fewlink.calibrate)",
    FIT: "restore it from a copy, or fit again into another folder",
    BENCHMARK: "restore it from a copy, or make the run again in another folder",
    DEPLOYED: "restore it from a copy, or make the run again in another folder",
}

T = TypeVar("T")


def config_content(run: Path) -> dict[str, Any]:
    """The content of a run's configuration; empty if it is missing or unreadable."""
    with contextlib.suppress(InputError):
        content = read_json(run / CONFIG)
        return content if isinstance(content, dict) else {}
    return {}


def run_id(run: Path) -> str:
    """The id of a run; empty before its configuration is written."""
    return str(config_content(run).get("id", ""))


def deployment_id(run: Path) -> str:
    """An id of the scorer that a fit deployed, which its calibration names; empty for other runs."""
    content = config_content(run)
    weights = content.get("weights")
    if not weights:
        return ""
    return hash_id(weights, content.get("answers_with", ""), content.get("names", False))


def hash_id(*facts: Any) -> str:
    """An id that is equal for equal facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def optional_files(run: Path, except_for: Container[str] = ()) -> list[str]:
    """The names in `OPTIONAL` that a run folder contains or its configuration lists."""
    listed = config_content(run).get("holds")
    if not isinstance(listed, list):
        listed = []
    return [name for name in OPTIONAL if name not in except_for and (name in listed or exists(run / name))]


def list_optional_files(run: Path) -> None:
    """List the optional files of a run in its configuration, so that a lost file is noticed."""
    path = Path(run) / CONFIG
    if not path.exists():
        return
    with locked(path):
        content = without_sha256(read_json(path), path, remedy=REMEDY)
        names = optional_files(run)
        if isinstance(content, dict) and content.get("holds") != names:
            write_json(path, with_sha256({**content, "holds": names}))


def check_complete(run: Path, *names: str) -> None:
    """Raise if an optional file that the configuration lists is missing; with `names`, check only these."""
    for name in optional_files(run):
        if name in (names or OPTIONAL) and not exists(run / name):
            raise InputError(run / name, f"is missing, but belongs to this run: {OPTIONAL[name]}")


def check_belongs(manifest: Mapping[str, Any], run: Path, folder: Path) -> None:
    """Raise if a folder inside a run folder was written for another run."""
    own = run_id(run)
    other = manifest.get("run")
    if own and other and own != other:
        raise InputError(folder, f"belongs to another run ({other}, not {own}): restore the folder of this run")


def read_consistently(run: Path, load: Callable[[], T]) -> T:
    """Call `load` until neither the configuration nor the best weights of a run change during the call."""
    return while_unchanged(run, lambda: _version(run), load)


def _version(run: Path) -> list[Any]:
    """A value that changes with the configuration and the best weights."""
    version: list[Any] = [identity(run / CONFIG), version_of(run / BEST)]
    with contextlib.suppress(InputError, AttributeError):
        version.append(read_json(place_of(run / LAST) / STATE).get("best_step"))
    return version


def locked_run(run: Path) -> contextlib.AbstractContextManager[None]:
    """Lock a run folder; the lock file lies inside it. Raise at once if another process holds the lock."""
    return locked(run / LOCK, f"{run} is being trained by another process: wait for it, or choose another folder")
