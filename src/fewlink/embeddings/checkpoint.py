"""The state of a training run: one file, and one more for each further process, replaced atomically.

The file at the state's path says how many processes wrote it. The entity rows of the other processes are beside it, in
files named by epoch and process. A new state is written beside the old one and takes effect when the first process
renames its file.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.core.storage import LEFT, recover, sync
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.shards import PIECE, Shard
from fewlink.embeddings.table import save_tensors

FORMAT = "fewlink-embedding-state/1"
REMEDY = "remove it to start again"
MAY_CHANGE = {"device", "save_every"}  # settings of a resumed run


def triples_digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of the sizes and of every triple in order."""
    digest = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    for first in range(0, len(triples), PIECE):
        digest.update(np.ascontiguousarray(triples[first : first + PIECE], dtype="<i8").data)
    return digest.hexdigest()


def check_shared(folder: Path) -> None:
    """Raises if the processes do not share the folder."""
    if distributed.count() == 1:
        return
    marker = distributed.from_first(lambda: _write_marker(folder))
    try:
        distributed.everywhere(lambda: _check_marker(folder / marker))
    finally:
        if distributed.rank() == 0:
            (folder / marker).unlink(missing_ok=True)


def state_exists(path: Path) -> bool:
    """Whether the first process sees a state to resume from."""
    return distributed.from_first(path.exists)


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any], shard: Shard) -> None:
    """Replace the state atomically: processes killed at any moment leave the old state or the new one.

    Tensors with "entities" in their name have the rows of the shard; all others are equal in every process.
    """
    facts = {**facts, "shards": shard.count}
    beside = _draft(path)
    others = [_shard_file(path, facts, rank) for rank in range(1, shard.count)]
    distributed.everywhere(lambda: _write([beside, *others], tensors, facts, shard))
    distributed.from_first(lambda: _replace(path, beside, others))


