"""Recovery from killed writers: the next writer restores the folder and removes drafts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fewlink.core.errors import FewlinkError, writing
from fewlink.core.storage.locks import acquired, locked, this_thread
from fewlink.core.storage.places import MANIFEST, beside, place_of, real

LEFTOVER = re.compile(r"\.(.+)\.(lock|new|previous)")  # names that a killed writer leaves behind


def recover(path: Path, busy: str = "") -> None:
    """Clean up after a killed writer: move the previous version of a folder back, and remove drafts."""
    with writing(path), locked(path, busy):
        restore(real(path))


def recover_quietly(path: Path) -> None:
    """Call `recover` unless another process is writing the file or folder, or it cannot be written."""
    with suppress(FewlinkError):
        recover(path, busy="it is being written")


def restore(path: Path) -> None:
    """Move the previous version of a folder back if it has no other, and remove drafts. The caller holds the lock.

    A draft is removed even if it is complete: since the writer was killed, readers have seen the previous version.
    """
    place = place_of(path)
    if place != path:
        os.rename(place, path)
    for kind in ("previous", "new"):
        remove(beside(path, kind))


def remove(path: Path) -> None:
    """Remove a file or folder. A folder's manifest goes first, so that nobody reads a half-removed folder."""
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked_inside(folder: Path, busy: str = "") -> Iterator[None]:
    """Lock a folder whose files are replaced one by one, and recover its files. The lock file lies inside it."""
    folder = real(folder)
    with acquired(folder / ".lock", folder, busy):
        matches = [LEFTOVER.fullmatch(path.name) for path in folder.iterdir()]
        for name in {match[1] for match in matches if match}:
            if str(beside(folder / name, "lock")) not in this_thread.locks:
                recover_quietly(folder / name)
        yield
