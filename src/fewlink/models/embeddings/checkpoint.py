"""The state of a training run: a file of tensors and facts with a checksum, replaced atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fewlink.core.errors import FewlinkError, InputError, reading, wrong_format
from fewlink.models.embeddings.settings import EmbeddingSettings
from fewlink.models.embeddings.table import save_tensors

FORMAT = "fewlink-embedding-state/1"
REMEDY = "remove it to start again"
MAY_CHANGE = {"device", "save_every"}  # settings that a resumed run may change
ROWS_PER_PIECE = 1 << 16  # hashed at a time


def triples_digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of the sizes and of all triples in order."""
    digest = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    for first in range(0, len(triples), ROWS_PER_PIECE):
        digest.update(np.ascontiguousarray(triples[first : first + ROWS_PER_PIECE], dtype="<i8").data)
    return digest.hexdigest()


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the state atomically: a process killed at any moment leaves the old state or the new one."""
    stored = {name: tensor.cpu() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    digest = _sha256(text, {name: [tensor] for name, tensor in stored.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(stored, path, {"format": FORMAT, "facts": text, "sha256": digest})
    except (OSError, FewlinkError) as error:
        raise FewlinkError(f"{path.parent} cannot be written ({error}): choose another folder") from None


def load_state(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load the tensors and facts of a state. Raise if it is damaged, or has other settings or triples."""
    facts = _checked_facts(path)
    _check_same_run(path, facts, settings, trained_on)
    with reading(path, REMEDY), safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone().to(device) for name in file.keys()}  # noqa: SIM118
    return tensors, facts


def check_state(path: Path) -> None:
    """Raise if a state is damaged."""
    _checked_facts(path)


def remove_state(path: Path) -> None:
    """Remove the state."""
    path.unlink(missing_ok=True)


def _checked_facts(path: Path) -> dict[str, Any]:
    """The facts of a state. Raise if its content does not match its checksum."""
    try:
        opened = safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(path, f"is not a training state ({error}): {REMEDY}") from None
    with opened as file:
        meta = file.metadata() or {}
        if meta.get("format") != FORMAT:
            raise wrong_format(path, meta.get("format"), FORMAT, REMEDY)
        with reading(path, REMEDY):
            pieces = {name: _pieces(file, name) for name in file.keys()}  # noqa: SIM118
            if meta.get("sha256") != _sha256(meta["facts"], pieces):
                raise InputError(path, f"was changed or damaged since it was written: {REMEDY}")
            facts: dict[str, Any] = json.loads(meta["facts"])
            if not (isinstance(facts["settings"], dict) and isinstance(facts["done"], int)):
                raise TypeError("it has no settings or epochs")
    if facts.get("shards", 1) > 1:
        raise InputError(path, f"was written by {facts['shards']} processes, but training uses one: {REMEDY}")
    return facts


def _check_same_run(path: Path, facts: dict[str, Any], settings: EmbeddingSettings, trained_on: str) -> None:
    if facts["triples"] != trained_on:
        raise FewlinkError(f"{path} was trained on other triples: remove it to start again, or give the same triples")
    allowed = MAY_CHANGE | ({"epochs"} if settings.schedule == "constant" else set())
    new = settings.as_dict()
    old = facts["settings"]
    for name in sorted(new.keys() | old.keys()):
        if name not in allowed and new.get(name) != old.get(name):
            raise FewlinkError(
                f"{path} was trained with {name} = {old.get(name)!r}, not {new.get(name)!r}: "
                "give the same settings, or remove the file to start again"
            )


def _sha256(facts: str, tensors: Mapping[str, Iterable[Tensor]]) -> str:
    """The sha256 of the facts and of all tensors, each as pieces of its rows."""
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        for number, piece in enumerate(tensors[name]):
            if number == 0:
                digest.update(f"{name} {piece.dtype} {tuple(piece.shape[1:])}".encode())
            digest.update(piece.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _pieces(file: Any, name: str) -> Iterator[Tensor]:
    """Yield a tensor of a file, a piece at a time."""
    stored = file.get_slice(name)
    shape = stored.get_shape()
    if not shape:
        yield file.get_tensor(name)
        return
    for first in range(0, shape[0], ROWS_PER_PIECE):
        yield stored[first : first + ROWS_PER_PIECE]
