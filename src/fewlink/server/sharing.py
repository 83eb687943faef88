"""What several clients ask for: one computation answers all who wait; the last answers and rankings are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from fewlink.linker.query import Query
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust

ARRAY_BYTES = 112  # of a numpy array without its values
RANKING_BYTES = 500  # of a ranking without its arrays
TASK_BYTES = 2_000  # of a task without its pairs
PAIR_BYTES = 136  # of a pair of ids in a tuple and in an array


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


@dataclass
class TaskRankings:
    """The trust in the answers of one task, the rankings of its heads, and their size."""

    trust: Trust | None
    by_head: dict[int, RankedPairs] = field(default_factory=dict)
    bytes: int = 0


class KeptRankings:
    """Rankings by task (`Query.ranking_key`) and head, up to `max_bytes`: of the tasks, those used last are kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.kept_bytes = 0
        self._tasks: OrderedDict[Hashable, TaskRankings] = OrderedDict()

    def of(self, task: Hashable) -> TaskRankings | None:
        """What is kept of a task."""
        if task in self._tasks:
            self._tasks.move_to_end(task)
        return self._tasks.get(task)

    def keep(self, query: Query, trust: Trust | None, rankings: Mapping[int, RankedPairs]) -> None:
        task = query.ranking_key
        if task not in self._tasks:
            self._tasks[task] = TaskRankings(trust, bytes=size_of_task(query))
            self.kept_bytes += self._tasks[task].bytes
        kept = self._tasks[task]
        for head, ranking in rankings.items():
            if head not in kept.by_head:
                kept.by_head[head] = ranking
                kept.bytes += size_of(ranking)
                self.kept_bytes += size_of(ranking)
        while self.kept_bytes > self.max_bytes:
            _, dropped = self._tasks.popitem(last=False)
            self.kept_bytes -= dropped.bytes


def size_of(ranking: RankedPairs) -> int:
    """The bytes of a ranking."""
    return RANKING_BYTES + sum(ARRAY_BYTES + int(getattr(ranking, each.name).nbytes) for each in fields(ranking))


def size_of_task(query: Query) -> int:
    """The bytes of the references and candidates of a query, about."""
    ids = 0 if isinstance(query.candidates, str) else len(query.candidates)
    return TASK_BYTES + PAIR_BYTES * (len(query.references.pairs) + len(query.references.rejected) + ids)


def split_by_head(ranked: RankedPairs, heads: Sequence[int]) -> dict[int, RankedPairs]:
    """The ranking of each of these heads. Those of the same head follow each other; some heads may have none."""
    begins = np.flatnonzero(np.diff(ranked.heads, prepend=-1))
    rows = dict(zip(ranked.heads[begins].tolist(), np.split(np.arange(len(ranked)), begins[1:]), strict=False))
    nothing = np.zeros(0, np.int64)
    return {head: ranked.take(rows.get(head, nothing)) for head in heads}