def load_state(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str, shard: Shard
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a state, of the entity tables the rows of the shard.

    The state may be written by any number of processes; raises if its settings or triples are others.
    """
    return distributed.everywhere(lambda: _load(path, settings, trained_on, device, shard))


def whole_file(path: Path) -> Path:
    """The file in which the processes collect the final entity table."""
    return path.with_name(f"{path.name}.whole")


def remove_state(path: Path) -> None:
    """Remove the state and all files beside it once every process is done with them."""
    distributed.gathered(None)
    if distributed.rank() == 0:
        for file in (path, _draft(path), whole_file(path), *_shard_files(path)):
            _remove(file)


def _draft(path: Path) -> Path:
    """The first process's file of a state that is not complete yet."""
    return path.with_name(f".{path.name}.part")


def _write_marker(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".seen-by-all-", dir=folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    os.close(handle)
    return Path(name).name


def _check_marker(marker: Path) -> None:
    if not marker.exists():
        raise FewlinkError(
            f"process {distributed.rank()} does not see the file that the first process wrote into {marker.parent}: "
            "all processes need the same folder, on a shared file system"
        )


def _shard_file(path: Path, facts: dict[str, Any], rank: int) -> Path:
    return path.with_name(f"{path.name}.epoch-{facts['done']}.{rank}-of-{facts['shards']}")


def _shard_files(path: Path) -> list[Path]:
    """The files of other processes, also those that a killed process had only begun, or had only locked."""
    pattern = f"{glob.escape(path.name)}.epoch-*"
    begun = {path.with_name(left[1]) for file in path.parent.glob(f".{pattern}") if (left := LEFT.fullmatch(file.name))}
    return [*path.parent.glob(pattern), *begun]


def _remove(file: Path) -> None:
    """Remove a file, and what a killed process left of a new one."""
    file.unlink(missing_ok=True)
    recover(file)


def _write(files: list[Path], tensors: dict[str, Tensor], facts: dict[str, Any], shard: Shard) -> None:
    """Write this process's file: all tensors in the first process, its entity rows in the others."""
    if distributed.rank() >= len(files):  # the first process has all rows
        return
    file = files[distributed.rank()]
    stored = {name: x.cpu() for name, x in tensors.items() if shard.rank == 0 or "entities" in name}
    text = json.dumps({**facts, "rank": shard.rank})
    digest = _sha256(text, {name: [x] for name, x in stored.items()})
    try:
        save_tensors(stored, file, {"format": FORMAT, "facts": text, "sha256": digest})
    except FewlinkError as error:
        raise _unwritable(file.parent, error) from None


def _replace(path: Path, beside: Path, others: list[Path]) -> None:
    """Make the written files the state, and remove those of the old state."""
    for file in others:
        if not file.exists():
            raise InputError(file, "was written by another process and is missing here: all need the same folder")
    try:
        os.replace(beside, path)
        sync(path.parent)
    except FileNotFoundError:
        raise FewlinkError(f"{path} is written by another process too: choose another folder for one of them") from None
    except OSError as error:
        raise _unwritable(path.parent, error) from None
    for old in set(_shard_files(path)) - set(others):
        _remove(old)


def _load(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str, shard: Shard
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with ExitStack() as opened:
        first, facts = _open(path, opened)
        _check(path, facts, settings, trained_on)
        if facts.pop("rank", 0):
            raise InputError(path, f"is the part of another process than the first: {REMEDY}")
        files = [first, *_open_others(path, facts, opened)]
        with reading(path, REMEDY):
            tensors = {
                name: _rows_of(files, name, shard) if "entities" in name else first.get_tensor(name).clone()
                for name in first.keys()  # noqa: SIM118
            }
    return {name: x.to(device) for name, x in tensors.items()}, facts


def _open_others(path: Path, facts: dict[str, Any], opened: ExitStack) -> list[Any]:
    """The files of the other processes of a state; raises if one is missing, damaged or part of another state."""
    files = []
    for rank in range(1, facts.get("shards", 1)):
        file = _shard_file(path, facts, rank)
        if not file.exists():
            raise InputError(
                file,
                f"is a part of the state {path} and is missing: put it back, on a file system that all "
                f"processes share, or remove {path} to start again",
            )
        part, others = _open(file, opened)
        if any(others[name] != facts[name] for name in ("settings", "triples", "done", "shards")):
            raise InputError(file, f"is a part of another state than {path}: {REMEDY}")
        if others.get("rank", rank) != rank:  # earlier versions did not store it
            raise InputError(file, f"is the part of process {others['rank']}, not {rank}: {REMEDY}")
        files.append(part)
    return files


def _open(path: Path, opened: ExitStack) -> tuple[Any, dict[str, Any]]:
    """A file of a state, and its facts."""
    try:
        file = opened.enter_context(safe_open(path, framework="pt"))
    except (OSError, SafetensorError) as error:
        raise InputError(path, f"is not a training state ({error}): remove it to start again") from None
    meta = file.metadata() or {}
    if meta.get("format") != FORMAT:
        raise wrong_format(path, meta.get("format"), FORMAT, REMEDY)
    with reading(path, REMEDY):
        facts = json.loads(meta["facts"])
        pieces = {name: _pieces(file, name) for name in file.keys()}  # noqa: SIM118
        if meta.keys() - {"format", "facts"} and meta.get("sha256") != _sha256(meta["facts"], pieces):
            raise InputError(path, f"was changed or damaged since it was written: {REMEDY}")
        if not (isinstance(facts["settings"], dict) and isinstance(facts["done"], int)):
            raise TypeError("it has no settings or epochs")
    return file, facts


def check_state(path: Path) -> None:
    """Raise if a state is damaged, or lacks a part."""
    with ExitStack() as opened:
        _open_others(path, _open(path, opened)[1], opened)


def _sha256(facts: str, tensors: Mapping[str, Iterable[Tensor]]) -> str:
    """The sha256 of the facts and of all tensors, each given as pieces of its rows."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        for number, piece in enumerate(tensors[name]):
            if number == 0:
                digest.update(f"{name} {piece.dtype} {tuple(piece.shape[1:])}".encode())
            digest.update(piece.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _pieces(file: Any, name: str) -> Iterator[Tensor]:
    """A tensor of a file, a piece at a time."""
    stored = file.get_slice(name)
    if not (shape := stored.get_shape()):
        yield file.get_tensor(name)
    for first in range(0, shape[0] if shape else 0, PIECE):
        yield stored[first : first + PIECE]


def _rows_of(files: list[Any], name: str, shard: Shard) -> Tensor:
    """The rows of a shard (n, …), a piece at a time, from files that each have the rows of one process."""
    slices = [file.get_slice(name) for file in files]
    rows: Tensor = slices[0][:0].new_empty(len(shard), *slices[0].get_shape()[1:])
    for rank, stored in enumerate(slices):
        for part, ids in Shard(shard.total, rank, len(files)).pieces():
            numbers = torch.arange(ids.start, ids.stop, ids.step)
            inside = numbers % shard.count == shard.rank
            if inside.any():
                rows[numbers[inside] // shard.count] = stored[part][inside]
    return rows


def _check(path: Path, facts: dict[str, Any], settings: EmbeddingSettings, trained_on: str) -> None:
    if facts["triples"] != trained_on:
        raise FewlinkError(f"{path} was trained on other triples: remove it to start again, or give the same triples")
    allowed = MAY_CHANGE | ({"epochs"} if settings.schedule == "constant" else set())
    new, old = settings.as_dict(), facts["settings"]
    for name in sorted(new.keys() | old.keys()):
        if name not in allowed and new.get(name) != old.get(name):
            raise FewlinkError(
                f"{path} was trained with {name} = {old.get(name)!r}, not {new.get(name)!r}: "
                "give the same settings, or remove the file to start again"
            )


def _unwritable(folder: Path, error: Exception) -> FewlinkError:
    return FewlinkError(f"{folder} cannot be written to ({error}): choose another folder")
