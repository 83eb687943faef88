"""Names: find entities and types by name, read the names in files and options, and write relations as arrows."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from fewlink.core.errors import FewlinkError, InputError, UnknownName, did_you_mean, read_file
from fewlink.core.threads import distinct
from fewlink.core.words import plural
from fewlink.graph import Graph
from fewlink.graph.name_index import NameIndex, fold, lines_of, readable, spaced

MAX_LISTED = 5  # ids in an error message
MAX_NAMESAKES = 20  # that an entity is told apart from
MAX_EDGES_READ = 1_000  # of an entity, to choose a neighbour from
SHORTLIST = 200  # names to choose suggestions from
MIN_SIMILARITY = 0.6  # of a suggestion, from 0 to 1
MANY_WORDS = 100_000  # if more words match, the entities with most edges are searched first


ARROW = "=>"


class NameInFile(str):
    """A name that a user wrote in a file, and where: `where` is the file and the line."""

    where: str

    @classmethod
    def of(cls, name: str, path: Path, line: int) -> Self:
        found = cls(name)
        found.where = f"{path}:{line}"
        return found


@dataclass(frozen=True)
class Entity:
    """The id and the readable name of an entity."""

    id: str
    name: str


def entity_of(graph: Graph, number: int) -> Entity:
    """The id and the readable name of an entity of a graph."""
    return Entity(graph.entities[number], graph.name(number))


class Names:
    """Finds the entities and types of a graph by name; search indexes are built on first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @functools.cached_property
    def _names(self) -> NameIndex:
        graph = self.graph
        if graph.index is not None:
            return graph.index[0]
        return NameIndex.of(readable(lines_of(graph.labels or graph.entities, 0, len(graph.entities))), words=True)

    @functools.cached_property
    def _ids(self) -> NameIndex:
        if self.graph.index is not None:
            return self.graph.index[1]
        return NameIndex.of(lines_of(self.graph.entities, 0, len(self.graph.entities)), words=False)

    def find(self, name: str, what: str = "entity", field: str = "") -> int:
        """The entity with this id, or else with this readable name, or else with either, ignoring case.

        Raises if no entity or several match; the error lists entities to choose from. `what` describes the name in
        the message, and `field` says where the user wrote it.
        """
        if not isinstance(name, str):
            raise FewlinkError(f"{what} {name!r} is not a name: give an id or a readable name as text")
        where = f"{name.where}: " if isinstance(name, NameInFile) else ""
        matches = self.matches(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = "; ".join(self.described(matches[:MAX_LISTED])) + ("; …" if len(matches) > MAX_LISTED else "")
            message = f"{where}{what} '{name}' is the name of {len(matches):,} entities: give the id of one: {listed}"
            raise UnknownName(message, name, field)
        similar = [self.quoted(entity) for entity in self.nearest(name)]
        if similar:
            hint = f"; did you mean {' or '.join(similar)}?"
        else:
            hint = ": no entity has this id or name, or a similar one"
        raise UnknownName(f"{where}unknown {what} '{name}'{hint}", name, field)

    def matches(self, name: str) -> list[int]:
        """The entities that match a name, by the rules of `find`: none, one or several."""
        exact = self.graph.entities.find(name)
        if exact is not None:
            return [exact]
        either = self.with_either(name)
        return [entity for entity in either if self.graph.name(entity) == name] or either

    def with_either(self, text: str) -> list[int]:
        """The entities with this readable name or id, ignoring case."""
        folded = fold(text.replace("\n", " "))
        typed = spaced(folded)
        named = self._names.equal(typed) if typed else np.zeros(0, np.int64)
        return [int(entity) for entity in np.union1d(named, self._ids.equal(folded))]

    def namesakes(self, entity: int) -> list[int]:
        """The other entities with the same readable name, ignoring case: a few of them."""
        named = spaced(fold(self.graph.name(entity).replace("\n", " ")))
        found = self._names.equal(named) if named else np.zeros(0, np.int64)
        return [int(other) for other in found[: MAX_NAMESAKES + 1] if other != entity][:MAX_NAMESAKES]

    def with_shared_names(self, entities: Iterable[int]) -> set[int]:
        """The entities among these that share their readable name with another one; each name is looked up once."""
        by_name: dict[str, list[int]] = {}
        for entity in set(entities):
            by_name.setdefault(self.graph.name(entity), []).append(entity)
        shared = set[int]()
        for name, own in by_name.items():
            if len(own) > 1 or any(self.graph.name(other) == name for other in self.namesakes(own[0])):
                shared.update(own)
        return shared

    def remarks(self, names: Iterable[str], what: str = "entity") -> list[str]:
        """Remarks on the first few names that are the id of an entity and the readable name of others."""
        remarks: list[str] = []
        for name in dict.fromkeys(names):
            entity = self.graph.entities.find(name) if self.graph.labels and len(remarks) < MAX_LISTED else None
            if entity is None:
                continue
            others = [other for other in self.with_either(name) if self.graph.name(other) == name and other != entity]
            if others:
                listed = "; ".join(self.described(others[:MAX_LISTED])) + ("; …" if len(others) > MAX_LISTED else "")
                which = "another entity has" if len(others) == 1 else f"{len(others):,} other entities have"
                remark = f"the {what} '{name}' is read as an id; {which} this name; to ask for that, give its id"
                remarks.append(f"{remark}: {listed}")
        return remarks

    def id_of(self, name: str) -> str | None:
        """The id of the entity with this name or id; None if no entity or several match."""
        matches = self.matches(name)
        return self.graph.entities[matches[0]] if len(matches) == 1 else None

    def quoted(self, entity: int) -> str:
        """An entity for messages: its name in quotes and, if different, its id."""
        named = entity_of(self.graph, entity)
        return f"'{named.name}'" if named.id == named.name else f"'{named.name}' ({named.id})"

    def listed(self, entities: np.ndarray) -> str:
        """The first of these entities for messages."""
        return ", ".join(self.quoted(entity) for entity in entities[:3].tolist()) + (", …" if len(entities) > 3 else "")

    def described(self, entities: Sequence[int]) -> list[str]:
        """Tell entities of the same name apart: each id with a type and, if possible, a neighbour of its own."""
        edges_of = []
        for entity in entities:
            relations, tails = self._edges(entity)
            edges_of.append(list(dict.fromkeys(zip(relations.tolist(), tails.tolist(), strict=True))))
        texts = []
        for number, entity in enumerate(entities):
            others = {edge for i, edges in enumerate(edges_of) if i != number for edge in edges}
            facts = self.types_of(entity)[:1]
            if edges_of[number]:
                distinctive = [edge for edge in edges_of[number] if edge not in others]
                facts.append(link(self.graph, *(distinctive or edges_of[number])[0]))
            texts.append(self.graph.entities[entity] + (f" ({' · '.join(facts)})" if facts else ""))
        return texts

    def _edges(self, entity: int) -> tuple[np.ndarray, np.ndarray]:
        """The relations and neighbours of the first edges of an entity: (n,) each."""
        first = int(self.graph.offsets[entity])
        at = slice(first, min(first + MAX_EDGES_READ, int(self.graph.offsets[entity + 1])))
        return self.graph.relation_ids[at], self.graph.tail_ids[at]

    def types_of(self, entity: int) -> list[str]:
        """The names of the types of an entity."""
        types = self.graph.types
        return [types.names[int(kind)] for kind in types.of_entities(np.array([entity]))] if types else []

    def complete(self, text: str, limit: int = 10) -> list[Entity]:
        """At most `limit` entities whose name or id completes the text.

        First the names equal to the text, then names that start with it, names with a word that starts with it, ids
        that start with it, and names that contain it; within each group, entities with more edges come first.
        """
        folded = fold(text.replace("\n", " "))
        typed = spaced(folded)
        matches: dict[int, None] = {}
        if typed:
            self._add(matches, self._names.equal(typed), limit)
            for first in (True, False):
                if len(matches) < limit:
                    self._add(matches, self._starting(typed, first, limit + len(matches)), limit)
        if folded.strip() and len(matches) < limit:
            self._add(matches, self._ids.owners(self._ids.starting(folded.strip())), limit)
        if typed and len(matches) < limit:
            matches.update(dict.fromkeys(self._names.containing(typed, 2 * limit)))
        return [entity_of(self.graph, entity) for entity in list(matches)[:limit]]

    def _starting(self, text: str, first: bool, enough: int) -> np.ndarray:
        """The entities whose name has a word that starts with the text: the `first` word, or a later one.

        If very many words match, the result is limited to popular entities, provided that these are `enough`.
        """
        starts = self._names.starting(text)
        if len(starts) > MANY_WORDS:
            popular, names = self._popular
            popular_starts = names.starting(text)
            owners = np.unique(names.owners(popular_starts[names.starts_name(popular_starts) == first]))
            if len(owners) >= enough:
                return np.asarray(popular[owners])
        return self._names.owners(starts[self._names.starts_name(starts) == first])

    @functools.cached_property
    def _popular(self) -> tuple[np.ndarray, NameIndex]:
        """The entities with most edges (n,), sorted by id, and their names."""
        entities = self.graph.popular
        return entities, NameIndex.of("".join(f"{self._names[entity]}\n" for entity in entities.tolist()), words=True)

    def _add(self, matches: dict[int, None], group: np.ndarray, limit: int) -> None:
        """Add a group of entities, those with most edges first, until there are at least `limit`."""
        if len(matches) >= limit or not len(group):
            return
        group = distinct(group)
        degrees = self.graph.degrees_of(group)
        count = limit + len(matches)  # some may be matches already
        best = np.argpartition(-degrees, count)[:count] if count < len(group) else np.arange(len(group))
        matches.update(dict.fromkeys(group[best[np.lexsort((group[best], -degrees[best]))]].tolist()))

    def nearest(self, name: str, count: int = 3) -> list[int]:
        """At most `count` entities with a similar name or id, the most similar first."""
        folded = fold(name.replace("\n", " "))
        similarity: dict[int, float] = {}
        for index, text in ((self._names, spaced(folded)), (self._ids, folded)):
            if not text:
                continue
            matcher = difflib.SequenceMatcher()
            matcher.set_seq2(text)
            for entity in index.similar(text, SHORTLIST).tolist():
                matcher.set_seq1(index[entity])
                if matcher.quick_ratio() < MIN_SIMILARITY:  # an upper bound
                    continue
                ratio = matcher.ratio()
                if ratio >= MIN_SIMILARITY:
                    similarity[entity] = max(ratio, similarity.get(entity, 0.0))
        return sorted(similarity, key=lambda entity: (-similarity[entity], entity))[:count]

    def members(self, kind: str, field: str = "") -> np.ndarray:
        """The entities (n,) int32 of a type, sorted by id; raises if the type is unknown or empty."""
        types = self.graph.types
        if types is None:
            raise FewlinkError(f"the graph has no types, so '{kind}' is not one: list the entities instead")
        number = types.names.find(kind)
        if number is None:
            matches = [i for i, name in enumerate(types.names) if fold(name) == fold(kind)]
            if len(matches) != 1:
                raise UnknownName(f"unknown type '{kind}'{did_you_mean(kind, types.names)}", kind, field)
            number = matches[0]
        members = types.members(np.array([number])).astype(np.int32)
        if not len(members):
            raise FewlinkError(f"type '{types.names[number]}' has no members in this graph: choose another type")
        return members

    def has_type(self, kind: str) -> bool:
        """Whether a type has exactly this name."""
        return self.graph.types is not None and self.graph.types.names.find(kind) is not None

    def complete_types(self, text: str, limit: int = 10) -> list[tuple[str, int]]:
        """At most `limit` types that have members and whose name contains the text, with the number of members.

        Names that start with the text come first; within each group, types with more members.
        """
        table = self.graph.types
        if table is None:
            return []
        pattern = fold(text.strip())
        counts = np.bincount(table.types, minlength=len(table.names)).tolist()
        matches = [
            (not fold(name).startswith(pattern), -count, name)
            for name, count in zip(table.names, counts, strict=True)
            if count and pattern in fold(name)
        ]
        return [(name, -count) for _, count, name in sorted(matches)[:limit]]

    def hint(self, entity: int) -> str:
        """A short description that tells an entity from its namesakes: its types and its best-known neighbour.

        A neighbour in a relation that its namesakes do not share comes before those that they share.
        """
        graph = self.graph
        hints = self.types_of(entity)[:2]
        edges = np.stack(self._edges(entity), axis=1)
        if len(edges):
            others = [np.stack(self._edges(other), axis=1) for other in self.namesakes(entity)]
            shared = {tuple(edge) for each in others for edge in each.tolist()}
            alike = np.array([tuple(edge) in shared for edge in edges.tolist()])
            relations, tails = edges.T
            best = np.lexsort((-graph.degrees_of(tails), relations >= len(graph.relations), alike))[0]
            hints.append(link(self.graph, int(relations[best]), int(tails[best])))
        return " · ".join(hints)


def link(graph: Graph, relation: int, neighbour: int) -> str:
    """An edge as an arrow and the neighbour: —lives in→ Oslo."""
    inverse, forward = divmod(relation, len(graph.relations))
    return f"{arrow(graph.relation_name(forward), not inverse)} {graph.name(neighbour)}"


def arrow(relation: str, forward: bool) -> str:
    """A relation as an arrow: —relation→, or ←relation— against its direction; a bare arrow without a name."""
    name = short_relation(relation)
    if not name:
        return "→" if forward else "←"
    return f"—{name}→" if forward else f"←{name}—"


def without_kinds(relation: str, heads: Iterable[str], tails: Iterable[str]) -> str:
    """A relation without the kinds of its ends: "uses" for "group uses malware" between a group and malware."""
    words = relation.split()
    lower = [word.lower() for word in words]
    of_heads = [kind.lower().split() for kind in heads]
    of_tails = [kind.lower().split() for kind in tails]
    begin = max((len(kind) for kind in of_heads if lower[: len(kind)] == kind), default=0)
    end = max((len(kind) for kind in of_tails if kind and lower[-len(kind) :] == kind), default=0)
    inner = words[begin : len(words) - end]
    return " ".join(inner) if inner and begin and end else relation


def short_relation(name: str) -> str:
    """The last segment of a relation written as a path or IRI: "profession" for "/people/person/profession".

    A Freebase path that joins two with a dot gives the last segments of both: "awards won / award winner".
    """
    if not name.startswith(("/", "http://", "https://")):
        return name
    parts = name.split("./") if name.startswith("/") else [name]
    return " / ".join(re.split("[/#]", part.rstrip("/#"))[-1] for part in parts) or name


def read_names(path: Path) -> list[str]:
    """Read the names in a file, one per line, as `NameInFile`; empty lines and spaces around names are ignored."""
    lines = [(number, line.strip()) for number, line in _lines(path)]
    names: list[str] = [NameInFile.of(text, path, number) for number, text in lines if text]
    if not names:
        raise InputError(path, "has no names: write one name per line")
    return names


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Read the pairs in a file, `head<TAB>tail` per line, as pairs of `NameInFile`; empty lines are ignored."""
    pairs: list[tuple[str, str]] = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise InputError(path, f"has {plural(len(parts), 'column')} instead of two: write head<TAB>tail", number)
        head, tail = (NameInFile.of(part, path, number) for part in parts)
        pairs.append((head, tail))
    if not pairs:
        raise InputError(path, "has no pairs: write head<TAB>tail on each line")
    return pairs


def parse_pair(text: str) -> tuple[str, str]:
    """Parse `head => tail`; a tab may replace the arrow, for names that contain one."""
    parts = [part.strip() for part in text.split("\t" if "\t" in text else ARROW)]
    if len(parts) != 2 or not all(parts):
        raise FewlinkError(
            f"'{text}' is not a pair: write 'HEAD => TAIL', or HEAD<TAB>TAIL if a name contains an arrow"
        )
    return parts[0], parts[1]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    yield from enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
