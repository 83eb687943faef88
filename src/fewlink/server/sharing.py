"""Answers that several clients ask for: one computation answers all who wait, and the last answers are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass
class Running:
    """A computation, and the number of clients that wait for it."""

    task: asyncio.Task[bytes]
    waiting: int = 0


class SharedAnswers:
    """Answers by question, both as text. Those used last are kept, up to `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.kept_bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._running: dict[str, Running] = {}

    async def get(self, question: str, compute: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The kept answer, that of a computation under way, or that of a new one.

        A computation is cancelled when the last client that waits for it leaves.
        """
        if question in self._kept:
            self._kept.move_to_end(question)
            return self._kept[question]
        running = self._running.get(question)
        if running is None:
            running = self._running[question] = Running(asyncio.create_task(compute()))
        running.waiting += 1
        try:
            answer = await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting or running.task.done():
                running.task.cancel()
                if self._running.get(question) is running:
                    del self._running[question]
        self._keep(question, answer)
        return answer

    def _keep(self, question: str, answer: bytes) -> None:
        if question in self._kept:
            return
        self._kept[question] = answer
        self.kept_bytes += len(question) + len(answer)
        while self.kept_bytes > self.max_bytes:
            oldest, dropped = self._kept.popitem(last=False)
            self.kept_bytes -= len(oldest) + len(dropped)
