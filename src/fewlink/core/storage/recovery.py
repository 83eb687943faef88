"""What a killed writer left is put right by the next one."""

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

LEFT = re.compile(r"\.(.+)\.(lock|new|previous)")  # names of what a killed writer of the file or folder leaves


def recover(path: Path, busy: str = "") -> None:
    """Put right what a killed writer of a file or folder left: what was moved comes back, and drafts are removed."""
    with writing(path), locked(path, busy):
        put_right(real(path))


def recover_quietly(path: Path) -> None:
    """Like `recover`, if nobody is writing the file or folder and it can be written."""
    with suppress(FewlinkError):
        recover(path, busy="it is being written")


def put_right(path: Path) -> None:
    """Give a folder that was moved aside its name again, and remove what is beside it. The caller has the lock.

    A complete draft of a killed writer is removed too: readers have been shown the version before since then.
    """
    place = place_of(path)
    if place != path:
        os.rename(place, path)
    for kind in ("previous", "new"):
        remove(beside(path, kind))


def remove(path: Path) -> None:
    """Remove a file or folder; a folder's manifest goes first, so that nobody reads what is left of it."""
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def locked_inside(folder: Path, busy: str = "") -> Iterator[None]:
    """Like `locked`, for a folder that stays while what is in it is replaced; the lock is in it."""
    folder = real(folder)
    with acquired(folder / ".lock", folder, busy):
        for name in {left[1] for path in folder.iterdir() if (left := LEFT.fullmatch(path.name))}:
            if str(beside(folder / name, "lock")) not in this_thread.locks:
                recover_quietly(folder / name)
        yield
