"""What all engines share: the contract, the estimate, errors; and this process as the only worker."""

from __future__ import annotations

import contextlib
import heapq
import pickle
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from fewlink.core.errors import FewlinkError, describe
from fewlink.core.threads import torch_threads

MAX_LOSSES = 3  # workers that may end in one batch
ITEMS_AT_PLACE = 4  # of a sample
SAMPLE_SECONDS = 1.0
SAMPLE_SHARE = 0.01  # that a sample takes at least: seconds, and share of the expected ones
MAX_SAMPLE_ITEMS = 256  # or a fortieth of all, if that is less

Batch = Sequence[Any]
Work = Callable[[Any], Any]
Name = Callable[[int], str]
Weight = Callable[[Any], float]
Tell = Callable[[Sequence[float]], None]
Results = Generator[tuple[int, Any], None, None]


def batch_name(number: int) -> str:
    """The name of a batch in errors."""
    return f"batch {number}"


def equal_weight(item: Any) -> float:
    """The weight of items that take about the same time."""
    return 1.0


class Engine(ABC):
    """Runs batches of work. `on_estimate` is called before the start with the expected seconds and the workers."""

    def __init__(self, workers: int, on_estimate: Callable[[float, int], None] | None = None) -> None:
        self.workers = workers
        self.on_estimate = on_estimate

    def run(
        self, work: Work, batches: Sequence[Batch], name: Name = batch_name, weight: Weight = equal_weight
    ) -> Results:
        """Yield the number and the result of each batch, in the order in which they are done.

        `name` names a batch in errors; `weight` says how much work an item is compared with others.
        """
        sample = Sample.of(work, batches, self.workers, weight) if self.samples and len(batches) > 1 else None

        def tell(seconds: Sequence[float]) -> None:
            if sample is not None and self.on_estimate is not None:
                paces = [sample.weight / each for each in seconds]
                self.on_estimate(expected_seconds([sum(map(weight, batch)) for batch in batches], paces), len(paces))

        yield from self._run(work, batches, name, sample, tell)

    @property
    def samples(self) -> bool:
        """Whether the pace of the work is measured before the start."""
        return self.on_estimate is not None

    def in_order(
        self,
        work: Work,
        batches: Sequence[Batch],
        name: Name = batch_name,
        on_items: Callable[[int], None] = lambda done: None,
        weight: Weight = equal_weight,
    ) -> Generator[Any, None, None]:
        """Yield the results of all batches in their order. `on_items` is called with the number of items done."""
        found = dict[int, Any]()
        done = 0
        with contextlib.closing(self.run(work, batches, name, weight)) as results:
            for following in range(len(batches)):
                while following not in found:
                    number, found[number] = next(results)
                    done += len(batches[number])
                    on_items(done)
                yield found.pop(following)

    @abstractmethod
    def _run(self, work: Work, batches: Sequence[Batch], name: Name, sample: Sample | None, tell: Tell) -> Results:
        """`run`, after a sample was done in this process. Calls `tell` with the seconds that it takes each worker."""


class ThisProcess(Engine):
    """One worker: this process, with all its threads."""

    def __init__(self, on_estimate: Callable[[float, int], None] | None = None) -> None:
        super().__init__(1, on_estimate)

    def _run(self, work: Work, batches: Sequence[Batch], name: Name, sample: Sample | None, tell: Tell) -> Results:
        if sample is not None:
            tell([sample.seconds])
        for number, batch in enumerate(batches):
            yield number, work(batch)


@dataclass(frozen=True)
class Sample:
    """A few items each at evenly spaced places, their weight, and the seconds that they take this process."""

    items: Sequence[Any]
    weight: float
    seconds: float

    @classmethod
    def of(cls, work: Work, batches: Sequence[Batch], workers: int, weight: Weight = equal_weight) -> Sample:
        """A sample that takes long enough to tell the pace; with several workers, this process has one thread, too."""
        items = [item for batch in batches for item in batch]
        most = min(MAX_SAMPLE_ITEMS, len(items) // 40)
        places = 1
        with torch_threads(1) if workers > 1 else contextlib.nullcontext():
            while True:
                begins = [(2 * place + 1) * len(items) // (2 * places) for place in range(places)]
                chosen = [item for begin in begins for item in items[begin : begin + ITEMS_AT_PLACE]]
                seconds = sample_seconds(work, chosen)
                expected = seconds * len(items) / len(chosen) / workers
                if seconds >= max(SAMPLE_SECONDS, SAMPLE_SHARE * expected) or 2 * len(chosen) > most:
                    return cls(chosen, sum(map(weight, chosen)), max(seconds, 1e-9))
                places *= 2


def sample_seconds(work: Work, items: Sequence[Any]) -> float:
    """The seconds of work on some items, when it is done again and caches are filled."""
    work(items)
    start = time.monotonic()
    work(items)
    return time.monotonic() - start


def expected_seconds(weights: Sequence[float], paces: Sequence[float]) -> float:
    """The seconds of batches with these weights on workers that do so much weight a second.

    The next batch goes to the worker that is done first.
    """
    workers = [(0.0, pace) for pace in paces]
    for weight in weights:
        done, pace = workers[0]
        heapq.heapreplace(workers, (done + weight / pace, pace))
    return max(workers)[0]


def portable(error: Exception) -> Exception:
    """The error with its traceback as a note, or a description of it if it cannot be pickled."""
    if not isinstance(error, FewlinkError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (what this process pickled)
    except Exception:
        return RuntimeError(f"{describe(error)}\n{traceback.format_exc()}")
    return error


def lost(batch: str) -> FewlinkError:
    """The error for a batch that ended its workers."""
    return FewlinkError(
        f"one worker after another was killed while it worked on {batch}, perhaps because memory ran out: use fewer "
        "workers, or workers with more memory"
    )
