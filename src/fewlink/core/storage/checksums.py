"""Checksums of files and of JSON content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError

BLOCK_BYTES = 4 << 20  # hashed at a time


def sha256_file(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """The sha256 of a file. Calls `advance` with the number of bytes read so far."""
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
                advance(size)
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def sha256_json(content: Any) -> str:
    """The sha256 of JSON content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def with_sha256(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its checksum added as the last entry, `sha256`."""
    return {**content, "sha256": sha256_json(json.loads(json.dumps(content)))}


def without_sha256(content: Any, path: Path, line: int | None = None, remedy: str = "restore or remove it") -> Any:
    """Check and remove the checksum that `with_sha256` added; content without one is returned as it is."""
    if not isinstance(content, dict) or not any(map(_is_sha256, content)):
        return content
    rest = dict(content)
    if rest.pop("sha256", None) != sha256_json(rest):
        raise InputError(path, f"was changed or damaged since it was written: {remedy}", line)
    return rest


def _is_sha256(name: str) -> bool:
    """Whether this is the key `sha256`, possibly with up to three damaged characters."""
    return len(name) == 6 and sum(map(str.__eq__, name, "sha256")) >= 3
