"""Which requests are let in: by what they cost alone, and by what is waiting already."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from fewlink.core.errors import FewlinkError


@dataclass(eq=False)
class Caller:
    """Whose request is answered, and the seconds that it waited for its turns."""

    client: str = ""
    waited: float = 0.0


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
CURRENT: ContextVar[Admitted | None] = ContextVar("current", default=None)


class Refused(FewlinkError):
    """A request that is not let in; `reason` is a word for metrics, `retry_after` seconds if it may be sent again."""

    def __init__(self, reason: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after


@dataclass(eq=False)
class Admitted:
    """A request that was let in, the estimated seconds of work that are left, and the references that it reads."""

    caller: Caller
    left: float
    deadline: float  # by time.monotonic()
    arrived: float = field(default_factory=time.monotonic)
    reads: Hashable = None

    @property
    def due(self) -> float:
        return self.arrived + self.left

    def spend(self, seconds: float) -> None:
        """So much of the estimate is done."""
        self.left = max(0.0, self.left - seconds)


class Admission:
    """Lets requests in while fewer than `requests` are there and their work takes at most `queued` seconds in all.

    A request that takes more than `seconds` is refused at once unless it cannot be split. Each has `deadline` seconds.
    """

    def __init__(self, *, seconds: float, queued: float, deadline: float, requests: int) -> None:
        self.seconds, self.queued, self.deadline, self.requests = seconds, queued, deadline, requests
        self.closed = False
        self._inside: set[Admitted] = set()

    def __len__(self) -> int:
        return len(self._inside)

    @property
    def left(self) -> float:
        """Estimated seconds of work of all requests that are inside."""
        return sum(request.left for request in self._inside)

    @contextmanager
    def enter(self, seconds: float, how_to_split: str = "") -> Iterator[Admitted]:
        """A request of so many estimated seconds, for the time of the context; raises if it is refused.

        `how_to_split` says how to ask for less at once; empty if the request is as small as it can be.
        """
        self._check(seconds, how_to_split)
        request = Admitted(CALLER.get() or Caller(), seconds, time.monotonic() + self.deadline)
        self._inside.add(request)
        token = CURRENT.set(request)
        try:
            yield request
        finally:
            CURRENT.reset(token)
            self._inside.discard(request)

    def is_read(self, references: Hashable) -> bool:
        """Whether a request that is inside reads these references: a further one does not read them again."""
        return any(request.reads == references for request in self._inside)

    def extend(self, request: Admitted, seconds: float, how_to_split: str = "") -> None:
        """A request that is inside turns out to need so many more seconds; raises if it is refused for them."""
        others = self.left - request.left
        self._check_size(seconds, how_to_split)
        if len(self._inside) > 1:
            self._check_queue(others, seconds)
        request.left += seconds

    def _check(self, seconds: float, how_to_split: str) -> None:
        if self.closed:
            raise Refused("closing", "the server is stopping", 5)
        self._check_size(seconds, how_to_split)
        left = self.left
        if self._inside:
            self._check_queue(left, seconds)
        if len(self._inside) >= self.requests:
            wait = max(1, math.ceil(left / len(self._inside)))
            raise Refused("busy", f"{len(self._inside):,} requests are waiting: try again in {wait:,} s", wait)

    def _check_size(self, seconds: float, how_to_split: str) -> None:
        if how_to_split and seconds > self.seconds:
            estimate = f"this request would take about {seconds:,.0f} s, and this server allows {self.seconds:,.0f} s"
            raise Refused("cost", f"{estimate} for one request: {how_to_split}")

    def _check_queue(self, left: float, seconds: float) -> None:
        """Raise if there is no room for so many seconds beside those of other requests."""
        if left + seconds > self.queued:
            wait = max(1, math.ceil(left + min(seconds, self.queued) - self.queued))
            waiting = f"requests that take about {left:,.0f} s are waiting"
            raise Refused("busy", f"{waiting}: try again in {wait:,} s", wait)
