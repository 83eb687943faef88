"""Requests that come at the same time are answered together, by one thread, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from fewlink.web.errors import Refusal

Q = TypeVar("Q")
A = TypeVar("A")
Work = Callable[[Sequence[Q], Callable[[int], bool]], Iterable[tuple[int, A]]]


class Batcher(Generic[Q, A]):
    """Gathers questions for `gather` seconds, at most `together`, and answers them by one call of `work`.

    `work(questions, wanted)` gives places and answers as they are ready; it runs in a thread of its own, never twice at
    once. `wanted(place)` says whether somebody still waits for that answer. With `waiting` questions in the queue
    another one is refused.
    """

    def __init__(self, work: Work[Q, A], *, waiting: int, gather: float, together: int) -> None:
        self.work, self.waiting, self.gather, self.together = work, waiting, gather, together
        self.queue: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self.turns = 0
        self.arrived = asyncio.Event()
        self.closing = False
        self.worker = ThreadPoolExecutor(1, "fewlink-scoring")
        self.runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher[Q, A]:
        self.runner = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """What has been asked is answered first."""
        self.closing = True
        self.arrived.set()
        if self.runner is not None:
            await self.runner
        self.worker.shutdown()

    async def ask(self, question: Q) -> A:
        """The answer; whoever is cancelled while waiting leaves the queue."""
        if self.closing:
            raise Refusal(503, "closing", "the server is stopping", headers={"Retry-After": "5"})
        if len(self.queue) >= self.waiting:
            self._forget()
        if len(self.queue) >= self.waiting:
            message = f"{self.waiting:,} requests are waiting already: try again in a second"
            raise Refusal(503, "busy", message, headers={"Retry-After": "1"})
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.queue.append((question, future))
        self.arrived.set()
        return await future

    def _forget(self) -> None:
        """Take those out of the queue whom nobody waits for."""
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
            self._forget()
            turn = [self.queue.popleft() for _ in range(min(self.together, len(self.queue)))]
            if turn:
                self.turns += 1
                await loop.run_in_executor(self.worker, self._answer, loop, turn)

    def _answer(self, loop: asyncio.AbstractEventLoop, turn: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        left = dict(enumerate(future for _, future in turn))
        try:
            questions = [question for question, _ in turn]
            for place, answer in self.work(questions, lambda place: not turn[place][1].cancelled()):
                loop.call_soon_threadsafe(_settle, left.pop(place), answer)
        except Exception as error:
            for future in left.values():
                loop.call_soon_threadsafe(_fail, future, error)


def _settle(future: asyncio.Future[A], answer: A) -> None:
    if not future.done():  # else it was cancelled meanwhile
        future.set_result(answer)


def _fail(future: asyncio.Future[A], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


async def until_gone(answer: asyncio.Task[A], gone: asyncio.Task[None]) -> A | None:
    """The answer, or None where the client went away first and the question was dropped."""
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        return None
    finally:
        for task in (answer, gone):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
