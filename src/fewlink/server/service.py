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
from fewlink.linker.constraints import Constraints, check_kinds
from fewlink.linker.predictions import RankedPairs
from fewlink.linker.query import (
    References,
    distinct_heads,
    find_candidates,
    is_open,
    no_candidate_note,
)
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

    @property
    def key(self) -> Hashable:
        """What parts that share a call have in common."""
        heads = self.heads if self.overall or self.constraints else None
        return self.references, self.candidates, self.exclude_known, heads, self.constraints

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
        for place, (head, tail) in enumerate(request.rejected):
            self._find(head, "head of a rejected pair", f"rejected.{place}.0")
            self._find(tail, "tail of a rejected pair", f"rejected.{place}.1")
        rejected = [(head, tail) for head, tail in request.rejected]
        return self._given(request, notes).without(rejected, self.names, notes)

    def _given(self, request: QueryRequest, notes: list[str]) -> References:
        if request.references is None:
            if request.relation is None:
                message = "no references: give pairs of a head and a tail, or a relation to take them from"
                raise ApiError(422, "refused", message, "references")
            return self.linker.resolve(None, request.relation, notes=notes)
        pairs = []
        for place, (head, tail) in enumerate(request.references):
            field = f"references.{place}"
            head_id = self._find(head, "head of a reference", f"{field}.0")
            pairs.append((head_id, self._find(tail, "tail of a reference", f"{field}.1")))
        return self.linker.resolve(pairs, request.relation, notes=notes)

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
        found = [self._find(name, "head", f"heads.{place}") for place, name in enumerate(request.heads)]
        distinct = tuple(distinct_heads(self.names, found, notes).tolist())
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
        if self.linker.reads_trust:
            trust = await self.batcher.ask(TrustPart(whole.references, whole.candidates), job)
        if await asyncio.to_thread(self._between_pairs, whole):
            self._check_settled(whole)
            whole = replace(whole, k=whole.k + len(whole.heads), overall=False)
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
            return [self.linker.explain_ids(first.references, first.head, first.tail)] * len(parts)
        if isinstance(first, TrustPart):
            return [self._trust(first)] * len(parts)
        return self._rank([part for part in parts if isinstance(part, RankingPart)])

    def _rank(self, parts: Sequence[RankingPart]) -> list[RankedPairs]:
        """One call for the heads of all parts and the largest k; each part gets its own heads and its own k."""
        first, linker = parts[0], self.linker
        candidates = find_candidates_of(linker, first)
        heads = np.array(list(dict.fromkeys(head for part in parts for head in part.heads)), np.int32)
        k = max(part.k for part in parts)
        trust = self._trust(first) if first.overall else None
        used = Constraints.of(first.constraints, linker.graph, first.references)
        known, overall = first.exclude_known, first.overall
        pairs = linker.rank(
            first.references, heads, k, candidates, known, overall, constraints=used, trust=trust, settle=False
        )
        if first.overall:
            return [pairs.take(np.arange(min(part.k, len(pairs)))) for part in parts]
        begins = np.flatnonzero(np.diff(pairs.heads, prepend=-1))  # the rows of a head are consecutive
        rows = dict(zip(pairs.heads[begins].tolist(), np.split(np.arange(len(pairs)), begins[1:]), strict=False))
        none = np.zeros(0, np.int64)
        return [pairs.take(np.concatenate([rows.get(head, none)[: part.k] for head in part.heads])) for part in parts]

    def _trust(self, part: RankingPart | TrustPart) -> Trust | None:
        candidates = None if is_open(part.candidates) else find_candidates_of(self.linker, part)
        return self.linker.trust(part.references, candidates)

    def _between_pairs(self, whole: RankingPart) -> bool:
        """Whether pairs of several heads rule out each other."""
        used = bool(whole.constraints)
        return used and Constraints.of(whole.constraints, self.linker.graph, whole.references).between_pairs

    def _check_settled(self, whole: RankingPart) -> None:
        heads = len(whole.heads)
        if not whole.overall and heads * (heads + whole.k) > MAX_SETTLED:
            message = f"with these constraints all heads are answered together, and {heads:,} are too many"
            raise ApiError(422, "limit", f"{message}: ask for at most {int(MAX_SETTLED**0.5) - whole.k:,}", "heads")

    def _joined(
        self, whole: RankingPart, parts: list[RankedPairs], trust: Trust | None, notes: list[str]
    ) -> tuple[dict[str, Any], list[tuple[int, int]]]:
        """The answer to a request without reasons, and the heads and tails of its rows."""
        linker, heads = self.linker, np.array(whole.heads)
        used = Constraints.of(whole.constraints, linker.graph, whole.references)
        if used.between_pairs and whole.constraints:
            pool = max(100 * whole.k, 10_000)
            pairs = linker.best_pairs(parts, pool, trust) if whole.overall else RankedPairs.joined(parts)
            keys = linker.keys(pairs, trust if whole.overall else None)
            pairs = used.settle(pairs, keys, whole.k, whole.overall)
        else:
            pairs = linker.best_pairs(parts, whole.k, trust) if whole.overall else RankedPairs.joined(parts)
        if whole.constraints:
            notes += used.notes(heads, find_candidates_of(linker, whole))
        if not whole.overall:
            unranked = np.setdiff1d(used.open_heads(heads), pairs.heads)
            notes += [no_candidate_note(linker.names, head) for head in whole.heads if head in unranked]
        count = None if whole.overall else len(find_candidates_of(linker, whole))
        predictions = linker.table(pairs, notes, trust=trust, candidates=count)
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
    return _candidates(linker, part.candidates, part.references)


@functools.lru_cache(maxsize=16)
def _candidates(linker: Linker, choice: str | tuple[int, ...] | None, references: References) -> np.ndarray:
    if isinstance(choice, tuple):
        return np.array(choice, np.int32)
    return find_candidates(linker.benchmark, linker.names, choice, references)
