"""Find entities and types by name: exact lookup, completion, and suggestions for misspelt names."""

from __future__ import annotations

import bisect
import difflib
import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import FewlinkError, UnknownName, did_you_mean
from fewlink.core.threads import distinct
from fewlink.graph import Graph, Vocabulary

MAX_LISTED = 5  # ids in an error message
MAX_EDGES_READ = 1_000  # of an entity, to choose a neighbour from
SHORTLIST = 200  # names to choose suggestions from
MIN_SIMILARITY = 0.6  # of a suggestion, from 0 to 1
SORTED_BYTES = 16  # word starts are sorted by these; longer queries are then filtered byte by byte
MANY_WORDS = 100_000  # if more words match, the entities with most edges are searched first
POPULAR = 20_000  # entities with most edges
CHUNK_BYTES = 1 << 22  # processed together
NEWLINE = 10

_CONCEPT = re.compile(r"^concept:(?:[^\n]*:)?", re.MULTILINE)
_OUTER_SPACES = re.compile(r"^[^\S\n]+|[^\S\n]+$", re.MULTILINE)


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
        return NameIndex(readable(lines_of(graph.labels or graph.entities, len(graph.entities))), words=True)

    @functools.cached_property
    def _ids(self) -> NameIndex:
        return NameIndex(lines_of(self.graph.entities, len(self.graph.entities)), words=False)

    def find(self, name: str, what: str = "entity", field: str = "") -> int:
        """The entity with this id, or else with this readable name, or else with either, ignoring case.

        Raises if no entity or several match; the error lists entities to choose from. `what` describes the name in
        the message, and `field` says where the user wrote it.
        """
        if not isinstance(name, str):
            raise FewlinkError(f"{what} {name!r} is not a name: give an id or a readable name as text")
        matches = self.matches(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = "; ".join(self.described(matches[:MAX_LISTED])) + ("; …" if len(matches) > MAX_LISTED else "")
            message = f"{what} '{name}' is the name of {len(matches):,} entities: give the id of one: {listed}"
            raise UnknownName(message, name, field)
        similar = [self.quoted(entity) for entity in self.nearest(name)]
        if similar:
            hint = f"; did you mean {' or '.join(similar)}?"
        else:
            hint = ": no entity has this id or name, or a similar one"
        raise UnknownName(f"unknown {what} '{name}'{hint}", name, field)

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

    def id_of(self, name: str) -> str | None:
        """The id of the entity with this name or id; None if no entity or several match."""
        matches = self.matches(name)
        return self.graph.entities[matches[0]] if len(matches) == 1 else None

    def quoted(self, entity: int) -> str:
        """An entity for messages: its name in quotes and, if different, its id."""
        named = entity_of(self.graph, entity)
        return f"'{named.name}'" if named.id == named.name else f"'{named.name}' ({named.id})"

    def described(self, entities: Sequence[int]) -> list[str]:
        """Tell entities of the same name apart: each id with a type and, if possible, a neighbour of its own."""
        graph = self.graph
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
                relation, neighbour = (distinctive or edges_of[number])[0]
                inverse, forward = divmod(relation, len(graph.relations))
                verb, name = graph.relation_name(forward), graph.name(neighbour)
                facts.append(f"{name} {verb} it" if inverse else f"{verb} {name}")
            texts.append(f"{graph.entities[entity]} ({', '.join(facts)})" if facts else graph.entities[entity])
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
        if limit < 1:
            raise FewlinkError(f"limit must be at least 1, got {limit}")
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
        entities = np.sort(np.argsort(-self.graph.degrees, kind="stable")[:POPULAR])
        return entities, NameIndex("".join(f"{self._names[entity]}\n" for entity in entities.tolist()), words=True)

    def _add(self, matches: dict[int, None], group: np.ndarray, limit: int) -> None:
        """Add a group of entities, those with most edges first, until there are at least `limit`."""
        if len(matches) >= limit or not len(group):
            return
        group = distinct(group)
        degrees = self.graph.degrees[group]
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
        pattern = fold(text.strip())
        matches = [
            (not folded.startswith(pattern), -members, name)
            for name, folded, members in self._types
            if pattern in folded and members
        ]
        return [(name, -members) for _, members, name in sorted(matches)[:limit]]

    @functools.cached_property
    def _types(self) -> list[tuple[str, str, int]]:
        """Each type's name, its folded name, and its number of members."""
        table = self.graph.types
        if table is None:
            return []
        counts = np.bincount(table.types, minlength=len(table.names)).tolist()
        return [(name, fold(name), count) for name, count in zip(table.names, counts, strict=True)]

    def hint(self, entity: int) -> str:
        """A short description that tells an entity from its namesakes: its types and its best-known neighbour."""
        graph, hints = self.graph, self.types_of(entity)[:2]
        relations, tails = self._edges(entity)
        if len(tails):
            best = np.lexsort((-graph.degrees[tails], relations >= len(graph.relations)))[0]
            inverse, forward = divmod(int(relations[best]), len(graph.relations))
            arrow = ("←{}—" if inverse else "—{}→").format(graph.relation_name(forward))
            hints.append(f"{arrow} {graph.name(int(tails[best]))}")
        return " · ".join(hints)


def fold(text: str) -> str:
    """Text in lower case and in one Unicode normal form, so that equal-looking names compare equal."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def readable(text: str) -> str:
    """Each line as `Graph.name` writes it: without `concept:type:`, underscores and outer spaces."""
    return spaced(_CONCEPT.sub("", text) if "concept:" in text else text)


def spaced(text: str) -> str:
    """Each line with underscores replaced by spaces, and without outer spaces."""
    return _OUTER_SPACES.sub("", text.replace("_", " "))


def lines_of(names: Vocabulary, count: int) -> str:
    """The first `count` names, one per line; a space replaces each line break inside a name."""
    ends = np.asarray(names.ends[:count])
    text = np.array(names.text[: int(ends[-1]) if count else 0])
    text[text == NEWLINE] = 32
    lines = np.full(len(text) + count, NEWLINE, np.uint8)
    inside = np.ones(len(lines), bool)
    inside[ends + np.arange(count)] = False
    lines[inside] = text
    return lines.tobytes().decode()


class NameIndex:
    """A search index over folded names: by the beginning of a name or word, by substring, or by similarity.

    Shapes: `raw` holds all names as bytes, each preceded by a line break; `begins` (names,) are the offsets of names in
    `raw`; `starts` (words,) are the offsets of words, sorted by the text that follows.
    """

    def __init__(self, lines: str, *, words: bool) -> None:
        self.raw = b"\n" + fold(lines).encode()
        self.bytes = np.frombuffer(self.raw, np.uint8)
        self.begins = np.flatnonzero(self.bytes == NEWLINE)[:-1] + 1
        self.starts = self._sorted(self._words() if words else self.begins)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, name: int) -> str:
        begin = int(self.begins[name])
        return self.raw[begin : self.raw.index(b"\n", begin)].decode()

    def _words(self) -> np.ndarray:
        """The offsets of words; a name always starts with a word."""
        letter = np.zeros(256, bool)
        letter[[*range(48, 58), *range(97, 123), *range(128, 256)]] = True
        inside = letter[self.bytes]
        first = np.zeros(len(inside), bool)
        first[1:] = inside[1:] & ~inside[:-1]
        first[self.begins] = True
        return np.flatnonzero(first)

    def _sorted(self, starts: np.ndarray) -> np.ndarray:
        """Sort offsets by the bytes that follow them."""
        padded = np.append(self.bytes, np.zeros(SORTED_BYTES, np.uint8))
        keys = []
        for half in range(0, SORTED_BYTES, 8):
            key = np.zeros(len(starts), np.uint64)
            for place in range(half, half + 8):
                key = (key << np.uint64(8)) | padded[starts + place]
            keys.append(key)
        ordered: np.ndarray = starts[np.lexsort(keys[::-1])]
        return ordered.astype(np.int32) if len(self.raw) < 2**31 else ordered

    def starting(self, text: str) -> np.ndarray:
        """The offsets (n,) of words that start with this text, in sorted order."""
        pattern = text.encode(errors="surrogatepass")
        width = min(len(pattern), SORTED_BYTES)

        def key(place: int) -> bytes:
            start = int(self.starts[place])
            return self.raw[start : start + width]

        every = range(len(self.starts))
        low = bisect.bisect_left(every, pattern[:width], key=key)
        starts = self.starts[low : bisect.bisect_right(every, pattern[:width], lo=low, key=key)]
        for place in range(width, len(pattern)):
            starts = starts[starts + place < len(self.bytes)]
            starts = starts[self.bytes[starts + place] == pattern[place]]
        return starts

    def equal(self, text: str) -> np.ndarray:
        """The names that equal this text, in order."""
        starts = self.starting(f"{text}\n")
        return np.sort(self.owners(starts[self.starts_name(starts)]))

    def starts_name(self, starts: np.ndarray) -> np.ndarray:
        """Whether each word, by its offset, is the first of its name."""
        return np.asarray(self.bytes[starts - 1] == NEWLINE)

    def owners(self, offsets: np.ndarray) -> np.ndarray:
        """The name at each offset of `raw`."""
        return np.searchsorted(self.begins, offsets, "right") - 1

    def containing(self, text: str, limit: int) -> list[int]:
        """The first names that contain this text, at most `limit`."""
        names: list[int] = []
        pattern = text.encode(errors="surrogatepass")
        if not pattern:
            return names
        at = self.raw.find(pattern)
        while at >= 0 and len(names) < limit:
            names.append(int(self.owners(np.array(at))))
            at = self.raw.find(pattern, self.raw.index(b"\n", at))
        return names

    def similar(self, text: str, limit: int) -> np.ndarray:
        """The `limit` names that share the largest proportion of their byte trigrams with this text."""
        pattern = np.frombuffer(f"\n{text}\n".encode(errors="replace"), np.uint8)
        table = np.zeros(1 << 24, bool)
        table[_trigrams(pattern)] = True
        counts = np.zeros(len(self), np.int32)
        for begin in range(0, len(self.bytes), CHUNK_BYTES):
            hits = np.flatnonzero(table[_trigrams(self.bytes[begin : begin + CHUNK_BYTES + 2])]) + begin
            owners, times = np.unique(self.owners(hits + 1), return_counts=True)
            counts[owners[owners < len(self)]] += times[owners < len(self)].astype(np.int32)
        lengths = np.diff(self.begins, append=len(self.bytes))
        shares = 2 * counts / (lengths + len(pattern))
        best = np.argpartition(-shares, limit)[:limit] if limit < len(shares) else np.arange(len(shares))
        best = best[shares[best] > 0]
        return np.asarray(best[np.lexsort((best, -shares[best]))])


def _trigrams(text: np.ndarray) -> np.ndarray:
    """Every three consecutive bytes as one number."""
    wide = text.astype(np.int32)
    return (wide[:-2] << 16) | (wide[1:-1] << 8) | wide[2:]


def hop(relation: str, inverse: bool) -> str:
    """A relation as an arrow: —relation→, or ←relation— if it is inverse."""
    return f"←{short_relation(relation)}—" if inverse else f"—{short_relation(relation)}→"


def short_relation(name: str) -> str:
    """The last segment of a relation written as a path or IRI: "profession" for "/people/person/profession".

    A Freebase path that joins two with a dot gives the last segments of both: "awards won / award winner".
    """
    if not name.startswith(("/", "http://", "https://")):
        return name
    parts = name.split("./") if name.startswith("/") else [name]
    return " / ".join(re.split("[/#]", part.rstrip("/#"))[-1] for part in parts) or name
