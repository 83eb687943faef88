"""The record of a fit, RUN/fit.json: arguments, seconds of each stage, measurements, and what is deployed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError, InputError, wrong_format
from fewlink.core.files import read_json, with_sha256, without_sha256, write_json
from fewlink.models.folder import FIT, FIT_FORMAT, check_complete, hash_id, locked_run, run_id
from fewlink.training.run import make_folder

SHIPPED = "shipped"
RULES = "rules"
TUNED = "fine-tuned"
FIRST_STAGES = ("answering", "holding out", "measuring")  # those before fine-tuning
STOPPED = "stopped"  # names the seconds of stages that did not finish


def read_record(run: Path) -> dict[str, Any] | None:
    """The record of a fit, None if the folder has none."""
    path = run / FIT
    if not path.exists():
        check_complete(run, FIT)
        return None
    content = read_json(path)
    found = content.get("format") if isinstance(content, dict) else None
    if found != FIT_FORMAT:
        raise wrong_format(path, found, FIT_FORMAT, "fit again into another folder")
    remedy = "restore it from a copy, or fit again into another folder"
    content = without_sha256(content, path, remedy=remedy)
    mine = run_id(run)
    other = content.pop("id", "")
    if mine and other and mine != other:
        raise InputError(path, f"belongs to another run ({other}, not {mine}): {remedy}")
    return dict(content)


def write_record(run: Path, record: dict[str, Any]) -> None:
    write_json(run / FIT, with_sha256({**record, "id": record_id(run, record)}))


def record_id(run: Path, record: dict[str, Any]) -> str:
    """The id of the run, which is the same for all calls that continue a fit."""
    arguments = {name: value for name, value in record["asked"].items() if name != "minutes"}
    return run_id(run) or hash_id(arguments)


def continued(before: dict[str, Any], new: dict[str, Any], minutes: float) -> dict[str, Any]:
    """The record to continue with: the new one if nothing was measured, else the old one.

    A fit that has ended, and now gets more minutes, is fine-tuned again. The time of earlier calls counts.
    """
    seconds = before["seconds"]
    used = sum(seconds.values())
    more = minutes > before["asked"]["minutes"]
    if "answering" not in seconds or ("measuring" not in seconds and minutes != before["asked"]["minutes"]):
        return {**new, "seconds": {STOPPED: used} if used else {}}
    if "card" in seconds and more:
        kept = {name: seconds[name] for name in FIRST_STAGES}
        before["seconds"] = {**kept, STOPPED: used - sum(kept.values())}
    return before


@contextlib.contextmanager
def locked_folder(run: Path) -> Iterator[None]:
    """Create and lock the folder; it is removed afterwards if it is still empty."""
    make_folder(run)
    mine = False
    try:
        with locked_run(run):
            mine = True
            yield
    finally:
        if mine:
            with contextlib.suppress(OSError):  # not empty
                run.rmdir()


def check_fit_folder(run: Path) -> None:
    """Raise if the path is a file, or a folder that `fit` did not write."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    others = [path for path in run.iterdir() if not path.name.startswith((".lock", f".{FIT}."))] if run.exists() else []
    if others and not (run / FIT).exists():
        check_complete(run, FIT)
        raise FewlinkError(f"{run} exists and was not made by fewlink fit: choose another folder")


def check_continues(run: Path, before: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise if a fit was started with other arguments, given its record."""
    files = {"graph": "another graph", "types": "other types", "names": "other names"}
    for name, value in arguments.items():
        if (own := before["asked"].get(name)) != value:
            difference = files.get(name, f"{name} = {own}, not {value}")
            raise InputError(run, f"was fitted with {difference}: use the same, or choose another folder")
