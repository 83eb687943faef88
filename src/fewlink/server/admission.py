"""Limits on the work of a server: the computing time of one request, and of all requests that wait."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from fewlink.server.errors import ApiError, busy, stopping
from fewlink.server.schema import ServerSettings

WAITING_WEIGHT = 0.1  # a job that has waited for ten seconds comes before one with a second less of work
NEW_WEIGHT = 0.3  # weight of a new observation in the average cost of a kind of request


@dataclass
class Caller:
    """The client of the current request, and the seconds that the request waited for the model."""

    client: str = ""
    waited: float = 0.0


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


@dataclass(eq=False)
class Job:
    """An admitted request: the seconds it has computed, and the estimated seconds left."""

    caller: Caller
    kind: str
    left: float
    spent: float = 0.0
    arrived: float = field(default_factory=time.monotonic)

    @property
    def due(self) -> float:
        """Sort key for the jobs of a client: short jobs come first, and long jobs are not postponed for ever."""
        return WAITING_WEIGHT * self.arrived + self.spent + self.left

    def spend(self, seconds: float) -> None:
        self.spent += seconds
        self.left = max(0.0, self.left - seconds)


class Admission:
    """Admits requests while fewer than `settings.waiting` wait and their work takes at most `settings.queued` seconds.

    The cost of a request is measured while it runs. Until then, the request counts as much as earlier requests of its
    kind took to start.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._closes: float | None = None  # the time when a stopping server admits no more requests
        self._jobs: dict[Job, asyncio.Timeout] = {}
        self._start_seconds: dict[str, float] = {}  # average by kind of request

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def closing(self) -> bool:
        """Whether the server has begun to stop."""
        return self._closes is not None

    @property
    def left(self) -> float:
        """Estimated seconds of work of all admitted requests."""
        return sum(job.left for job in self._jobs)

    @asynccontextmanager
    async def enter(self, kind: str) -> AsyncIterator[Job]:
        """Admit a request for the duration of the context, at most `settings.deadline` seconds."""
        seconds = self.settings.deadline
        if self._closes is not None:
            seconds = min(seconds, self._closes - asyncio.get_running_loop().time())
            if seconds <= 0:
                raise stopping()
        job = Job(CALLER.get() or Caller(), kind, self._start_seconds.get(kind, 0.0))
        self._check_queue(job.left)
        if len(self._jobs) >= self.settings.waiting:
            raise busy(f"{len(self._jobs):,} requests are waiting", max(1, math.ceil(self.left / len(self._jobs))))
        try:
            async with asyncio.timeout(seconds) as timeout:
                self._jobs[job] = timeout
                yield job
        except TimeoutError:
            if self.closing:
                raise stopping() from None
            message = f"the server found no answer within its limit of {self.settings.deadline:,.3g} s"
            raise ApiError(504, "deadline", f"{message}: ask for less at a time") from None
        finally:
            self._jobs.pop(job, None)

    def started(self, job: Job) -> None:
        """Average the seconds that a job took to start with those of earlier jobs of its kind."""
        before = self._start_seconds.get(job.kind, job.spent)
        self._start_seconds[job.kind] = before + NEW_WEIGHT * (job.spent - before)
        job.left = 0.0

    def expect(self, job: Job, seconds: float, how_to_split: str) -> None:
        """Set the seconds that a job still needs; raise if they exceed the limit of one request or of the queue."""
        allowed = self.settings.seconds
        total = job.spent + seconds
        if total > allowed:
            message = f"this request would take about {total:,.0f} s, but this server allows {allowed:,.0f} s"
            raise ApiError(422, "cost", f"{message}: {how_to_split}")
        job.left = 0.0
        self._check_queue(seconds)
        job.left = seconds

    def close(self) -> None:
        """Cut off the requests that are still running after `settings.drain` seconds, and then admit no more."""
        self._closes = asyncio.get_running_loop().time() + self.settings.drain
        for timeout in self._jobs.values():
            if (when := timeout.when()) is None or when > self._closes:
                timeout.reschedule(self._closes)

    def _check_queue(self, seconds: float) -> None:
        """Raise if a job of so many seconds would wait for too long: others delay it by about as much as it takes."""
        ahead = sum(min(job.left, seconds + self.settings.turn) for job in self._jobs)
        limit = self.settings.queued
        if ahead and ahead + seconds > limit:
            wait = max(1, math.ceil(ahead + min(seconds, limit) - limit))
            raise busy(f"requests with about {ahead:,.0f} s of work are waiting", wait)
