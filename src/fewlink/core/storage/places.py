"""The path of a file or folder, and of the lock, draft and previous version beside it."""

from __future__ import annotations

import os
from pathlib import Path

MANIFEST = "manifest.json"


def real(path: Path) -> Path:
    """The path with all symbolic links resolved."""
    return Path(os.path.realpath(path))


def beside(path: Path, kind: str) -> Path:
    """The path of the `lock`, the draft (`new`) or the `previous` version of a file or folder."""
    return path.parent / f".{path.name}.{kind}"


def place_of(path: Path) -> Path:
    """Where to read a folder: at its path or, while a writer replaces it, at its previous version."""
    if os.path.exists(path) or "\0" in str(path):
        return Path(path)
    moved = beside(real(path), "previous")
    return moved if os.path.exists(moved / MANIFEST) and not os.path.exists(path) else Path(path)


def exists(path: str | Path) -> bool:
    """Whether a file or folder exists; True also while a writer replaces the folder."""
    return os.path.exists(path) or place_of(Path(path)) != Path(path)
