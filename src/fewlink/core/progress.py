"""Progress of long work on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fewlink.core.errors import shown

QUIET_SECONDS = 5.0  # shorter work prints nothing
LINE_SECONDS = 10.0  # between two lines

_quiet = False


class Advance(Protocol):
    """A callback that takes the amount done so far and a short note to show beside it."""

    def __call__(self, done: float, note: str = "") -> None: ...


def duration(seconds: float) -> str:
    """A number of seconds as text, such as `2.5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def set_quiet(quiet: bool) -> None:
    """Switch off `progress` and `tell`, so that standard error has errors only; or switch them on again."""
    global _quiet
    _quiet = quiet


def tell(line: str) -> None:
    """Print a line on standard error, unless `set_quiet` has switched that off."""
    if not _quiet:
        print(line, file=sys.stderr, flush=True)


def silent(done: float, note: str = "") -> None:
    """Report no progress."""


@contextmanager
def progress(title: str, total: float | None) -> Iterator[Advance]:
    """Yield `advance(done, note)`, to be called with the amount done so far (not the increment)."""
    title = shown(title)
    if _quiet:
        yield silent
    elif sys.stderr.isatty():
        with _bar(title, total) as advance:
            yield advance
    else:
        yield _lines(title, total)


@contextmanager
def _bar(title: str, total: float | None) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=total, note="")

        def advance(done: float, note: str = "") -> None:
            bars.update(task, completed=done, note=shown(note))

        yield advance


def _lines(title: str, total: float | None) -> Advance:
    start = time.monotonic()
    last = start + QUIET_SECONDS - LINE_SECONDS
    first: float | None = None  # what was done before this process began, and its first part

    def advance(done: float, note: str = "") -> None:
        nonlocal first, last, start
        now = time.monotonic()
        if first is None:
            first = done
            start = now
        if now - last < LINE_SECONDS:
            return
        last = now
        line = title
        if total:
            line += f" {100 * done / total:3.0f}%"
        if total and done > first:
            line += f", {duration((total - done) * (now - start) / (done - first))} left"
        print(f"{line} {shown(note)}".rstrip(), file=sys.stderr, flush=True)

    return advance
