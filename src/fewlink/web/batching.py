"""Concurrent requests are answered in batches, by one thread, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from fewlink.web.middleware import ApiError

Q = TypeVar("Q")
A = TypeVar("A")
Work = Callable[[Sequence[Q], Callable[[int], bool]], Iterable[tuple[int, A | Exception]]]


class Batcher(Generic[Q, A]):
    """Collects questions for `gather` seconds, at most `together`, and answers them with one call of `work`.

    `work(questions, is_waiting)` yields places with answers or errors as they are ready; it runs in its own thread, one
    call at a time. `is_waiting(place)` says whether a client still waits for that answer. A question is rejected if
    `waiting` others are queued.
    """

    def __init__(self, work: Work[Q, A], *, waiting: int, gather: float, together: int) -> None:
        self.work, self.waiting, self.gather, self.together = work, waiting, gather, together
        self.queue: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self.batches = 0
        self.arrived = asyncio.Event()
        self.closing = False
        self.worker = ThreadPoolExecutor(1, "fewlink-scoring")
        self.runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher[Q, A]:
        self.runner = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Queued questions are answered before closing."""
        self.closing = True
        self.arrived.set()
        if self.runner is not None:
            await self.runner
        self.worker.shutdown()

    async def ask(self, question: Q) -> A:
        """The answer to a question; a cancelled question leaves the queue."""
        if self.closing:
            raise ApiError(503, "closing", "the server is stopping", headers={"Retry-After": "5"})
        if len(self.queue) >= self.waiting:
            self._drop_cancelled()
        if len(self.queue) >= self.waiting:
            message = f"{self.waiting:,} requests are waiting: try again in a second"
            raise ApiError(503, "busy", message, headers={"Retry-After": "1"})
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.queue.append((question, future))
        self.arrived.set()
        return await future

    def _drop_cancelled(self) -> None:
        """Remove cancelled questions from the queue."""
        self.queue = deque((question, future) for question, future in self.queue if not future.cancelled())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self.queue:
                if self.closing:
                    return
                self.arrived.clear()
                await self.arrived.wait()
            if self.gather and self.together > 1 and not self.closing:
                await asyncio.sleep(self.gather)
            self._drop_cancelled()
            batch = [self.queue.popleft() for _ in range(min(self.together, len(self.queue)))]
            if batch:
                self.batches += 1
                await loop.run_in_executor(self.worker, self._answer, loop, batch)

    def _answer(self, loop: asyncio.AbstractEventLoop, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        pending = dict(enumerate(future for _, future in batch))
        try:
            questions = [question for question, _ in batch]
            for place, answer in self.work(questions, lambda place: not batch[place][1].cancelled()):
                loop.call_soon_threadsafe(_settle, pending.pop(place), answer)
        except Exception as error:
            for future in pending.values():
                loop.call_soon_threadsafe(_settle, future, error)


def _settle(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():  # it was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


async def unless_disconnected(answer: asyncio.Task[A], disconnected: asyncio.Task[None]) -> A | None:
    """The answer, or None if the client disconnected first and the question was dropped."""
    try:
        await asyncio.wait({answer, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        return None
    finally:
        for task in (answer, disconnected):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
