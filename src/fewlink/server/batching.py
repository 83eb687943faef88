"""Questions of concurrent requests wait in a fair queue; threads answer similar ones together, in short turns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fewlink.linker import Explanation, Linker
from fewlink.linker.query import Query, References
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.server.admission import CURRENT
from fewlink.server.estimates import Estimates
from fewlink.server.fair_queue import Entry, FairQueue
from fewlink.server.middleware import ApiError
from fewlink.server.schema import ServerSettings

Q = TypeVar("Q")
A = TypeVar("A")
Work = Callable[[Sequence[Q], Callable[[int], bool]], Iterable[tuple[int, A | Exception]]]
MEASURED = 200  # references of a measured ranking
QUICK = 0.2  # seconds of a short preparation
GRACE = 3.0  # seconds for requests that are being answered when the server stops
IDLE = 5  # times that nothing waits, after which all requests have been answered


@dataclass(frozen=True)
class RankingPart:
    """The k best tails of each of these heads; if `overall`, the k best pairs of all heads. Entities are numbers."""

    references: References
    heads: tuple[int, ...]
    k: int
    candidates: str | tuple[int, ...] | None
    exclude_known: bool
    overall: bool
    constraints: tuple[str, ...] = ()
    heads_in_all: int = 0

    @property
    def query(self) -> Query:
        return Query(
            references=self.references,
            heads=self.heads,
            k=self.k,
            candidates="open" if self.candidates is None else self.candidates,
            exclude_known=self.exclude_known,
            constraints=self.constraints,
            across_heads=self.overall,
            heads_in_all=self.heads_in_all,
        )

    @property
    def key(self) -> Hashable:
        """What parts that share a call have in common."""
        return self.query.batch_key


@dataclass(frozen=True)
class ExplanationPart:
    """The reasons for the score of one pair."""

    references: References
    head: int
    tail: int

    @property
    def key(self) -> Hashable:
        return self


@dataclass(frozen=True)
class TrustPart:
    """How far answers with these references and candidates can be trusted."""

    references: References
    candidates: str | tuple[int, ...] | None

    @property
    def query(self) -> Query:
        return Query(self.references, candidates="open" if self.candidates is None else self.candidates)

    @property
    def key(self) -> Hashable:
        return self


Part = RankingPart | ExplanationPart | TrustPart
Answer = RankedPairs | Explanation | Trust | None
Member = tuple[int, Part]  # a part and its place in the batch


class Batcher(Generic[Q, A]):
    """Collects questions for `gather` seconds, at most `together` that take up to `turn` seconds, and answers them with
    one call of `work`.

    `work(questions, is_waiting)` yields places with answers or errors as they are ready. `is_waiting(place)` says
    whether a client still waits for that answer. Clients have their turns one after another. If `short` is given, a
    second thread answers requests that take up to so many seconds: they need not wait for a long turn of another one.

    `key_of` says which questions can share a call.
    """

    def __init__(
        self,
        work: Work[Q, A],
        *,
        gather: float = 0.0,
        together: int = 1,
        turn: float = float("inf"),
        short: float | None = None,
        key_of: Callable[[Q], Hashable] = lambda question: None,
    ) -> None:
        self.work, self.gather, self.together, self.turn = work, gather, together, turn
        self.key_of = key_of
        self.lanes = [float("inf")] if short is None else [float("inf"), short]
        self.queue: FairQueue[tuple[Q, asyncio.Future[A]]] = FairQueue()
        self.changed = threading.Condition()
        self.pending: set[asyncio.Future[A]] = set()
        self.batches = 0
        self.running = 0  # calls of `work`
        self.closing = self.closed = False

    async def __aenter__(self) -> Batcher[Q, A]:
        loop = asyncio.get_running_loop()
        for number, most_left in enumerate(self.lanes):
            # daemons: a process that ends does not wait for a long turn
            name = f"fewlink-scoring_{number}"
            threading.Thread(target=self._run, args=(loop, most_left), name=name, daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, until: float | None = None) -> None:
        """Questions are answered until none is left, for `GRACE` seconds or until a time; the others get an error."""
        until = time.monotonic() + GRACE if until is None else until
        self.closing, idle = True, 0
        while idle < IDLE and time.monotonic() < until:
            idle = 0 if len(self.queue) or self.running else idle + 1  # a request may be between two questions
            await asyncio.sleep(0.01)
        with self.changed:
            self.closed = True
            self.queue.clear()
            self.changed.notify_all()
        for future in list(self.pending):  # in the queue, or of a long turn
            _settle(future, stopping())

    async def measured(self, questions: Iterable[Q]) -> None:
        """Answer questions for nobody, so that their costs are known."""
        with contextlib.suppress(Exception):  # costs that are not measured are estimated
            for question in questions:
                await self.ask(question)

    async def ask(self, question: Q, seconds: float = 0.0) -> A:
        """The answer to a question that takes about so many seconds; raises if the deadline of its request passes.

        A cancelled question leaves the queue.
        """
        if self.closed:
            raise stopping()
        request, loop, begin = CURRENT.get(), asyncio.get_running_loop(), time.monotonic()
        if request is not None and begin > request.deadline:
            raise too_late(request.deadline - request.arrived)
        future: asyncio.Future[A] = loop.create_future()
        entry: Entry[Any] = Entry((question, future), "", begin, seconds, seconds, self.key_of(question))
        if request is not None:
            entry.client, entry.due, entry.left = request.caller.client, request.due, request.left
        self.pending.add(future)
        with self.changed:
            self.queue.put(entry)
            self.changed.notify_all()
        try:
            async with asyncio.timeout(None if request is None else request.deadline - begin):
                return await future
        except TimeoutError:
            assert request is not None
            raise too_late(request.deadline - request.arrived) from None
        finally:
            self.pending.discard(future)
            with self.changed:
                self.queue.discard(entry)
            if request is not None:
                request.spend(seconds)
                request.caller.waited += (time.monotonic() if entry.started is None else entry.started) - begin

    def _run(self, loop: asyncio.AbstractEventLoop, most_left: float) -> None:
        """A thread that answers questions of requests with at most so many seconds left."""
        while True:
            with self.changed:
                while not self.queue.has(most_left):
                    if self.closed:
                        return
                    self.changed.wait()
            if self.gather and self.together > 1 and not self.closing:
                time.sleep(self.gather)
            with self.changed:
                batch = self.queue.take(self.together, self.turn, most_left)
                self.running += bool(batch)
                self.batches += bool(batch)
            if batch:
                try:
                    self._answer(loop, batch)
                finally:
                    with self.changed:
                        self.running -= 1

    def _answer(self, loop: asyncio.AbstractEventLoop, batch: Sequence[Entry[tuple[Q, asyncio.Future[A]]]]) -> None:
        started = time.monotonic()
        for entry in batch:
            entry.started = started
        pending = dict(enumerate(entry.item[1] for entry in batch))
        futures = [entry.item[1] for entry in batch]
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            try:
                questions = [entry.item[0] for entry in batch]
                for place, answer in self.work(questions, lambda place: not futures[place].cancelled()):
                    loop.call_soon_threadsafe(_settle, pending.pop(place), answer)
            except Exception as error:
                for future in pending.values():
                    loop.call_soon_threadsafe(_settle, future, error)


def preparing() -> Batcher[Callable[[], Any], Any]:
    """Runs functions that prepare requests: long ones one by one, and short ones beside them."""

    def work(functions: Sequence[Callable[[], Any]], _: Callable[[int], bool]) -> Iterator[tuple[int, Any]]:
        yield from ((place, function()) for place, function in enumerate(functions))

    return Batcher(work, short=QUICK)


def stopping() -> ApiError:
    return ApiError(503, "closing", "the server is stopping", headers={"Retry-After": "5"})


def too_late(seconds: float) -> ApiError:
    message = f"no answer within {seconds:,.3g} s, the most that this server takes: ask for fewer heads at a time"
    return ApiError(504, "deadline", message)


def _settle(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():  # it was cancelled
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


class Answers:
    """Answers a batch of parts, and measures how long that takes."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker, self.settings, self.estimates = linker, settings, Estimates(linker)
        self.calls = 0  # of the linker, to measure what batching saves

    def to_measure(self) -> Iterator[RankingPart]:
        """Rankings of all candidates of one head with a few references and with many, each twice."""
        triples = self.linker.graph.triples()
        ends = list(dict.fromkeys((head, tail) for head, _, tail in triples[:MEASURED].tolist() if head != tail))
        for count in (3, MEASURED):
            for head, _ in ends[-2:]:
                if ends[:count]:
                    yield RankingPart(References(tuple(ends[:count])), (head,), 10, "all", True, False)

    def batch(
        self, parts: Sequence[Part], is_waiting: Callable[[int], bool] = lambda place: True
    ) -> Iterator[tuple[int, Answer | Exception]]:
        """The place of each part with its answer or an error; `is_waiting(place)`: whether a client waits for it."""
        groups: dict[Hashable, list[Member]] = {}
        for place, part in enumerate(parts):
            groups.setdefault(part.key, []).append((place, part))
        for group in groups.values():
            for members in self._calls(group):
                waiting = [member for member in members if is_waiting(member[0])]
                answers: Sequence[Answer | Exception]
                try:
                    answers = self._call([part for _, part in waiting]) if waiting else []
                except Exception as error:  # every client of the call receives it; the thread continues
                    answers = [error] * len(waiting)
                yield from zip((place for place, _ in waiting), answers, strict=True)

    def _calls(self, members: Sequence[Member]) -> Iterator[list[Member]]:
        """Members for one call each, with at most as many rows (heads times the largest k) as one request may have."""
        call: list[Member] = []
        heads, k = 0, 0
        for member in members:
            part = member[1]
            more_heads, own_k = (len(part.heads), part.k) if isinstance(part, RankingPart) else (1, 1)
            if call and (heads + more_heads) * max(k, own_k) > self.settings.rows:
                yield call
                call, heads, k = [], 0, 0
            call.append(member)
            heads, k = heads + more_heads, max(k, own_k)
        yield call

    def _call(self, parts: Sequence[Part]) -> Sequence[Answer]:
        self.calls += 1
        first = parts[0]
        begin = time.perf_counter()
        if isinstance(first, ExplanationPart):
            explained = self.linker.explain_pair(first.references, first.head, first.tail)
            self.estimates.observe_explanation(first.references, time.perf_counter() - begin)
            return [explained] * len(parts)
        size = self.estimates.size(first.references, len(find_candidates_of(self.linker, first)))
        if isinstance(first, TrustPart):
            trust = self._trust(first)
            self.estimates.observe_trust(first.references, size, time.perf_counter() - begin)
            return [trust] * len(parts)
        ranked = [part for part in parts if isinstance(part, RankingPart)]
        answers = self._rank(ranked)
        heads = len({head for part in ranked for head in part.heads})
        self.estimates.observe_ranking(first.references, size, heads, time.perf_counter() - begin)
        return answers

    def _rank(self, parts: Sequence[RankingPart]) -> list[Answer]:
        """One call for the heads of all parts; each part gets its own heads and its own k."""
        trust = self._trust(parts[0]) if parts[0].overall else None
        return [*self.linker.rank_batch([part.query for part in parts], trust)]

    def _trust(self, part: RankingPart | TrustPart) -> Trust | None:
        return self.linker.trust(part.query)


def find_candidates_of(linker: Linker, part: RankingPart | TrustPart) -> np.ndarray:
    """The candidates (c,) of a part by id; those of the last few questions are remembered."""
    return linker.candidates(part.query)
