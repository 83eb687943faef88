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
SAMPLE_ITEMS = 4  # at each place of a sample
SAMPLE_SECONDS = 1.0  # that a sample takes, unless it has as many items as a batch or a fortieth of all

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

    def in_order(
        self,
        work: Work,
        batches: Sequence[Batch],
        name: Name = batch_name,
        on_items: Callable[[int], None] = lambda done: None,
    ) -> Generator[Any, None, None]:
        """Yield the results of all batches in their order. `on_items` is called with the number of items done."""
        found, done = dict[int, Any](), 0
        with contextlib.closing(self.run(work, batches, name)) as results:
            for following in range(len(batches)):
                while following not in found:
                    number, found[number] = next(results)
                    done += len(batches[number])
                    on_items(done)
                yield found.pop(following)

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
    """The expected seconds of all batches on so many workers, by the pace of a sample.

    A sample is a few items each at evenly spaced places. It is done twice, and timed the second time, when caches are
    filled. Samples grow until one takes long enough.
    """
    items, size = [item for batch in batches for item in batch], max(map(len, batches))
    most = max(SAMPLE_ITEMS, min(size, len(items) // 40))
    count = SAMPLE_ITEMS
    with torch_threads(1) if workers > 1 else contextlib.nullcontext():
        while True:
            sample = _sample(items, count // SAMPLE_ITEMS)
            work(sample)
            start = time.monotonic()
            work(sample)
            seconds = time.monotonic() - start
            if seconds >= SAMPLE_SECONDS or 2 * count > most:
                break
            count *= 2
    of_busiest = min(len(items), size * math.ceil(len(batches) / workers))
    return seconds / len(sample) * of_busiest


def _sample(items: Sequence[Any], places: int) -> list[Any]:
    """`SAMPLE_ITEMS` items each at so many evenly spaced places, fewer at the end."""
    begins = [(2 * place + 1) * len(items) // (2 * places) for place in range(places)]
    return [item for begin in begins for item in items[begin : begin + SAMPLE_ITEMS]]


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
