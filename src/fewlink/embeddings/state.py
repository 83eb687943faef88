"""The complete state of a training run in one file that is always whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.errors import FewlinkError, InputError

FORMAT = "fewlink-embedding-state/1"
MAY_CHANGE = {"device", "save_every"}


def digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of what is trained on: the sizes and every triple in order."""
    seen = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    seen.update(np.ascontiguousarray(triples, dtype="<i8").data)
    return seen.hexdigest()


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the state file in one step: a process killed at any moment leaves the old file or the new one."""
    beside = path.with_name(f".{path.name}.part")
    kept = {name: x.cpu() for name, x in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(kept, beside, {"format": FORMAT, "facts": json.dumps(facts)})
    except (OSError, SafetensorError) as error:
        raise FewlinkError(f"{path.parent} cannot be written to ({error}): choose another folder") from None
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_state(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a state file made with the same settings on the same triples."""
    try:
        with safe_open(path, framework="pt", device=device) as file:
            meta = file.metadata() or {}
            if meta.get("format") != FORMAT:
                raise InputError(path, f"is not a training state of format {FORMAT}: remove it to start again")
            facts: dict[str, Any] = json.loads(meta["facts"])
            _check(path, facts, settings, trained_on)
            return {name: file.get_tensor(name).clone() for name in file.keys()}, facts  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(path, f"is not a training state ({error}): remove it to start again") from None


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
