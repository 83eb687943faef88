"""Requests answered by a linker: resolved, ranked a few heads at a time so that others get their turn, and joined."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fewlink.core.errors import UnknownName
from fewlink.data.candidates import by_similarity
from fewlink.linker import Explanation, Linker
from fewlink.linker.constraints import check_kinds
from fewlink.linker.query import Query, References, find_heads
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.scorers import capabilities
from fewlink.server.admission import Admission, Job
from fewlink.server.batching import Batcher
from fewlink.server.errors import ApiError
from fewlink.server.lookups import offer, types_of
from fewlink.server.schema import ExplainRequest, PredictRequest, QueryRequest, ServerSettings

T = TypeVar("T")
FIRST_TURN = 8  # heads that are ranked before the pace of a request is known
MAX_TURN = 50  # heads that are ranked before other requests get their turn
MAX_SETTLED = 1_000_000  # rows that may rule out each other
SHORT = 0.1  # share of the seconds of one request: jobs with less left are answered beside longer ones


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

    @property
    def rows(self) -> int:
        return len(self.heads) * self.k


@dataclass(frozen=True)
class ExplanationPart:
    """The reasons for the score of one pair."""

    references: References
    head: int
    tail: int

    @property
    def key(self) -> Hashable:
        return self

    @property
    def rows(self) -> int:
        return 1


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

    @property
    def rows(self) -> int:
        return 1


Part = RankingPart | ExplanationPart | TrustPart


class Resolver:
    """Turns names into ids; raises for unknown names and exceeded limits. Thread-safe."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker, self.names, self.settings = linker, linker.names, settings

    def ranking(self, request: PredictRequest) -> tuple[RankingPart, int, list[str]]:
        """The request by id, how many heads there are in all, and notes on it."""
        notes: list[str] = []
        self._check_limits(request)
        references = self._references(request, notes)
        heads, in_all = self._heads(request, references, notes)
        candidates = self._candidates(request.candidates)
        overall = request.heads is None
        kinds = check_kinds(request.constraints)
        part = RankingPart(references, heads, request.k, candidates, request.exclude_known, overall, kinds)
        return part, in_all, notes

    def explanation(self, request: ExplainRequest) -> ExplanationPart:
        references = self._references(request, [])
        return ExplanationPart(
            references, self._find(request.head, "head", "head"), self._find(request.tail, "tail", "tail")
        )

    def _find(self, name: str, what: str, field: str) -> int:
        """An entity by name; the error for an unknown name suggests similar ones."""
        try:
            return self.names.find(name, what)
        except UnknownName as error:
            suggestions = [offer(self.names, entity) for entity in self.names.nearest(name)]
            raise ApiError(404, "unknown-name", str(error), field, suggestions) from None

    def _check_limits(self, request: PredictRequest) -> None:
        """Raise if a request exceeds a limit of this server, before any name is looked up."""
        limits, heads = self.settings, len(request.heads or ())
        if (request.heads is None) == (request.heads_of_type is None):
            raise ApiError(422, "refused", "say which heads: a list, or all of heads_of_type", "heads")
        if request.heads is not None and (request.first or request.count is not None):
            raise ApiError(422, "refused", "'first' and 'count' are for heads_of_type, not for a list", "first")
        if request.k > limits.k:
            raise ApiError(422, "limit", f"k is {request.k:,}, and this server gives at most {limits.k:,} tails", "k")
        rows = request.k * (heads or 1)
        if rows > limits.rows:
            message = f"{rows:,} rows are more than {limits.rows:,}: ask for fewer heads or tails"
            raise ApiError(422, "limit", message, "k")
        if request.explain and rows > limits.explained:
            message = f"reasons of {rows:,} rows are more than {limits.explained:,}: ask for fewer heads or tails"
            raise ApiError(422, "limit", f"{message}, or for reasons of single rows at /explain", "explain")

    def _references(self, request: QueryRequest, notes: list[str]) -> References:
        rejected = [
            (
                self._find(head, "head of a rejected pair", f"rejected.{place}.0"),
                self._find(tail, "tail of a rejected pair", f"rejected.{place}.1"),
            )
            for place, (head, tail) in enumerate(request.rejected)
        ]
        return self._given(request, notes).with_rejected(rejected, self.names, notes)

    def _given(self, request: QueryRequest, notes: list[str]) -> References:
        if request.references is None:
            if request.relation is None:
                message = "no references: give pairs of a head and a tail, or a relation to take them from"
                raise ApiError(422, "refused", message, "references")
            return self.linker.find_references(None, request.relation, notes=notes)
        for place, (head, tail) in enumerate(request.references):
            self._find(head, "head of a reference", f"references.{place}.0")
            self._find(tail, "tail of a reference", f"references.{place}.1")
        pairs = [(head, tail) for head, tail in request.references]
        return self.linker.find_references(pairs, request.relation, notes=notes)

    def _heads(self, request: PredictRequest, references: References, notes: list[str]) -> tuple[tuple[int, ...], int]:
        """The heads to rank, and how many there are in all."""
        if request.heads is None:
            kind = request.heads_of_type or ""
            likeness = kind in ("open", "all")
            members = by_likeness(self.linker, references, kind == "all") if likeness else self.names.members(kind)
            last = len(members) if request.count is None else request.first + request.count
            heads = members[request.first : last].tolist()
            self._check_heads(len(heads), "heads_of_type")
            return tuple(heads), len(members)
        self._check_heads(len(request.heads), "heads")
        for place, name in enumerate(request.heads):
            self._find(name, "head", f"heads.{place}")
        distinct = find_heads(self.names, request.heads, notes)
        return distinct, len(distinct)

    def _check_heads(self, count: int, field: str) -> None:
        most = self.settings.heads
        if count > most:
            message = f"{count:,} heads are more than the {most:,} that this server allows in one request"
            parts = "for some at a time, with 'first' and 'count'" if field == "heads_of_type" else "about fewer"
            raise ApiError(422, "limit", f"{message}: ask {parts}, or start it with a higher --most-heads", field)

    def _candidates(self, choice: str | Sequence[str] | None) -> str | tuple[int, ...] | None:
        if choice is None or choice == "open":
            return None
        if isinstance(choice, str):
            return choice
        ids = {self._find(name, "candidate", f"candidates.{place}") for place, name in enumerate(choice)}
        return tuple(sorted(ids))


