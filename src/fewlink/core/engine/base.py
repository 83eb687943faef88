"""What all engines share: the contract, the estimate, errors; and this process as the only worker."""

from __future__ import annotations

import contextlib
import math
import pickle
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any

from fewlink.core.errors import FewlinkError, describe
from fewlink.core.threads import torch_threads

MAX_LOSSES = 3  # workers that may end in one batch
SAMPLE_ITEMS = 4  # in the first sample
SAMPLE_SECONDS = 1.0  # that a sample takes, unless it has as many items as a batch or a twentieth of all

Batch = Sequence[Any]
Work = Callable[[Any], Any]
Name = Callable[[int], str]
Results = Generator[tuple[int, Any], None, None]


def batch_name(number: int) -> str:
    """The name of a batch in errors."""
    return f"batch {number}"


class Engine(ABC):
    """Runs batches of work. `on_estimate` is called before the start with the expected seconds and the workers."""

    def __init__(self, workers: int, on_estimate: Callable[[float, int], None] | None = None) -> None:
        self.workers, self.on_estimate = workers, on_estimate

    def run(self, work: Work, batches: Sequence[Batch], name: Name = batch_name) -> Results:
        """Yield the number and the result of each batch, in the order in which they are done."""
        if self.on_estimate is not None and len(batches) > 1:
            self.on_estimate(estimate(work, batches, self.workers), self.workers)
        yield from self._run(work, batches, name)

    @abstractmethod
    def _run(self, work: Work, batches: Sequence[Batch], name: Name) -> Results: ...


class ThisProcess(Engine):
    """One worker: this process, with all its threads."""

    def __init__(self, on_estimate: Callable[[float, int], None] | None = None) -> None:
        super().__init__(1, on_estimate)

    def _run(self, work: Work, batches: Sequence[Batch], name: Name) -> Results:
        for number, batch in enumerate(batches):
            yield number, work(batch)


def estimate(work: Work, batches: Sequence[Batch], workers: int) -> float:
    """The expected seconds of all batches on so many workers, by the pace of a sample of evenly spaced items.

    The first sample fills caches and is not timed. The next ones grow until one takes long enough.
    """
    items, size = [item for batch in batches for item in batch], max(map(len, batches))
    most = min(size, max(SAMPLE_ITEMS, len(items) // 20))
    count = min(SAMPLE_ITEMS, most)
    with torch_threads(1) if workers > 1 else contextlib.nullcontext():
        work(_evenly_spaced(items, count))
        while True:
            start = time.monotonic()
            work(_evenly_spaced(items, count))
            seconds = time.monotonic() - start
            if seconds >= SAMPLE_SECONDS or count == most:
                break
            count = min(2 * count, most)
    of_busiest = min(len(items), size * math.ceil(len(batches) / workers))
    return seconds / count * of_busiest


def _evenly_spaced(items: Sequence[Any], count: int) -> Sequence[Any]:
    return [items[number * len(items) // count] for number in range(count)]


def portable(error: Exception) -> Exception:
    """The error with its traceback as a note, or a description of it if it cannot be pickled."""
    if not isinstance(error, FewlinkError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return RuntimeError(f"{describe(error)}\n{traceback.format_exc()}")
    return error


def lost(batch: str) -> FewlinkError:
    """The error for a batch that ended its workers."""
    return FewlinkError(
        f"{MAX_LOSSES} workers were killed while they worked on {batch}, perhaps because memory ran out: use fewer "
        "workers, or workers with more memory; what is done is kept"
    )
