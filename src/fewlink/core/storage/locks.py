"""Locks for writers, and the drafts that each thread fills."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from fewlink.core.errors import FewlinkError, writing
from fewlink.core.storage.places import beside, real

SILENT_WAIT_SECONDS = 1.0  # after this time a waiting writer prints a line


class ThreadState(threading.local):
    """The locks that a thread holds, and the folders that it alone fills."""

    def __init__(self) -> None:
        self.locks: set[str] = set()
        self.drafts: list[Path] = []


this_thread = ThreadState()


def locked(path: Path, busy: str = "") -> AbstractContextManager[None]:
    """Exclude other writers of a file or folder; the lock file lies beside it.

    While another process holds the lock, wait and, after a second, print a line; or raise the message `busy` at once.
    The lock ends with the process, however it ends. A thread that holds the lock may take it again.
    """
    path = real(path)
    return acquired(beside(path, "lock"), path, busy)


@contextmanager
def acquired(file: Path, what: Path, busy: str) -> Iterator[None]:
    """Hold the lock `file` of `what`, unless this thread holds it already or fills a draft that contains `what`."""
    if str(file) in this_thread.locks or in_draft(what):
        yield
        return
    from filelock import FileLock, Timeout

    lock = FileLock(file, mode=0o666, thread_local=False)
    with writing(what):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0 if busy else SILENT_WAIT_SECONDS)
        except Timeout:
            if busy:
                raise FewlinkError(busy) from None
            if not file.exists():
                file.touch()  # raises where no file can be created, such as in /proc
            print(f"waiting for another process to finish writing {what}", file=sys.stderr, flush=True)
            lock.acquire()
    this_thread.locks.add(str(file))
    try:
        yield
    finally:
        this_thread.locks.discard(str(file))
        with suppress(OSError):  # filelock checks its links: a process that waits for the removed file tries again
            os.unlink(file)
        lock.release()


def in_draft(path: Path) -> bool:
    """Whether a path is in a folder that this thread is filling."""
    return any(path.is_relative_to(draft) for draft in this_thread.drafts)
