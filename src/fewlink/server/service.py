"""Answers whole requests: resolves names, and asks the linker in two lanes of threads."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from fewlink.core.errors import UnknownName
from fewlink.curation.store import Decision
from fewlink.linker import Linker
from fewlink.linker.complete import plausible_heads
from fewlink.linker.probability import adjustment_of
from fewlink.linker.query import Adjustment, Query, References, batches_of
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.models.contract import capabilities
from fewlink.server.errors import ApiError
from fewlink.server.lookups import offer, types_of
from fewlink.server.schema import MAX_HEADS, ExplainRequest, PredictRequest, QueryRequest, ServerSettings
from fewlink.tasks.candidates import by_similarity

T = TypeVar("T")
SMALL = 1_000  # heads times references of a small question, which takes about half a second on ATT&CK
SMALL_THREADS = 2  # so that one slow small question does not hold up the others
MAX_COMPARED_ROWS = 1_000_000  # that constraints may compare with each other
RETRY_SECONDS = 5  # after which a client may try again that the server was too busy for
KEPT_RANKINGS = 32  # of projects, so that a decision about a pair does not rank all heads again


class Lane:
    """Threads for questions of about the same size, and how many requests may wait for them."""

    def __init__(self, name: str, threads: int, most: int) -> None:
        self.most = most
        self.requests = 0
        self.pool = ThreadPoolExecutor(
            threads, f"fewlink-{name}", initializer=torch.set_num_threads, initargs=(1,)
        )  # one torch thread for each, or they would take the cores from each other

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[Lane]:
        """Wait in this lane for the duration of the context; raise if too many requests do."""
        if self.requests >= self.most:
            message = f"{self.requests:,} requests are waiting: try again in {RETRY_SECONDS} s"
            raise ApiError(503, "busy", message, headers={"Retry-After": str(RETRY_SECONDS)})
        self.requests += 1
        try:
            yield self
        finally:
            self.requests -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Run work in a thread. If the caller is cancelled before its turn, the work is never done."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)


class SharedAnswers:
    """Answers by question, both as text: equal questions share one computation, and the last answers are kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.kept_bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._running: dict[str, asyncio.Task[bytes]] = {}
        self._waiting: dict[str, int] = {}

    async def get(self, question: str, compute: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """The kept answer, that of the computation under way, or that of a new one.

        A computation is cancelled when the last client that waits for it leaves.
        """
        if question in self._kept:
            self._kept.move_to_end(question)
            return self._kept[question]
        if question not in self._running:
            self._running[question] = asyncio.create_task(compute())
            self._waiting[question] = 0
        running = self._running[question]
        self._waiting[question] += 1
        try:
            answer = await asyncio.shield(running)
        finally:
            self._waiting[question] -= 1
            if not self._waiting[question]:
                running.cancel()
                del self._running[question]
                del self._waiting[question]
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


class Resolver:
    """Turns the names in requests into queries, and refuses unknown names and exceeded limits. It is thread-safe."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker = linker
        self.settings = settings

    def query(self, request: PredictRequest) -> tuple[Query, int]:
        """The query of a request, and the number of heads before `first` and `count` select some of them."""
        asked = request.tails or request.heads or ()
        self._check_request(request)
        self._check_rows(len(asked) or 1, request.k, "k")
        query = self._resolved(
            request,
            asked,
            request.per_head or request.k,
            candidates=request.candidates,
            exclude_known=request.exclude_known,
            explain="full" if request.explain else False,
            constraints=request.constraints,
            across_heads=request.heads_of_type is not None and request.per_head is None,
            inverse=request.tails is not None,
        )
        if request.heads_of_type is None:
            return query, len(query.heads)
        if request.heads_of_type in ("open", "all"):
            members = heads_by_similarity(self.linker, query.references, request.heads_of_type == "all")
        else:
            members = self.linker.names.members(request.heads_of_type, "heads_of_type")
        last = len(members) if request.count is None else request.first + request.count
        heads = members[request.first : last]
        if len(heads) > MAX_HEADS:
            message = f"{len(heads):,} heads are more than the limit of {MAX_HEADS:,} for one request"
            raise limit_error(f"{message}: ask for some at a time with 'first' and 'count'", "heads_of_type")
        self._check_rows(len(heads), request.per_head or 1, "per_head")
        return replace(query, heads=tuple(heads.tolist())), len(members)

    def pair(self, request: ExplainRequest) -> tuple[References, int, int]:
        """The references of a pair to explain, and its ends: the entity that is asked about and the answer."""
        names = self.linker.names
        query = self._resolved(request, inverse=request.inverse)
        with self._suggesting():
            head = names.find(request.head, "head", "head")
            tail = names.find(request.tail, "tail", "tail")
        return (query.references, tail, head) if request.inverse else (query.references, head, tail)

    def check_settled(self, query: Query) -> None:
        """Raise if constraints would compare more rows with each other than the server can."""
        heads = len(query.heads)
        if query.across_heads or heads * (heads + query.k) <= MAX_COMPARED_ROWS:
            return
        if self.linker.constraints(query).between_pairs:
            message = (
                f"these constraints compare the answers of all heads with each other, and {heads:,} heads are too many"
            )
            most = int(MAX_COMPARED_ROWS**0.5) - query.k
            raise limit_error(f"{message}: ask for at most {most:,}", "heads")

    def _resolved(self, request: QueryRequest, heads: Sequence[str] = (), k: int = 1, **options: Any) -> Query:
        """The query of the references in a request; raises if it has none, or a name is unknown."""
        if request.references is None and request.relation is None:
            message = "the request has no references: give pairs of a head and a tail, or a relation to take them from"
            raise ApiError(422, "refused", message, "references")
        with self._suggesting():
            return self.linker.resolve(
                [(head, tail) for head, tail in request.references] if request.references else None,
                heads,
                k,
                relation=request.relation,
                rejected=[(head, tail) for head, tail in request.rejected],
                **options,
            )

    @contextmanager
    def _suggesting(self) -> Iterator[None]:
        """Add similar entities to the error for an unknown name."""
        try:
            yield
        except UnknownName as error:
            names = self.linker.names
            is_entity = "." in error.field or error.field in ("head", "tail")
            similar = [offer(names, entity) for entity in names.nearest(error.name)] if is_entity else []
            raise ApiError(404, "unknown-name", str(error), error.field or None, similar) from None

    def _check_request(self, request: PredictRequest) -> None:
        """Raise unless a request asks about heads in one way."""
        if [request.heads, request.tails, request.heads_of_type].count(None) != 2:
            raise ApiError(422, "refused", "give one of 'heads', 'tails' and 'heads_of_type'", "heads")
        if request.heads_of_type is None:
            for name in ("first", "count", "per_head"):
                if getattr(request, name):
                    message = f"'{name}' is about the heads of 'heads_of_type': leave it out with 'heads' or 'tails'"
                    raise ApiError(422, "refused", message, name)
        rows = len(request.heads or request.tails or (None,)) * request.k
        limit = self.settings.explained
        if request.explain and rows > limit:
            message = f"{rows:,} predictions with reasons are more than the limit of {limit:,}"
            raise limit_error(f"{message}: ask for fewer heads or tails, or explain single pairs", "explain")

    def _check_rows(self, heads: int, each: int, field: str) -> None:
        """Raise if a request asks for too many predictions."""
        rows = heads * each
        limit = self.settings.rows
        if rows > limit:
            message = f"{rows:,} predictions are more than the limit of {limit:,}: ask for fewer heads or tails"
            raise limit_error(message, field)


def limit_error(message: str, field: str) -> ApiError:
    return ApiError(422, "limit", message, field)


@functools.lru_cache(maxsize=8)  # several requests rank the heads of one order
def heads_by_similarity(linker: Linker, references: References, with_others: bool) -> np.ndarray:
    """The heads (n,) of `fewlink complete`, in its order, and `with_others` all other entities after them."""
    heads = plausible_heads(linker.graph, references)
    if not with_others:
        return heads
    order, _ = by_similarity(linker.graph, references.ids[:, 0])
    return np.concatenate([heads, order[~np.isin(order, heads)]])


class Service:
    """Answers whole requests. Small and large questions wait in different lanes, so that no costly question holds up
    the small ones; large questions take turns, some heads at a time."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker = linker
        self.settings = settings
        self.resolver = Resolver(linker, settings)
        self.shared = SharedAnswers(settings.kept)
        self._rankings: OrderedDict[Query, tuple[RankedPairs, Trust | None]] = OrderedDict()
        self.small = Lane("small", SMALL_THREADS, settings.waiting)
        self.large = Lane("large", 1, settings.waiting_large)
        safe = capabilities(linker.scorer).thread_safe
        self.model: AbstractContextManager[Any] = nullcontext() if safe else threading.Lock()

    def close(self) -> None:
        """Stop the threads after what they are running."""
        for lane in (self.small, self.large):
            lane.pool.shutdown(wait=False, cancel_futures=True)

    def lane_of(self, query: Query) -> Lane:
        """The lane for a question, by its numbers of heads and of references."""
        return self.small if len(query.heads) * len(query.references.pairs) <= SMALL else self.large

    async def run(self, work: Callable[[], T], *, large: bool = False) -> T:
        """Run work in a lane."""
        async with self.in_time(), (self.large if large else self.small).enter() as lane:
            return await lane.run(work)

    async def predict(
        self, request: PredictRequest, decisions: Callable[[], Sequence[Decision]] | None = None
    ) -> bytes:
        """Answer a request in JSON; the decisions of a project adjust the probabilities.

        Clients that ask the same question without a project share one answer.
        """

        async def compute() -> bytes:
            answer = await self.answer(request, decisions)
            return json.dumps(answer, allow_nan=False).encode()

        if decisions is not None:
            return await compute()
        return await self.shared.get(json.dumps(request.model_dump()), compute)

    async def answer(
        self, request: PredictRequest, decisions: Callable[[], Sequence[Decision]] | None = None
    ) -> dict[str, Any]:
        """Answer a request."""

        def resolve() -> tuple[Query, int]:
            states = decisions() if decisions is not None else ()
            query, in_all = self.resolver.query(request)
            self.resolver.check_settled(query)
            return query if query.inverse else adjusted(query, states, self.linker), in_all  # decisions are about tails

        async with self.in_time():
            query, in_all = await self.run(resolve, large=request.heads_of_type is not None)
            async with self.lane_of(query).enter() as lane:
                ranked, trust = await self._ranked(query, lane)
                answer = await lane.run(functools.partial(self._answer_json, query, ranked, trust))
        return {"heads": len(query.heads), "heads_in_all": in_all, **answer}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain the score of one pair."""

        def explained() -> dict[str, Any]:
            with self.model:
                return self.linker.explain_pair(references, asked, answer).to_dict()

        async with self.in_time():
            references, asked, answer = await self.run(lambda: self.resolver.pair(request))
            return await self.run(explained, large=len(references.pairs) > SMALL)

    async def rank(self, query: Query) -> tuple[RankedPairs, Trust | None]:
        """The ranked pairs of a query of a project, and the trust in them. The last ones are kept."""
        if query not in self._rankings:
            async with self.lane_of(query).enter() as lane:
                self._rankings[query] = await self._ranked(query, lane)
            while len(self._rankings) > KEPT_RANKINGS:
                self._rankings.popitem(last=False)
        self._rankings.move_to_end(query)
        return self._rankings[query]

    async def _ranked(self, query: Query, lane: Lane) -> tuple[RankedPairs, Trust | None]:
        """The ranked pairs of a query, computed some heads at a time, and the trust in them.

        Others have their turns in between, and nothing more is computed once the caller is cancelled.
        """

        def rank(heads: Sequence[int]) -> tuple[RankedPairs, Trust | None]:
            with self.model:
                trust = self.linker.trust(query)  # measured once
                return self.linker.rank(query, trust, heads), trust

        parts = [await lane.run(functools.partial(rank, heads)) for heads in batches_of(query.heads)]
        return RankedPairs.joined([ranked for ranked, _ in parts]), parts[0][1] if parts else None

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Give up on a request after `settings.seconds`."""
        try:
            async with asyncio.timeout(self.settings.seconds):
                yield
        except TimeoutError:
            message = f"the server found no answer within its limit of {self.settings.seconds:,.3g} s"
            raise ApiError(504, "deadline", f"{message}: ask for less at a time, or try again later") from None

    def _answer_json(self, query: Query, ranked: RankedPairs, trust: Trust | None) -> dict[str, Any]:
        pairs = self.linker.settle(query, ranked, trust)
        with self.model:
            predictions = self.linker.predictions(query, pairs, trust)
        notes = list(predictions.notes)
        if not query.constraints:  # no note about the default constraint
            used = self.linker.constraints(query)
            heads = np.array(query.heads, np.int32)
            default = used.notes(heads, self.linker.candidates(query))
            notes = [note for note in notes if note not in default]
        shown = predictions.trust is not None and predictions.trust.shown
        ends = (pairs.tails, pairs.heads) if query.inverse else (pairs.heads, pairs.tails)
        shared = shared_names(self.linker, *ends)
        answered = np.intersect1d(pairs.heads, query.references.answered_heads())
        return {
            "predictions": [{**row, **own} for row, own in zip(predictions.to_dicts(), shared, strict=True)],
            "notes": notes,
            "trust": predictions.trust and vars(predictions.trust),
            "tail_types": types_of(self.linker, np.unique(pairs.tails)),
            "answered": [self.linker.graph.entities[head] for head in answered.tolist()],
            "sets": list(map(vars, predictions.sets)),
            "calibration": adjustment_facts(query.adjustment if shown else None),
        }


def shared_names(linker: Linker, heads: np.ndarray, tails: np.ndarray) -> list[dict[str, bool]]:
    """Whether other entities have the names of these heads and tails, each (n,): two fields of each row."""
    shared = linker.names.with_shared_names(np.concatenate([heads, tails]).tolist())
    return [
        {"head_name_shared": head in shared, "tail_name_shared": tail in shared}
        for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)
    ]


def adjusted(query: Query, decisions: Sequence[Decision], linker: Linker) -> Query:
    """The query with its probabilities adjusted by decisions."""
    true = (linker.graph.entities.find(state.head) for state in decisions if state.kind != "rejected")
    answered = frozenset(head for head in true if head is not None)
    return replace(query, adjustment=adjustment_of(decisions), answered=answered)


def adjustment_facts(adjustment: Adjustment | None) -> dict[str, Any] | None:
    """The number of decisions that adjusted the probabilities, in a sentence too; None without an adjustment."""
    if adjustment is None:
        return None
    return {"decisions": adjustment.decisions, "sentence": adjustment.sentence()}
