"""Requests answered by a linker: names are resolved once, similar requests share one call, long ones take turns."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.data.candidates import by_similarity
from fewlink.linker import Explanation, Linker
from fewlink.linker.constraints import check_kinds
from fewlink.linker.names import Names, entity_of
from fewlink.linker.query import References, find_heads, find_relation
from fewlink.linker.ranking import RankedPairs
from fewlink.linker.trust import Trust
from fewlink.server.admission import Admission, Admitted
from fewlink.server.batching import (
    GRACE,
    Answer,
    Answers,
    Batcher,
    ExplanationPart,
    Part,
    RankingPart,
    TrustPart,
    find_candidates_of,
    preparing,
)
from fewlink.server.estimates import LIKENESS
from fewlink.server.middleware import ApiError
from fewlink.server.schema import ExplainRequest, PredictRequest, QueryRequest, ServerSettings

T = TypeVar("T")
TURN = 50  # heads of a long request that are scored at most before other requests have their turn
MOST_SETTLED = 1_000_000  # rows of which better ones may rule out others
MANY = 500  # rows above which an answer is written in a thread, not in the event loop


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


def preparation_of(request: QueryRequest) -> tuple[str, int, Hashable]:
    """The kind of preparation of a request, how many names it has, and what of it is remembered."""
    pairs = tuple(map(tuple, request.references or ()))
    names = 2 * (len(pairs) + len(request.rejected))
    if not isinstance(request, PredictRequest):
        return "names", names + 2, None
    names += sum(len(some) for some in (request.heads, request.candidates) if isinstance(some, list))
    likeness = request.heads_of_type in ("open", "all")
    return (LIKENESS, names, (pairs, request.relation, request.heads_of_type)) if likeness else ("names", names, None)


class Service:
    """Whole requests: resolved, let in by their cost, answered part by part, so that others have their turns, and put
    together."""

    def __init__(
        self, linker: Linker, settings: ServerSettings, batcher: Batcher[Part, Answer], answers: Answers
    ) -> None:
        self.linker, self.settings, self.batcher = linker, settings, batcher
        self.resolver, self.estimates, self.preparing = Resolver(linker, settings), answers.estimates, preparing()
        self.admission = Admission(
            seconds=settings.seconds,
            queued=settings.queued,
            deadline=settings.deadline,
            requests=settings.waiting + len(batcher.lanes),
        )

    async def prepare(self, work: Callable[[], T], kind: str, names: int, key: Hashable = None) -> T:
        """Run what precedes an answer in a thread, when it is its turn; the request was let in for its cost."""

        def measured() -> T:
            begin = time.perf_counter()
            result = work()
            self.estimates.observe_preparation(kind, names, key, time.perf_counter() - begin)
            return result

        result: T = await self.preparing.ask(measured, self.estimates.preparation(kind, names, key))
        return result

    async def close(self) -> None:
        """Answer what can be answered soon, and no more."""
        until = time.monotonic() + GRACE
        self.admission.closed = True
        await self.preparing.close(until)
        await self.batcher.close(until)

    async def predict(self, request: PredictRequest, first: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """The answer to a request; `first` is run before names are resolved."""

        def resolve() -> tuple[RankingPart, int, list[str], int]:
            first()
            whole, in_all, notes = self.resolver.ranking(request)
            return whole, in_all, notes, self._size(whole)

        needed = preparation_of(request)
        with self.admission.enter(self.estimates.preparation(*needed)) as admitted:
            whole, in_all, notes, size = await self.prepare(resolve, *needed)
            rows = whole.k * (1 if whole.overall else len(whole.heads)) if request.explain else 0
            self.admission.extend(admitted, *self._cost(whole, size, rows))
            admitted.reads = whole.references.pairs
            parts = await self._rank(whole, size)
            trust = await self._trust(TrustPart(whole.references, whole.candidates), size)
            answer, pairs = await asyncio.to_thread(self._joined, whole, parts, trust, notes)
            if request.explain:
                for row, head, tail in zip(answer["predictions"], *pairs, strict=True):
                    row["reasons"] = (await self._explain(ExplanationPart(whole.references, head, tail))).to_dict()
        return {"heads": len(whole.heads), "heads_in_all": in_all, **answer}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        needed = preparation_of(request)
        with self.admission.enter(self.estimates.preparation(*needed)) as admitted:
            part = await self.prepare(functools.partial(self.resolver.explanation, request), *needed)
            reads = "explain", part.references.pairs
            shared = self.admission.is_read(reads)
            self.admission.extend(admitted, self.estimates.explanation(part.references, shared=shared))
            admitted.reads = reads
            return (await self._explain(part)).to_dict()

    async def ranked(self, whole: RankingPart, admitted: Admitted) -> tuple[RankedPairs, Trust | None]:
        """The ranked pairs of a request that was let in to be prepared, and the trust in them."""
        size = await asyncio.to_thread(self._size, whole)
        self.admission.extend(admitted, *self._cost(whole, size))
        admitted.reads = whole.references.pairs
        parts = await self._rank(whole, size)
        return RankedPairs.joined(parts), await self._trust(TrustPart(whole.references, whole.candidates), size)

    async def _rank(self, whole: RankingPart, size: int) -> list[RankedPairs]:
        """The ranked pairs of some heads after others, so that each turn is short; pairs are not settled yet."""
        if await asyncio.to_thread(self._between_pairs, whole):
            self._check_settled(whole)
            whole = replace(whole, heads_in_all=len(whole.heads))
        parts: list[RankedPairs] = []
        begin = 0
        while begin < len(whole.heads):
            head, new = self.estimates.head(size), self.estimates.references(whole.references)
            count = self.estimates.heads_in(self.settings.turn, size, TURN)
            some = whole.heads[begin : begin + count]
            begin += count
            part = await self.batcher.ask(replace(whole, heads=some), new + len(some) * head)
            assert isinstance(part, RankedPairs)
            parts.append(part)
        return parts

    def _size(self, whole: RankingPart) -> int:
        return self.estimates.size(whole.references, len(find_candidates_of(self.linker, whole)))

    def _cost(self, whole: RankingPart, size: int, explained: int = 0) -> tuple[float, str]:
        """Estimated seconds of a request, and how to split it; empty if it has one head and no reasons."""
        references = whole.references
        head = self.estimates.head(size)
        once = self.estimates.references(references) + self.estimates.trust(references, size)
        once *= not self.admission.is_read(references.pairs)
        reasons = self.estimates.explanation(references, explained) if explained else 0.0
        if len(whole.heads) < 2 and not explained:
            return once + head * len(whole.heads), ""
        most = max(1, int((self.settings.seconds - once) / max(head, 1e-9)))
        less = f"ask for at most {most:,} heads at a time"
        if whole.overall:
            less += ", with 'first' and 'count'"
        if reasons > self.settings.seconds / 2:
            less = "ask for reasons of single rows at /explain"
        return once + head * len(whole.heads) + reasons, f"{less}, or start the server with a higher --most-seconds"

    def _between_pairs(self, whole: RankingPart) -> bool:
        """Whether pairs of several heads rule out each other."""
        return self.linker.constraints(whole.query).between_pairs

    def _check_settled(self, whole: RankingPart) -> None:
        heads = len(whole.heads)
        if not whole.overall and heads * (heads + whole.k) > MOST_SETTLED:
            message = f"with these constraints all heads are answered together, and {heads:,} are too many"
            raise ApiError(422, "limit", f"{message}: ask for at most {int(MOST_SETTLED**0.5) - whole.k:,}", "heads")

    def _joined(
        self, whole: RankingPart, parts: list[RankedPairs], trust: Trust | None, notes: list[str]
    ) -> tuple[dict[str, Any], tuple[list[int], list[int]]]:
        """The answer to a request without reasons, and the heads and tails of its rows."""
        linker, query = self.linker, replace(whole.query, notes=tuple(notes))
        pairs = linker.settle(query, RankedPairs.joined(parts), trust)
        predictions = linker.predictions(query, pairs, trust)
        answer = {
            "predictions": predictions.to_dicts(),
            "notes": list(predictions.notes),
            "trust": predictions.trust and vars(predictions.trust),
            "tail_types": tail_types(linker, np.unique(pairs.tails)),
            "sets": list(map(vars, predictions.sets)),
        }
        return answer, (pairs.heads.tolist(), pairs.tails.tolist())

    async def _trust(self, part: TrustPart, size: int) -> Trust | None:
        if self.linker.calibration is None:
            return None
        answer = await self.batcher.ask(part, self.estimates.trust(part.references, size))
        assert answer is None or isinstance(answer, Trust)
        return answer

    async def _explain(self, part: ExplanationPart) -> Explanation:
        answer = await self.batcher.ask(part, self.estimates.explanation(part.references))
        assert isinstance(answer, Explanation)
        return answer


HEADS = 4  # of an example
READ = 100_000  # edges of an entity that are searched at most


def offer(names: Names, entity: int) -> dict[str, str]:
    """An entity, with a hint that tells it from others of its name."""
    return {**vars(entity_of(names.graph, entity)), "hint": names.hint(entity)}


def entities(linker: Linker, typed: str, limit: int) -> list[dict[str, str]]:
    """Entities that complete the typed text, best first."""
    names = linker.names
    return [offer(names, names.find(entity.id)) for entity in names.complete(typed, limit)]


def example(linker: Linker, number: int) -> dict[str, Any]:
    """References and query heads of a relation, another one for each number; those not trained on come first.

    A graph without tasks offers its own relations.
    """
    graph = linker.measured.graph
    offered = functools.partial(offer, Names(graph))
    tasks = [task for split in ("test", "dev", "train") for task in linker.measured.tasks.get(split, [])]
    names = [task.name for task in tasks if len(task.pairs) > linker.shots]
    if not tasks:
        sizes = np.bincount(graph.relation_ids, minlength=len(graph.relations))[: len(graph.relations)]
        names = [graph.relations[relation] for relation in np.flatnonzero(sizes > linker.shots).tolist()]
    if not names:
        raise FewlinkError(f"{linker.measured.name} has no relation with more than {linker.shots} pairs")
    relation = find_relation(linker.measured, names[number % len(names)])
    pairs = relation.pairs()
    references, rest = pairs[: linker.shots], pairs[linker.shots :]
    heads = list(dict.fromkeys(rest[:, 0].tolist()))[:HEADS]
    return {
        "relation": relation.name,
        "references": [[offered(entity) for entity in pair] for pair in references.tolist()],
        "heads": [offered(head) for head in heads],
    }


def entity(linker: Linker, name: str, text: str, first: int, count: int) -> dict[str, Any]:
    """An entity with `count` of its edges that have the text in the name of their relation or of their other end."""
    graph, number = linker.graph, linker.names.find(name)
    begin, end = graph.offsets[number : number + 2].tolist()
    at = slice(begin, min(end, begin + READ))
    edges = []
    for relation, other in zip(graph.relation_ids[at].tolist(), graph.tail_ids[at].tolist(), strict=True):
        inverse, forward = divmod(relation, len(graph.relations))
        edges.append((graph.relation_name(forward), bool(inverse), graph.name(other), graph.entities[other]))
    typed = text.strip().casefold()
    matching = [edge for edge in edges if typed in f"{edge[0]}\n{edge[2]}\n{edge[3]}".casefold()]
    rows = [
        {"relation": relation, "inverse": inverse, "other": {"id": other, "name": readable}}
        for relation, inverse, readable, other in matching[first : first + count]
    ]
    types = tail_types(linker, np.array([number]))
    facts = {**vars(entity_of(graph, number)), "types": next(iter(types.values()), [])}
    return {**facts, "edges_in_all": end - begin, "matching": len(matching), "edges": rows}


def tail_types(linker: Linker, entities: np.ndarray) -> dict[str, list[str]]:
    """The types of each of these entities (n,) by its id; empty if the graph has none."""
    types, ids = linker.graph.types, linker.graph.entities
    if types is None:
        return {}
    return {
        ids[one]: [types.names[kind] for kind in types.types[types.offsets[one] : types.offsets[one + 1]].tolist()]
        for one in entities.tolist()
    }