@functools.lru_cache(maxsize=8)  # many heads are ranked in many requests
def by_likeness(linker: Linker, references: References, others: bool) -> np.ndarray:
    """Entities (n,) like the references' heads, most similar first; with `others`, all other entities after them."""
    relation = references.relation.number if references.relation else -1
    order, similar = by_similarity(linker.graph, references.ids[:, 0], ignored=relation)
    return order if others else order[:similar]


class Service:
    """Answers whole requests: admits them, resolves them, and asks the model in short turns."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker, self.settings = linker, settings
        self.resolver, self.admission = Resolver(linker, settings), Admission(settings)
        self.batcher: Batcher[Part] = Batcher(
            self._answer,
            gather=settings.gather,
            together=settings.together,
            rows=settings.rows,
            short=SHORT * settings.seconds if capabilities(linker.scorer).thread_safe else None,
        )
        self.calls = 0  # of the linker
        self._pace = 0.0  # seconds for one head, in the last turn of a request
        self._ordering = ThreadPoolExecutor(1, "fewlink-ordering")

    async def prepare(self, work: Callable[[], T], job: Job, *, orders: bool = False) -> T:
        """Run work without the model in a thread. If it orders all entities, which may be slow, one runs at a time."""

        def timed() -> tuple[T, float]:
            began = time.perf_counter()
            result = work()
            return result, time.perf_counter() - began

        loop = asyncio.get_running_loop()
        result, seconds = await loop.run_in_executor(self._ordering if orders else None, timed)
        job.spend(seconds)
        return result

    async def predict(self, request: PredictRequest, first: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """The answer to a request; `first` runs before names are resolved."""

        def resolve() -> tuple[RankingPart, int, list[str]]:
            first()
            return self.resolver.ranking(request)

        orders = request.heads_of_type in ("open", "all")
        async with self.admission.enter("predict all heads" if orders else "predict") as job:
            whole, in_all, notes = await self.prepare(resolve, job, orders=orders)
            parts, trust = await self.rank(whole, job)
            answer, pairs = await asyncio.to_thread(self._joined, whole, parts, trust, notes)
            if request.explain:
                for row, reasons in zip(
                    answer["predictions"], await self._explain(whole.references, pairs, job), strict=True
                ):
                    row["reasons"] = reasons.to_dict()
        return {"heads": len(whole.heads), "heads_in_all": in_all, **answer}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        async with self.admission.enter("explain") as job:
            part = await self.prepare(functools.partial(self.resolver.explanation, request), job)
            explanation: Explanation = await self.batcher.ask(part, job)
            self.admission.started(job)
        return explanation.to_dict()

    async def rank(self, whole: RankingPart, job: Job) -> tuple[list[RankedPairs], Trust | None]:
        """The ranked pairs of a request, some heads at a time, and the trust in them.

        The first turn includes what happens once for each request; the second one shows how long the others will take.
        """
        trust: Trust | None = None
        if self.linker.calibration is not None:
            trust = await self.batcher.ask(TrustPart(whole.references, whole.candidates), job)
        if await asyncio.to_thread(self._between_pairs, whole):
            self._check_settled(whole)
            whole = replace(whole, heads_in_all=len(whole.heads))
        parts: list[RankedPairs] = []
        begin, count = 0, self._heads_in_a_turn(self._pace, FIRST_TURN)
        while begin < len(whole.heads):
            turn, before = whole.heads[begin : begin + count], job.spent
            parts.append(await self.batcher.ask(replace(whole, heads=turn), job))
            begin += len(turn)
            if len(parts) == 1:
                self.admission.started(job)
            else:
                self._pace = (job.spent - before) / len(turn)
                count = self._heads_in_a_turn(self._pace, MAX_TURN)
            if len(parts) == 2:
                self._expect(job, len(whole.heads) - begin, whole)
        return parts, trust

    def _heads_in_a_turn(self, pace: float, most: int) -> int:
        return max(1, min(most, int(self.settings.turn / max(pace, 1e-9))))

    def _expect(self, job: Job, heads: int, whole: RankingPart) -> None:
        """Refuse a request whose remaining heads would take too long."""
        most = max(1, int((self.settings.seconds - job.spent) / max(self._pace, 1e-9)))
        how = f"ask for at most {most:,} heads at a time"
        if whole.overall:
            how += ", with 'first' and 'count'"
        self.admission.expect(job, self._pace * heads, f"{how}, or start the server with a higher --most-seconds")

    async def _explain(self, references: References, pairs: Sequence[tuple[int, int]], job: Job) -> list[Explanation]:
        """The reasons for some pairs, one turn for each."""
        explained: list[Explanation] = []
        for head, tail in pairs:
            before = job.spent
            explained.append(await self.batcher.ask(ExplanationPart(references, head, tail), job))
            if len(explained) == 2:
                left = (len(pairs) - 2) * (job.spent - before)
                self.admission.expect(job, left, "ask for the reasons of single rows at /explain")
        return explained

    def _answer(self, parts: Sequence[Part]) -> Sequence[Any]:
        """The answers to parts with equal keys."""
        self.calls += 1
        first = parts[0]
        if isinstance(first, ExplanationPart):
            return [self.linker.explain_pair(first.references, first.head, first.tail)] * len(parts)
        if isinstance(first, TrustPart):
            return [self._trust(first)] * len(parts)
        return self._rank([part for part in parts if isinstance(part, RankingPart)])

    def _rank(self, parts: Sequence[RankingPart]) -> list[RankedPairs]:
        """One call for the heads of all parts; each part gets its own heads and its own k."""
        trust = self._trust(parts[0]) if parts[0].overall else None
        return self.linker.rank_batch([part.query for part in parts], trust)

    def _trust(self, part: RankingPart | TrustPart) -> Trust | None:
        return self.linker.trust(part.query)

    def _between_pairs(self, whole: RankingPart) -> bool:
        """Whether pairs of several heads rule out each other."""
        return self.linker.constraints(whole.query).between_pairs

    def _check_settled(self, whole: RankingPart) -> None:
        heads = len(whole.heads)
        if not whole.overall and heads * (heads + whole.k) > MAX_SETTLED:
            message = f"with these constraints all heads are answered together, and {heads:,} are too many"
            raise ApiError(422, "limit", f"{message}: ask for at most {int(MAX_SETTLED**0.5) - whole.k:,}", "heads")

    def _joined(
        self, whole: RankingPart, parts: list[RankedPairs], trust: Trust | None, notes: list[str]
    ) -> tuple[dict[str, Any], list[tuple[int, int]]]:
        """The answer to a request without reasons, and the heads and tails of its rows."""
        linker, query = self.linker, replace(whole.query, notes=tuple(notes))
        pairs = linker.settle(query, RankedPairs.joined(parts), trust)
        predictions = linker.predictions(query, pairs, trust)
        answer = {
            "predictions": predictions.to_dicts(),
            "notes": list(predictions.notes),
            "trust": predictions.trust and vars(predictions.trust),
            "tail_types": types_of(linker, np.unique(pairs.tails)),
            "sets": list(map(vars, predictions.sets)),
        }
        return answer, list(zip(pairs.heads.tolist(), pairs.tails.tolist(), strict=True))


def find_candidates_of(linker: Linker, part: RankingPart | TrustPart) -> np.ndarray:
    """The candidates (c,) of a part by id; those of the last few questions are remembered."""
    return linker.candidates(part.query)
