"""Queues in front of threads: similar questions share one call, and clients take turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fewlink.server.admission import Job


class Groupable(Protocol):
    """A question. One call can answer all questions with the same `key`; `rows` is the size of the answer."""

    @property
    def key(self) -> Hashable: ...

    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Work:
    """Work that shares its call with no other."""

    run: Callable[[], Any]
    rows = 1

    @property
    def key(self) -> Hashable:
        return self


Q = TypeVar("Q", bound=Groupable)
MAX_CLIENTS = 1_000  # whose last turns are remembered


@dataclass(eq=False)
class Entry(Generic[Q]):
    question: Q
    job: Job
    future: asyncio.Future[Any]
    queued: float = field(default_factory=time.monotonic)


class Batcher(Generic[Q]):
    """Answers questions in a thread: `answer` maps questions with the same key to their answers.

    The client served least recently goes first, with the job that has the least work left. Questions with the same key
    join the call, up to `together` questions and `rows` rows; the thread waits `gather` seconds for them to arrive.
    There are `threads` of them. With `short`, one more answers only jobs that have at most this many seconds left, so
    that short jobs need not wait for a long call.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Sequence[Any]],
        *,
        gather: float = 0.0,
        together: int = 1,
        rows: int = 10_000,
        threads: int = 1,
        short: float | None = None,
        name: str = "scoring",
    ) -> None:
        self.answer = answer
        self.gather = gather
        self.together = together
        self.rows = rows
        self.name = name
        self.max_left = [float("inf")] * threads + ([] if short is None else [short])  # seconds, by thread
        self.closed = False
        self._queue: list[Entry[Q]] = []
        self._changed = threading.Condition()
        self._last_turn: dict[str, int] = {}  # by client
        self._turns = itertools.count(1)

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        self.closed = False
        loop = asyncio.get_running_loop()
        for number, max_left in enumerate(self.max_left):
            name = f"fewlink-{self.name}_{number}"
            threading.Thread(target=self._run, args=(loop, max_left), name=name, daemon=True).start()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    async def ask(self, question: Q, job: Job) -> Any:
        """Wait for the answer to a question, and add its share of the call's time to the job.

        If the caller is cancelled, the question leaves the queue.
        """
        entry = Entry(question, job, asyncio.get_running_loop().create_future())
        with self._changed:
            self._queue.append(entry)
            self._changed.notify_all()
        try:
            return await entry.future
        finally:
            with self._changed:
                if entry in self._queue:
                    self._queue.remove(entry)

    def _run(self, loop: asyncio.AbstractEventLoop, max_left: float) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.closed or self._waiting(max_left))
                if self.closed:
                    return
            if self.gather and self.together > 1:
                time.sleep(self.gather)
            with self._changed:
                batch = self._take(max_left)
            if batch:
                self._answer(loop, batch)

    def _waiting(self, max_left: float) -> list[Entry[Q]]:
        return [entry for entry in self._queue if entry.job.left <= max_left]

    def _take(self, max_left: float) -> list[Entry[Q]]:
        """Remove the next entry from the queue, and the entries that share its call."""
        waiting = self._waiting(max_left)
        if not waiting:
            return []
        first = min(waiting, key=lambda entry: (self._last_turn.get(entry.job.caller.client, 0), entry.job.due))
        client = first.job.caller.client
        self._last_turn.pop(client, None)
        self._last_turn[client] = next(self._turns)
        if len(self._last_turn) > MAX_CLIENTS:
            del self._last_turn[next(iter(self._last_turn))]
        batch = [first]
        rows = first.question.rows
        for entry in sorted(waiting, key=lambda entry: entry.job.due):
            if entry is not first and entry.question.key == first.question.key:
                rows += entry.question.rows
                if len(batch) == self.together or rows > self.rows:
                    break
                batch.append(entry)
        for entry in batch:
            self._queue.remove(entry)
        return batch

    def _answer(self, loop: asyncio.AbstractEventLoop, batch: Sequence[Entry[Q]]) -> None:
        began = time.monotonic()
        answers: Sequence[Any]
        try:
            answers = self.answer([entry.question for entry in batch])
        except Exception as error:  # sent to every client of the call
            answers = [error] * len(batch)
        seconds = time.monotonic() - began
        rows = sum(entry.question.rows for entry in batch)
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so nobody is waiting
            for entry, answer in zip(batch, answers, strict=True):
                share = seconds * entry.question.rows / rows
                loop.call_soon_threadsafe(_settle, entry, answer, began - entry.queued, share)


def run_each(works: Sequence[Work]) -> list[Any]:
    """The results of works, as the `answer` of a batcher."""
    return [work.run() for work in works]


def _settle(entry: Entry[Any], answer: Any, waited: float, seconds: float) -> None:
    entry.job.caller.waited += waited
    entry.job.spend(seconds)
    if entry.future.done():  # the caller was cancelled
        return
    if isinstance(answer, Exception):
        entry.future.set_exception(answer)
    else:
        entry.future.set_result(answer)
