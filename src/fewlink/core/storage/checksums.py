"""Checksums of files and of JSON content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError

BLOCK = 4 << 20  # bytes that are hashed at a time


def sha256_file(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """The sha256 of a file, read in blocks; `advance` is called with the number of bytes so far."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                digest.update(block)
                advance(size := size + len(block))
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def sha256_json(content: Any) -> str:
    """The sha256 of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def with_sha256(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with the checksum of all of it, as its last entry `sha256`."""
    return {**content, "sha256": sha256_json(json.loads(json.dumps(content)))}


def without_sha256(content: Any, path: Path, line: int | None = None, remedy: str = "restore or remove it") -> Any:
    """What `with_sha256` was given, as it was read from a file; raises if it has changed. It may have no checksum."""
    if not isinstance(content, dict) or not any(map(_is_sha256, content)):
        return content
    kept = dict(content)
    if kept.pop("sha256", None) != sha256_json(kept):
        raise InputError(path, f"was changed or damaged since it was written: {remedy}", line)
    return kept


def _is_sha256(name: str) -> bool:
    """Whether this is the name of the checksum, or that name with up to three wrong characters."""
    return len(name) == 6 and sum(map(str.__eq__, name, "sha256")) >= 3
