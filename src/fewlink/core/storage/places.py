"""Where a file or folder is, and what its writers put beside it."""

from __future__ import annotations

import os
from pathlib import Path

MANIFEST = "manifest.json"


def real(path: Path) -> Path:
    """The path without links."""
    return Path(os.path.realpath(path))


def beside(path: Path, kind: str) -> Path:
    """The lock, the draft (`new`) or the moved version (`previous`) of a file or folder."""
    return path.parent / f".{path.name}.{kind}"


def place_of(path: Path) -> Path:
    """Where to read a folder: at its path, or while that is missing, where a writer has moved it."""
    if os.path.exists(path) or "\0" in str(path):
        return Path(path)
    moved = beside(real(path), "previous")
    return moved if os.path.exists(moved / MANIFEST) and not os.path.exists(path) else Path(path)


def exists(path: str | Path) -> bool:
    """Whether there is a file or folder, also while the folder is being replaced."""
    return os.path.exists(path) or place_of(Path(path)) != Path(path)
