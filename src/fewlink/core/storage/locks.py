"""Locks beside what is written, and the drafts that a thread fills."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from fewlink.core.errors import FewlinkError, writing
from fewlink.core.storage.places import beside, real

SILENT_WAIT = 1.0  # seconds for which a writer waits for another one without saying so


class ThreadState(threading.local):
    """The locks that a thread holds and the folders that it fills: in these nobody else writes."""

    def __init__(self) -> None:
        self.locks: set[str] = set()
        self.drafts: list[Path] = []


this_thread = ThreadState()


def locked(path: Path, busy: str = "") -> AbstractContextManager[None]:
    """Exclude other writers of a file or folder that is replaced; the lock is beside it.

    Another process waits, and says so after a second, or raises at once with the message `busy`. The lock ends with
    the process, however it ends. Inside of it, the same thread may take it again.
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
            lock.acquire(timeout=0 if busy else SILENT_WAIT)
        except Timeout:
            if busy:
                raise FewlinkError(busy) from None
            print(f"waiting for another process that is writing {what}", file=sys.stderr, flush=True)
            lock.acquire()
    this_thread.locks.add(str(file))
    try:
        yield
    finally:
        this_thread.locks.discard(str(file))
        with suppress(OSError):  # a process that waits for the removed file tries again (filelock checks its links)
            os.unlink(file)
        lock.release()


def in_draft(path: Path) -> bool:
    """Whether a path is in a folder that this thread is filling."""
    return any(path.is_relative_to(draft) for draft in this_thread.drafts)
