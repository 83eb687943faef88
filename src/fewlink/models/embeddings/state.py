"""The state of a training run: a file of tensors and facts with a checksum, replaced atomically."""

from __future__ import annotations

import hashlib
import json
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


def triples_digest(triples: np.ndarray, entities: int, relations: int) -> str:
    """The sha256 of the sizes and of all triples in order."""
    digest = hashlib.sha256(f"{entities} {relations} {len(triples)}".encode())
    for piece in np.array_split(triples, len(triples) // (1 << 16) + 1):  # copied as 64-bit numbers one at a time
        digest.update(np.ascontiguousarray(piece, dtype="<i8").data)
    return digest.hexdigest()


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the state atomically: a process killed at any moment leaves the old state or the new one."""
    stored = {name: tensor.cpu() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(stored, path, {"format": FORMAT, "facts": text, "sha256": _sha256(text, stored)})
    except (OSError, FewlinkError) as error:
        raise FewlinkError(f"{path.parent} cannot be written ({error}): choose another folder") from None


def load_state(
    path: Path, settings: EmbeddingSettings, trained_on: str, device: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load the tensors and facts of a state. Raise if it is damaged, or has other settings or triples."""
    try:
        opened = safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(path, f"is not a training state ({error}): {REMEDY}") from None
    with opened as file, reading(path, REMEDY):
        meta = file.metadata() or {}
        if meta.get("format") != FORMAT:
            raise wrong_format(path, meta.get("format"), FORMAT, REMEDY)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if meta.get("sha256") != _sha256(meta["facts"], tensors):
            raise InputError(path, f"was changed or damaged since it was written: {REMEDY}")
        facts: dict[str, Any] = json.loads(meta["facts"])
    if facts["triples"] != trained_on:
        raise FewlinkError(f"{path} was trained on other triples: remove it to start again, or give the same triples")
    allowed = MAY_CHANGE | ({"epochs"} if settings.schedule == "constant" else set())
    for name, value in settings.as_dict().items():
        before = facts["settings"].get(name)
        if name not in allowed and value != before:
            raise FewlinkError(
                f"{path} was trained with {name} = {before!r}, not {value!r}: "
                "give the same settings, or remove the file to start again"
            )
    return {name: tensor.clone().to(device) for name, tensor in tensors.items()}, facts


def _sha256(facts: str, tensors: dict[str, Tensor]) -> str:
    """The sha256 of the facts and of all tensors by name."""
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape[1:])}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
