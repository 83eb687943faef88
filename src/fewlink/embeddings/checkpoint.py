"""The complete state of a training run: one file, and one more for each further process, always whole.

The state of a run is the file at its path. It names how many processes wrote it; the rows of the entity tables that
the others kept lie beside it, in files named by epoch and process. A new state is written beside the old one, and the
renaming of the first process's file makes it the state.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fewlink.base import distributed
from fewlink.base.errors import FewlinkError, InputError
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.shards import PIECE, Shard

FORMAT = "fewlink-embedding-state/1"
MAY_CHANGE = {"device", "save_every"}


def digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of what is trained on: the sizes and every triple in order."""
    seen = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    for first in range(0, len(triples), PIECE):
        seen.update(np.ascontiguousarray(triples[first : first + PIECE], dtype="<i8").data)
    return seen.hexdigest()


def check_shared(folder: Path) -> None:
    """Refuse a folder that is not the same one for all processes."""
    if distributed.count() == 1:
        return
    mark = distributed.from_first(lambda: _mark(folder))
    try:
        distributed.everywhere(lambda: _see(folder / mark))
    finally:
        if distributed.rank() == 0:
            (folder / mark).unlink(missing_ok=True)


def is_there(path: Path) -> bool:
    """Whether there is a state to continue from, as the first process sees it."""
    return distributed.from_first(path.exists)


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], shard: Shard) -> None:
    """Replace the state in one step: processes killed at any moment leave the old one or the new one.

    Tensors whose name has "entities" in it hold the rows of the shard; all others are alike in every process.
    """
    facts = {**facts, "shards": shard.count}
    beside = path.with_name(f".{path.name}.part")
    others = [_shard_file(path, facts, rank) for rank in range(1, shard.count)]
    distributed.everywhere(lambda: _write([beside, *others], tensors, facts, shard))
    distributed.from_first(lambda: _replace(path, beside, others))


def load_state(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str, shard: Shard
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a state made with the same settings on the same triples, by any number of processes.

    Of the entity tables they are the rows of the shard.
    """
    return distributed.everywhere(lambda: _load(path, settings, trained_on, device, shard))


def whole_file(path: Path) -> Path:
    """Where the parts of an entity table are brought together when the run of this state has ended."""
    return path.with_name(f"{path.name}.whole")


def remove_state(path: Path) -> None:
    """Remove the state and all that lies beside it, when every process is done with it."""
    distributed.gathered(None)
    if distributed.rank() == 0:
        for file in (path, whole_file(path), *_shard_files(path)):
            file.unlink(missing_ok=True)


def _mark(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".seen-by-all-", dir=folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    os.close(handle)
    return Path(name).name


def _see(mark: Path) -> None:
    if not mark.exists():
        raise FewlinkError(
            f"process {distributed.rank()} does not see in {mark.parent} what the first process wrote there: "
            "all processes need the same folder, on a file system that their machines share"
        )


def _shard_file(path: Path, facts: dict[str, Any], rank: int) -> Path:
    return path.with_name(f"{path.name}.epoch-{facts['done']}.{rank}-of-{facts['shards']}")


def _shard_files(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{glob.escape(path.name)}.epoch-*"))


def _write(files: list[Path], tensors: dict[str, Tensor], facts: dict[str, Any], shard: Shard) -> None:
    """Write this process's file: in the first one everything, in the others their rows of the entity tables."""
    if distributed.rank() >= len(files):  # the first has all rows
        return
    file = files[distributed.rank()]
    kept = {name: x.cpu() for name, x in tensors.items() if shard.rank == 0 or "entities" in name}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(kept, file, {"format": FORMAT, "facts": json.dumps(facts)})
    except (OSError, SafetensorError) as error:
        raise _unwritable(file.parent, error) from None
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _replace(path: Path, beside: Path, others: list[Path]) -> None:
    """Make what was written the state, and remove what belonged to the old one."""
    for file in others:
        if not file.exists():
            raise InputError(file, "was written by another process and is not seen here: all need the same folder")
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    for old in set(_shard_files(path)) - set(others):
        old.unlink(missing_ok=True)


def _load(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str, shard: Shard
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with ExitStack() as opened:
        first, facts = _open(path, opened)
        _check(path, facts, settings, trained_on)
        others = [_shard_file(path, facts, rank) for rank in range(1, facts.get("shards", 1))]
        for file in others:
            if not file.exists():
                raise InputError(
                    file,
                    f"is a part of the state {path} and cannot be seen: put it back, on a file system that all "
                    f"processes share, or remove {path} to start again",
                )
        files = [first, *(_open(file, opened)[0] for file in others)]
        tensors = {
            name: _own_rows(files, name, shard) if "entities" in name else first.get_tensor(name).clone()
            for name in first.keys()  # noqa: SIM118
        }
    return {name: x.to(device) for name, x in tensors.items()}, facts


def _open(path: Path, opened: ExitStack) -> tuple[Any, dict[str, Any]]:
    """A file of a state, and the facts in it."""
    try:
        file = opened.enter_context(safe_open(path, framework="pt"))
    except (OSError, SafetensorError) as error:
        raise InputError(path, f"is not a training state ({error}): remove it to start again") from None
    meta = file.metadata() or {}
    if meta.get("format") != FORMAT:
        raise InputError(path, f"is not a training state of format {FORMAT}: remove it to start again")
    return file, json.loads(meta["facts"])


def _own_rows(files: list[Any], name: str, shard: Shard) -> Tensor:
    """The rows of a shard (n, …) out of files that each hold those of one of as many processes, a piece at a time."""
    slices = [file.get_slice(name) for file in files]
    rows: Tensor = slices[0][:0].new_empty(len(shard), *slices[0].get_shape()[1:])
    for rank, lies in enumerate(slices):
        for part, ids in Shard(shard.total, rank, len(files)).pieces():
            numbers = torch.arange(ids.start, ids.stop, ids.step)
            own = numbers % shard.count == shard.rank
            if own.any():
                rows[numbers[own] // shard.count] = lies[part][own]
    return rows


def _check(path: Path, facts: dict[str, Any], settings: EmbeddingSettings, trained_on: str) -> None:
    if facts["triples"] != trained_on:
        raise FewlinkError(f"{path} was trained on other triples: remove it to start again, or give the same triples")
    allowed = MAY_CHANGE | ({"epochs"} if settings.schedule == "constant" else set())
    wanted, found = settings.as_dict(), facts["settings"]
    for name in sorted(wanted.keys() | found.keys()):
        if name not in allowed and wanted.get(name) != found.get(name):
            raise FewlinkError(
                f"{path} was trained with {name} = {found.get(name)!r}, and {wanted.get(name)!r} is asked for: "
                "give the same settings, or remove the file to start again"
            )


def _unwritable(folder: Path, error: Exception) -> FewlinkError:
    return FewlinkError(f"{folder} cannot be written to ({error}): choose another folder")
