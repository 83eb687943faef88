"""Answers whole requests: resolves names, ranks heads in short turns, and lets the linker join the results."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fewlink.core import child
from fewlink.core.errors import UnknownName
from fewlink.core.threads import SharedCores
from fewlink.curation.schema import Decision
from fewlink.linker import Explanation, Linker
from fewlink.linker.complete import answered_heads, plausible_heads
from fewlink.linker.probability import adjustment_of
from fewlink.linker.query import Adjustment, Query, References
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.models.contract import capabilities
from fewlink.server.admission import Admission, Job
from fewlink.server.batching import Batcher, Work, run_each
from fewlink.server.errors import ApiError
from fewlink.server.lookups import offer, types_of
from fewlink.server.schema import ExplainRequest, PredictRequest, ServerSettings
from fewlink.server.sharing import KeptRankings, SharedAnswers, split_by_head
from fewlink.tasks.candidates import by_similarity

T = TypeVar("T")
FIRST_TURN_HEADS = 8  # before the pace of a request is known
MAX_TURN_HEADS = 50  # before other requests get their turn
MAX_COMPARED_ROWS = 1_000_000  # that constraints may compare with each other
LOOKUP_THREADS = 6
SHORT_SHARE = 0.1  # of `ServerSettings.seconds`: shorter jobs need not wait for longer ones


@dataclass(frozen=True)
class RankTurn:
    """Rank some heads of a query."""

    query: Query
    trust: Trust | None

    @property
    def key(self) -> Hashable:
        return "rank", self.query.batch_key

    @property
    def rows(self) -> int:
        return len(self.query.heads) * self.query.k


@dataclass(frozen=True)
class TrustTurn:
    """Measure the trust in the answers to a query."""

    query: Query
    rows = 1

    @property
    def key(self) -> Hashable:
        return "trust", self.query.references, self.query.candidates


@dataclass(frozen=True)
class ExplainTurn:
    """Explain the score of one pair: of a tail for a head or, if the references are inverse, of a head for a tail."""

    references: References
    asked: int
    answer: int
    rows = 1

    @property
    def key(self) -> Hashable:
        return self


Turn = RankTurn | TrustTurn | ExplainTurn | Work


class ClientLeft(Exception):
    """Nobody waits for the result of the work any more."""


class Resolver:
    """Turns the names of requests into queries; raises for unknown names and exceeded limits. Thread-safe."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker = linker
        self.settings = settings

    def query(self, request: PredictRequest) -> tuple[Query, int]:
        """The query of a request, and the number of heads before `first` and `count` select some of them."""
        self._check_limits(request)
        with self._suggesting():
            query = self.linker.resolve(
                [(head, tail) for head, tail in request.references] if request.references else None,
                request.tails or request.heads or (),
                request.per_head or request.k,
                candidates=request.candidates,
                exclude_known=request.exclude_known,
                relation=request.relation,
                constraints=request.constraints,
                rejected=[(head, tail) for head, tail in request.rejected],
                across_heads=request.heads_of_type is not None and request.per_head is None,
                inverse=request.tails is not None,
            )
        if request.heads_of_type is None:
            return query, len(query.heads)
        members = self._heads_of_type(request.heads_of_type, query.references)
        last = len(members) if request.count is None else request.first + request.count
        heads = members[request.first : last]
        self._check_heads(len(heads), "heads_of_type")
        self._check_rows(len(heads), request.per_head or 1, "per_head")
        return replace(query, heads=tuple(heads.tolist())), len(members)

    def pair(self, request: ExplainRequest) -> ExplainTurn:
        """The pair to explain."""
        if request.references is None and request.relation is None:
            raise no_references()
        names = self.linker.names
        with self._suggesting():
            query = self.linker.resolve(
                [(head, tail) for head, tail in request.references] if request.references else None,
                relation=request.relation,
                rejected=[(head, tail) for head, tail in request.rejected],
                inverse=request.inverse,
            )
            head = names.find(request.head, "head", "head")
            tail = names.find(request.tail, "tail", "tail")
        asked, answer = (tail, head) if request.inverse else (head, tail)
        return ExplainTurn(query.references, asked, answer)

    def check_settled(self, query: Query) -> None:
        """Raise if constraints would compare more rows with each other than the server can."""
        heads = len(query.heads)
        if query.across_heads or heads * (heads + query.k) <= MAX_COMPARED_ROWS:
            return
        if self.linker.constraints(query).between_pairs:
            message = (
                f"these constraints compare the answers of all heads with each other, and {heads:,} heads are too many"
            )
            raise ApiError(
                422, "limit", f"{message}: ask for at most {int(MAX_COMPARED_ROWS**0.5) - query.k:,}", "heads"
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

    def _heads_of_type(self, kind: str, references: References) -> np.ndarray:
        if kind in ("open", "all"):
            return heads_by_similarity(self.linker, references, kind == "all")
        with self._suggesting():
            return self.linker.names.members(kind, "heads_of_type")

    def _check_limits(self, request: PredictRequest) -> None:
        """Raise if a request exceeds a limit that can be checked without looking up names."""
        limits = self.settings
        heads = len(request.heads or request.tails or ())
        if [request.heads, request.tails, request.heads_of_type].count(None) != 2:
            raise ApiError(422, "refused", "give one of 'heads', 'tails' and 'heads_of_type'", "heads")
        if request.heads_of_type is None:
            for name in ("first", "count", "per_head"):
                if getattr(request, name):
                    message = f"'{name}' is about the heads of 'heads_of_type': leave it out with 'heads' or 'tails'"
                    raise ApiError(422, "refused", message, name)
        if request.references is None and request.relation is None:
            raise no_references()
        if request.k > limits.k:
            message = f"k is {request.k:,}, but this server returns at most {limits.k:,} tails per head"
            raise ApiError(422, "limit", f"{message}: ask for fewer, or start the server with a higher --most-k", "k")
        self._check_heads(heads, "heads" if request.tails is None else "tails")
        rows = self._check_rows(heads or 1, request.k, "k")
        if request.explain and rows > limits.explained:
            message = f"{rows:,} predictions with reasons are more than the limit of {limits.explained:,}"
            advice = "ask for fewer heads or tails, or explain single pairs"
            raise ApiError(422, "limit", f"{message}: {advice}", "explain")

    def _check_rows(self, heads: int, each: int, field: str) -> int:
        """The number of predictions; raises if there are too many."""
        rows, limit = heads * each, self.settings.rows
        if rows > limit:
            message = f"{rows:,} predictions are more than the limit of {limit:,}: ask for fewer heads or tails"
            raise ApiError(422, "limit", message, field)
        return rows

    def _check_heads(self, count: int, field: str) -> None:
        limit = self.settings.heads
        if count > limit:
            message = f"{count:,} heads are more than the limit of {limit:,} for one request"
            advice = "ask for some at a time with 'first' and 'count'" if field == "heads_of_type" else "ask for fewer"
            raise ApiError(422, "limit", f"{message}: {advice}, or start the server with a higher --most-heads", field)


def no_references() -> ApiError:
    message = "the request has no references: give pairs of a head and a tail, or a relation to take them from"
    return ApiError(422, "refused", message, "references")


@functools.lru_cache(maxsize=8)  # several requests rank the heads of one order
def heads_by_similarity(linker: Linker, references: References, with_others: bool) -> np.ndarray:
    """The heads (n,) of `fewlink complete`, in its order, and `with_others` all other entities after them."""
    heads = plausible_heads(linker.graph, references)
    if not with_others:
        return heads
    order, _ = by_similarity(linker.graph, references.ids[:, 0])
    return np.concatenate([heads, order[~np.isin(order, heads)]])


class Service:
    """Answers whole requests: admits them, resolves them, and asks the model in short turns."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker = linker
        self.settings = settings
        self.resolver = Resolver(linker, settings)
        self.admission = Admission(settings)
        self.batcher: Batcher[Turn] = Batcher(
            self._answer,
            gather=settings.gather,
            together=settings.together,
            rows=settings.rows,
            short=SHORT_SHARE * settings.seconds if capabilities(linker.scorer).thread_safe else None,
        )
        self.shared = SharedAnswers(settings.kept)
        self.rankings = KeptRankings(settings.kept)
        self.calls = 0  # of the linker
        self._cores = SharedCores()
        self._reading = asyncio.Lock()  # held while a process reads what a visitor sent
        self._seconds_per_head = 0.0  # in the latest turn of any request
        self.lookups: Batcher[Work] = Batcher(self._look_up_each, threads=LOOKUP_THREADS, name="lookup")
        self.slow_lookups: Batcher[Work] = Batcher(self._look_up_each, name="slow-lookup")

    def start(self) -> None:
        """Start the threads that answer."""
        for batcher in (self.batcher, self.lookups, self.slow_lookups):
            batcher.start()

    def close(self) -> None:
        """Stop the threads after what they are running."""
        for batcher in (self.batcher, self.lookups, self.slow_lookups):
            batcher.close()

    def _look_up_each(self, works: Sequence[Work]) -> list[Any]:
        """Run each lookup, unless a file of the graph was cut off, which would end the process."""
        self.linker.graph.check_files()
        return run_each(works)

    async def look_up(self, kind: str, work: Callable[[], T]) -> T:
        """Admit a request that needs no model, and run it in a thread."""
        async with self.admission.enter(kind) as job:
            result = await self.run(work, job)
            self.admission.started(job)
            return result

    async def run(self, work: Callable[[], T], job: Job, *, slow: bool = False) -> T:
        """Run work that needs no model in a thread. Slow work reads all entities: one runs at a time.

        If the caller is cancelled, work that has not begun never does.
        """
        result: T = await (self.slow_lookups if slow else self.lookups).ask(Work(work), job)
        return result

    async def run_apart(self, function: str, what: str, job: Job, **arguments: Any) -> Any:
        """Call a function that reads what a visitor sent, in a process of its own with limited memory, one at a time.

        `function` is `package.module:function`; `what` names the input in errors. Arguments and result are JSON. The
        process is killed if the caller is cancelled.
        """
        async with self._reading:
            began = time.monotonic()
            try:
                return await child.call(function, arguments, what, self.settings.reading)
            finally:
                job.spend(time.monotonic() - began)

    async def run_steps(self, kind: str, work: Callable[[Callable[[int], None]], T], *, slow: bool = False) -> T:
        """Admit a request, and run work that calls its argument after each step.

        The call raises if the caller has been cancelled. Slow work reads all entities or triples and needs no model.
        """
        left = threading.Event()

        def step(done: int) -> None:
            if left.is_set():
                raise ClientLeft

        async with self.admission.enter(kind) as job:
            threads: Batcher[Any] = self.slow_lookups if slow else self.batcher
            try:
                result: T = await threads.ask(Work(lambda: work(step)), job)
            finally:
                left.set()
            self.admission.started(job)
            return result

    async def predict(
        self, request: PredictRequest, decisions: Callable[[], Sequence[Decision]] | None = None
    ) -> bytes:
        """Admit a request and answer it in JSON; the decisions of a project adjust the probabilities.

        Clients that ask the same question without a project share one answer.
        """
        kind = "predict all heads" if request.heads_of_type in ("open", "all") else "predict"

        async def compute() -> bytes:
            async with self.admission.enter(kind) as job:
                answer = await self.answer(request, job, decisions)
                return await self.run(lambda: json.dumps(answer, allow_nan=False).encode(), job)

        if decisions is not None:
            return await compute()
        return await self.shared.get(json.dumps(request.model_dump()), compute)

    async def answer(
        self, request: PredictRequest, job: Job, decisions: Callable[[], Sequence[Decision]] | None = None
    ) -> dict[str, Any]:
        """Answer a request as part of a job."""

        def resolve() -> tuple[Query, int]:
            states = decisions() if decisions is not None else ()
            query, in_all = self.resolver.query(request)
            self.resolver.check_settled(query)
            return query if query.inverse else adjusted(query, states, self.linker), in_all  # decisions are about tails

        query, in_all = await self.run(resolve, job, slow=request.heads_of_type in ("open", "all"))
        ranked, trust = await self.rank(query, job)
        pairs = await self.run(lambda: self.linker.settle(query, ranked, trust), job)
        answer = await self.run(lambda: self._answer_json(query, pairs, trust), job)
        if request.explain:
            ends = zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True)
            turns = [ExplainTurn(query.references, head, tail) for head, tail in ends]
            for row, explanation in zip(answer["predictions"], await self._explain(turns, job), strict=True):
                row["reasons"] = explanation.to_dict()
        return {"heads": len(query.heads), "heads_in_all": in_all, **answer}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Explain the score of one pair."""
        async with self.admission.enter("explain") as job:
            turn = await self.run(lambda: self.resolver.pair(request), job)
            (explanation,) = await self._explain([turn], job)
            self.admission.started(job)
        return explanation.to_dict()

    async def rank(self, query: Query, job: Job) -> tuple[RankedPairs, Trust | None]:
        """The ranked pairs of a query, computed some heads at a time, and the trust in them. Rankings are kept by head.

        The first turn includes work that is done once per query; the second one shows how long the others will take.
        """
        task = query.ranking_key if query.by_head else None
        kept = None if task is None else self.rankings.of(task)
        by_head = {} if kept is None else {head: kept.by_head[head] for head in query.heads if head in kept.by_head}
        trust: Trust | None = None
        if kept is not None:
            trust = kept.trust
        elif self.linker.calibration is not None:
            trust = await self.batcher.ask(TrustTurn(query), job)
        heads = [head for head in query.heads if head not in by_head]
        ranked: list[RankedPairs] = []
        begin = 0
        count = self._heads_per_turn(FIRST_TURN_HEADS)
        while begin < len(heads):
            turn = query.part(heads[begin : begin + count])
            spent_before = job.spent
            ranked.append(await self.batcher.ask(RankTurn(turn, trust), job))
            begin += len(turn.heads)
            if task is not None:
                new = split_by_head(ranked[-1], turn.heads)
                self.rankings.keep(query, trust, new)
                by_head.update(new)
            if len(ranked) == 1:
                self.admission.started(job)
            else:
                self._seconds_per_head = (job.spent - spent_before) / len(turn.heads)
                count = self._heads_per_turn(MAX_TURN_HEADS)
            if len(ranked) == 2:
                self._check_cost(query, job, len(heads) - begin)
        return RankedPairs.joined([by_head[head] for head in query.heads] if task is not None else ranked), trust

    def _heads_per_turn(self, limit: int) -> int:
        return max(1, min(limit, int(self.settings.turn / max(self._seconds_per_head, 1e-9))))

    def _check_cost(self, query: Query, job: Job, heads: int) -> None:
        """Raise if the remaining heads of a query would take too long."""
        affordable = max(1, int((self.settings.seconds - job.spent) / max(self._seconds_per_head, 1e-9)))
        advice = f"ask for at most {affordable:,} heads at a time"
        if query.across_heads:
            advice += ", with 'first' and 'count'"
        self.admission.expect(
            job, self._seconds_per_head * heads, f"{advice}, or start the server with a higher --most-seconds"
        )

    async def _explain(self, turns: Sequence[ExplainTurn], job: Job) -> list[Explanation]:
        explanations: list[Explanation] = []
        for turn in turns:
            before = job.spent
            explanations.append(await self.batcher.ask(turn, job))
            if len(explanations) == 2:
                seconds = (len(turns) - 2) * (job.spent - before)
                self.admission.expect(job, seconds, "explain single pairs")
        return explanations

    def _answer(self, turns: Sequence[Turn]) -> Sequence[Any]:
        """Answer turns with the same key in one call of the linker."""
        self.calls += 1
        with self._cores.use():
            return self._answer_turns(turns)

    def _answer_turns(self, turns: Sequence[Turn]) -> Sequence[Any]:
        self.linker.graph.check_files()
        first = turns[0]
        if isinstance(first, Work):
            return run_each([first])
        if isinstance(first, ExplainTurn):
            return [self.linker.explain_pair(first.references, first.asked, first.answer)] * len(turns)
        if isinstance(first, TrustTurn):
            return [self.linker.trust(first.query)] * len(turns)
        queries = [turn.query for turn in turns if isinstance(turn, RankTurn)]
        return self.linker.rank_batch(queries, first.trust)

    def _answer_json(self, query: Query, pairs: RankedPairs, trust: Trust | None) -> dict[str, Any]:
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
        return {
            "predictions": [{**row, **own} for row, own in zip(predictions.to_dicts(), shared, strict=True)],
            "notes": notes,
            "trust": predictions.trust and vars(predictions.trust),
            "tail_types": types_of(self.linker, np.unique(pairs.tails)),
            "answered": self._answered(query, pairs),
            "sets": list(map(vars, predictions.sets)),
            "calibration": adjustment_facts(query.adjustment if shown else None),
        }

    def _answered(self, query: Query, pairs: RankedPairs) -> list[str]:
        """The ids of the heads of ranked pairs that have a known tail."""
        heads = np.intersect1d(pairs.heads, answered_heads(query.references))
        return [self.linker.graph.entities[head] for head in heads.tolist()]


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
