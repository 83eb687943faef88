"""Progress of long work on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fewlink.core.errors import shown

PACE_REPORTS = 20  # whose mean pace is told
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


class Pace:
    """The speed of work and the time left, by the latest reports of how much is done.

    The first part of the work is not counted, as it takes longer: caches are filled.
    """

    def __init__(self, total: int, unit: str) -> None:
        self.total = total
        self.unit = unit
        self.reports: deque[tuple[float, int]] = deque(maxlen=PACE_REPORTS)

    def report(self, done: int) -> None:
        """Take the amount done so far, after each part of the work."""
        self.reports.append((time.monotonic(), done))

    @property
    def seconds_left(self) -> float | None:
        """The expected time left; None before two parts are done."""
        rate = self._rate()
        return (self.total - self.reports[-1][1]) / rate if rate else None

    def _rate(self) -> float | None:
        if len(self.reports) < 2:
            return None
        start, before = self.reports[0]
        now, done = self.reports[-1]
        return (done - before) / max(now - start, 1e-9)

    def __str__(self) -> str:
        """Such as `1,200 of 16,375, 7.1 heads/s, 36 min left`; without the pace before it is known."""
        text = f"{self.reports[-1][1] if self.reports else 0:,} of {self.total:,}"
        rate = self._rate()
        left = self.seconds_left
        if not rate or left is None:
            return text
        return f"{text}, {rate:,.{0 if rate >= 10 else 1}f} {self.unit}/s, {duration(left)} left"


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

    def advance(done: float, note: str = "") -> None:
        nonlocal last
        if time.monotonic() - last < LINE_SECONDS:
            return
        last = time.monotonic()
        share = f" {100 * done / total:3.0f}%" if total else ""
        print(f"{title}{share} {last - start:5.0f} s {shown(note)}".rstrip(), file=sys.stderr, flush=True)

    return advance
