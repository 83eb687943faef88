"""Requests as parts that a linker answers: names resolved, limits kept, heads of long requests taken in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fewlink.base.errors import UnknownName
from fewlink.prediction import Linker
from fewlink.prediction.query import WORDS, distinct_heads, distinct_references
from fewlink.web.errors import Refusal
from fewlink.web.schema import Asked, ExplainRequest, PredictRequest
from fewlink.web.settings import Settings

TURN = 50  # heads of a long request that are scored before others have their turn


@dataclass(frozen=True)
class Given:
    """What is known of a relation, by ids: references, or else the name of the relation whose first pairs they are."""

    references: tuple[tuple[str, str], ...] | None
    relation: str | None


@dataclass(frozen=True)
class Ranking:
    """The k best tails of each of these heads; with `pairs` the k best pairs of them all."""

    given: Given
    heads: tuple[str, ...]
    k: int
    candidates: str | tuple[str, ...] | None
    exclude_known: bool
    pairs: bool

    def turns(self) -> Iterator[Ranking]:
        for begin in range(0, len(self.heads), TURN):
            yield replace(self, heads=self.heads[begin : begin + TURN])


@dataclass(frozen=True)
class Why:
    """The reasons of one pair."""

    given: Given
    head: str
    tail: str


@dataclass(frozen=True)
class Resolved:
    part: Ranking
    notes: list[str] = field(default_factory=list)


class Resolver:
    """Turns names into ids; what asks too much, or for what is not there, is refused. Any thread may use it."""

    def __init__(self, linker: Linker, settings: Settings) -> None:
        self.names, self.graph, self.settings = linker.names, linker.graph, settings

    def ranking(self, asked: PredictRequest) -> Resolved:
        notes: list[str] = []
        self._check(asked)
        given = self._given(asked, notes)
        heads = self._heads(asked, notes)
        candidates = self._candidates(asked.candidates)
        part = Ranking(given, heads, asked.k, candidates, asked.exclude_known, asked.heads is None)
        return Resolved(part, notes)

    def why(self, asked: ExplainRequest) -> Why:
        given = self._given(asked, [])
        head, tail = (self.find(name, end, end) for name, end in ((asked.head, "head"), (asked.tail, "tail")))
        return Why(given, self._id(head), self._id(tail))

    def _id(self, entity: int) -> str:
        return self.graph.entities[entity]

    def find(self, name: str, what: str, where: str) -> int:
        """An entity; one that is not there is refused with those that it may be."""
        try:
            return self.names.find(name, what)
        except UnknownName as error:
            near = [self.names.match(entity) for entity in self.names.nearest(name)]
            suggestions = [{"id": match.id, "name": match.name} for match in near]
            raise Refusal(404, "unknown-name", str(error), where, suggestions) from None

    def _check(self, asked: PredictRequest) -> None:
        """Refuse what a request may not ask of this server, before any name is looked up."""
        most, heads = self.settings, len(asked.heads or ())
        if (asked.heads is None) == (asked.heads_of_type is None):
            raise Refusal(422, "refused", "say which heads: a list, or all of heads_of_type", "heads")
        if asked.k > most.k:
            raise Refusal(422, "limit", f"k is {asked.k:,}, and this server gives at most {most.k:,} tails", "k")
        rows = asked.k * (heads or 1)
        if rows > most.rows:
            raise Refusal(422, "limit", f"{rows:,} rows are more than {most.rows:,}: ask for fewer heads or tails", "k")
        if asked.explain and rows > most.explained:
            told = f"reasons of {rows:,} rows are more than {most.explained:,}: ask for fewer heads or tails"
            raise Refusal(422, "limit", f"{told}, or for reasons of single rows at /explain", "explain")

    def _given(self, asked: Asked, notes: list[str]) -> Given:
        if asked.references is None:
            if asked.relation is None:
                message = "no references: give pairs of a head and a tail, or a relation to take them from"
                raise Refusal(422, "refused", message, "references")
            return Given(None, asked.relation)
        found = []
        for place, pair in enumerate(asked.references):
            head, tail = (
                self.find(name, f"{end} of a reference", f"references.{place}.{number}")
                for number, (name, end) in enumerate(zip(pair, ("head", "tail"), strict=True))
            )
            found.append((head, tail))
        once = distinct_references(self.names, found, notes)
        return Given(tuple((self._id(head), self._id(tail)) for head, tail in once), asked.relation)

    def _heads(self, asked: PredictRequest, notes: list[str]) -> tuple[str, ...]:
        if asked.heads is None:
            entities, kind = self.graph.entities, asked.heads_of_type or ""
            members = range(len(entities)) if kind == "all" else self.names.members(kind).tolist()
            self._few(len(members), "heads_of_type")
            return tuple(entities[number] for number in members)
        self._few(len(asked.heads), "heads")
        found = [self.find(name, "head", f"heads.{place}") for place, name in enumerate(asked.heads)]
        return tuple(self._id(head) for head in distinct_heads(self.names, found, notes))

    def _few(self, count: int, where: str) -> None:
        if count > self.settings.heads:
            told = f"{count:,} heads are more than the {self.settings.heads:,} that this server looks at in one request"
            raise Refusal(422, "limit", f"{told}: ask about fewer, or start it with a higher --most-heads", where)

    def _candidates(self, choice: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
        if choice is None or choice == "open":
            return None
        if isinstance(choice, str):
            if choice not in WORDS:
                self.names.members(choice)
            return choice
        found = {self.find(name, "candidate", f"candidates.{place}") for place, name in enumerate(choice)}
        return tuple(sorted(map(self._id, found)))
