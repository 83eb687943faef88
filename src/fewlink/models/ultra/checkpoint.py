"""Weights that authors publish, read from files; code in a file is never run."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from fewlink.core.errors import InputError
from fewlink.models.ultra.network import PublishedNetwork

NetworkT = TypeVar("NetworkT", bound=PublishedNetwork)


class Checkpoint(NamedTuple, Generic[NetworkT]):
    """Weights of a kind of network by name, with the name and sha256 of their file in `facts`."""

    kind: type[NetworkT]
    weights: dict[str, Tensor]
    facts: dict[str, Any]

    @property
    def shape(self) -> Any:
        return self.kind.shape_of(self.weights)

    def network(self) -> NetworkT:
        """A network with a copy of the weights."""
        network = self.kind(self.shape)
        network.load_state_dict(self.weights)
        return network


def read_checkpoint(path: Path | str, kind: type[NetworkT]) -> Checkpoint[NetworkT]:
    """Read the weights of a kind of network from a published .pth file or a .safetensors file."""
    path = Path(path)
    content = _content(path, f"{kind.title}'s weights")
    tensors = _tensors(path, content)
    network = kind(kind.shape_of(tensors))
    expected = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    shapes = {name: tuple(weight.shape) for name, weight in tensors.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if shapes.get(name) != expected.get(name):
            difference = f"{name} has shape {shapes.get(name)}, expected {expected.get(name)}"
            raise InputError(path, f"does not have weights of {kind.title} ({difference}): give another file")
    weights = {name: tensors[name].float() for name in expected}
    return Checkpoint(kind, weights, {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()})


def _content(path: Path, wanted: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror}): give a file of {wanted}") from None


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    found: Any
    try:
        if content[8:9] == b"{":
            found = safetensors.torch.load(content)
        else:
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # torch.load raises errors of many kinds
        raise InputError(path, "is damaged or not a file of weights: give a .pth or .safetensors file") from None
    if isinstance(found, dict) and isinstance(found.get("model"), dict):
        found = found["model"]  # a file may also have an optimizer's state
    return {n: w for n, w in found.items() if isinstance(w, Tensor)} if isinstance(found, dict) else {}
