"""Requests answered by a linker: names are resolved once, similar requests share one call, long ones take turns."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fewlink.base.errors import FewlinkError, UnknownName
from fewlink.data.candidates import by_similarity
from fewlink.prediction import Explanation, Linker
from fewlink.prediction.constraints import Constraints, check_kinds
from fewlink.prediction.names import Names, entity_of
from fewlink.prediction.predictions import RankedPairs
from fewlink.prediction.query import (
    References,
    distinct_heads,
    find_candidates,
    find_relation,
    is_open,
    no_candidate_note,
)
from fewlink.prediction.trust import Trust
from fewlink.web.batching import Batcher
from fewlink.web.middleware import ApiError
from fewlink.web.schema import ExplainRequest, PredictRequest, QueryRequest, ServerSettings

TURN = 50  # heads of a long request that are scored before other requests have their turn
MANY = 500  # rows above which an answer is written in a thread, not in the event loop


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

    def turns(self) -> Iterator[RankingPart]:
        if self.constraints:  # pairs of all heads rule out each other
            yield self
            return
        for begin in range(0, len(self.heads), TURN):
            yield replace(self, heads=self.heads[begin : begin + TURN])

    @property
    def key(self) -> Hashable:
        """What parts that share a call have in common."""
        heads = self.heads if self.overall or self.constraints else None
        return self.references, self.candidates, self.exclude_known, heads, self.constraints


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
    def key(self) -> Hashable:
        return self


Part = RankingPart | ExplanationPart | TrustPart
Answer = RankedPairs | Explanation | Trust | None
Member = tuple[int, Part]  # a part and its place in the batch


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


class Answers:
    """Answers a batch of parts; used by one thread at a time."""

    def __init__(self, linker: Linker, settings: ServerSettings) -> None:
        self.linker, self.settings = linker, settings
        self.calls = 0  # of the linker, to measure what batching saves

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
        if isinstance(first, ExplanationPart):
            return [self.linker.explain_ids(first.references, first.head, first.tail)] * len(parts)
        if isinstance(first, TrustPart):
            return [self._trust(first)] * len(parts)
        return self._rank([part for part in parts if isinstance(part, RankingPart)])

    def _rank(self, parts: Sequence[RankingPart]) -> list[Answer]:
        """One call for the heads of all parts and the largest k; each part gets its own heads and its own k."""
        first, linker = parts[0], self.linker
        candidates = find_candidates_of(linker, first)
        heads = np.array(list(dict.fromkeys(head for part in parts for head in part.heads)), np.int32)
        k = max(part.k for part in parts)
        trust = self._trust(first) if first.overall else None
        used = Constraints.of(first.constraints, linker.graph, first.references)
        known, overall = first.exclude_known, first.overall
        pairs = linker.rank(first.references, heads, k, candidates, known, overall, constraints=used, trust=trust)
        if first.overall:
            return [pairs.take(np.arange(min(part.k, len(pairs)))) for part in parts]
        begins = np.flatnonzero(np.diff(pairs.heads, prepend=-1))  # the rows of a head are consecutive
        rows = dict(zip(pairs.heads[begins].tolist(), np.split(np.arange(len(pairs)), begins[1:]), strict=False))
        none = np.zeros(0, np.int64)
        return [pairs.take(np.concatenate([rows.get(head, none)[: part.k] for head in part.heads])) for part in parts]

    def _trust(self, part: RankingPart | TrustPart) -> Trust | None:
        candidates = None if is_open(part.candidates) else find_candidates_of(self.linker, part)
        return self.linker.trust(part.references, candidates)


def find_candidates_of(linker: Linker, part: RankingPart | TrustPart) -> np.ndarray:
    if isinstance(part.candidates, tuple):
        return np.array(part.candidates, np.int32)
    return find_candidates(linker.benchmark, linker.names, part.candidates, part.references)


class Service:
    """Whole requests: resolved, answered part by part, so that a long one lets others pass, and put together."""

    def __init__(self, linker: Linker, settings: ServerSettings, batcher: Batcher[Part, Answer]) -> None:
        self.linker, self.batcher, self.resolver = linker, batcher, Resolver(linker, settings)

    async def predict(self, request: PredictRequest) -> dict[str, Any]:
        whole, in_all, notes = await asyncio.to_thread(self.resolver.ranking, request)
        answer = await self._predict(request, whole, notes)
        return {"heads": len(whole.heads), "heads_in_all": in_all, **answer}

    async def _predict(self, request: PredictRequest, whole: RankingPart, notes: list[str]) -> dict[str, Any]:
        parts = [await self.rank(part) for part in whole.turns()]
        part = TrustPart(whole.references, whole.candidates)
        trust = await self._trust(part) if self.linker.reads_trust else None
        pairs = self.linker.best_pairs(parts, whole.k, trust) if whole.overall else RankedPairs.joined(parts)
        used, heads = Constraints.of(whole.constraints, self.linker.graph, whole.references), np.array(whole.heads)
        if whole.constraints:
            notes += used.notes(heads, find_candidates_of(self.linker, whole))
        if not whole.overall:
            unranked = np.setdiff1d(used.open_heads(heads), pairs.heads)
            notes += [no_candidate_note(self.linker.names, head) for head in whole.heads if head in unranked]
        count = None if whole.overall else len(await asyncio.to_thread(find_candidates_of, self.linker, whole))
        table = functools.partial(self.linker.table, pairs, notes, trust=trust, candidates=count)
        predictions = await asyncio.to_thread(table) if len(pairs) > MANY else table()
        rows = predictions.to_dicts()
        if request.explain:
            for row, head, tail in zip(rows, pairs.heads.tolist(), pairs.tails.tolist(), strict=True):
                explanation = await self._explain(ExplanationPart(whole.references, head, tail))
                row["reasons"] = explanation.to_dict()
        said = predictions.trust and vars(predictions.trust)
        more = {
            "tail_types": tail_types(self.linker, np.unique(pairs.tails)),
            "sets": list(map(vars, predictions.sets)),
        }
        return {"predictions": rows, "notes": list(predictions.notes), "trust": said, **more}

    async def explain(self, request: ExplainRequest) -> dict[str, Any]:
        return (await self._explain(await asyncio.to_thread(self.resolver.explanation, request))).to_dict()

    async def rank(self, part: RankingPart) -> RankedPairs:
        answer = await self.batcher.ask(part)
        assert isinstance(answer, RankedPairs)
        return answer

    async def _trust(self, part: TrustPart) -> Trust | None:
        answer = await self.batcher.ask(part)
        assert answer is None or isinstance(answer, Trust)
        return answer

    async def _explain(self, part: ExplanationPart) -> Explanation:
        answer = await self.batcher.ask(part)
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
