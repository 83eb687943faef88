"""Entities and types by what people call them: found, completed, and guessed at where the name is wrong."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fewlink.base.errors import FewlinkError, UnknownName
from fewlink.base.resolver import did_you_mean
from fewlink.graph import Graph
from fewlink.prediction.name_index import Folded, fold, lines_of, readable, spaced

LISTED = 5  # ids that an error names
SHORTLIST = 200  # names that a guess is chosen from
NEAR = 0.6  # likeness of a guess, from 0 to 1


class Match(NamedTuple):
    """An entity by its number, its id and its readable name."""

    entity: int
    id: str
    name: str


class Names:
    """The names of a graph's entities; what is needed to search them is made when it is first asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @functools.cached_property
    def _names(self) -> Folded:
        graph = self.graph
        return Folded(readable(lines_of(graph.labels or graph.entities, len(graph.entities))), words=True)

    @functools.cached_property
    def _ids(self) -> Folded:
        return Folded(lines_of(self.graph.entities, len(self.graph.entities)), words=False)

    @functools.cached_property
    def _degrees(self) -> np.ndarray:
        return self.graph.degrees

    def match(self, entity: int) -> Match:
        return Match(int(entity), self.graph.entities[entity], self.graph.name(entity))

    def find(self, name: str, what: str = "entity") -> int:
        """The entity of this id; else of this readable name; else of either without regard to case.

        A name that several entities have, and one that none has, is an error that names entities to choose from.
        """
        if not isinstance(name, str):
            raise FewlinkError(f"{what} {name!r} is not a name: give an id or a readable name as text")
        exact = self.graph.entities.find(name)
        if exact is not None:
            return exact
        folded = fold(name.replace("\n", " "))
        typed = spaced(folded)
        named = self._names.equal(typed) if typed else np.zeros(0, np.int64)
        exactly = [int(e) for e in named if self.graph.name(int(e)) == name]
        found = exactly or np.union1d(named, self._ids.equal(folded)).tolist()
        if len(found) == 1:
            return int(found[0])
        if found:
            some = ", ".join(self.graph.entities[e] for e in found[:LISTED]) + (", …" if len(found) > LISTED else "")
            raise UnknownName(f"{what} '{name}' is the name of {len(found):,} entities: give the id of one ({some})")
        near = [self.told(e) for e in self.nearest(name)]
        raise UnknownName(f"unknown {what} '{name}'" + (f"; did you mean {' or '.join(near)}?" if near else ""))

    def find_all(self, names: Iterable[str], what: str = "entity") -> list[int]:
        """The entities of these names, in their order."""
        return [self.find(name, what) for name in names]

    def told(self, entity: int) -> str:
        """An entity as a message names it: its name and, where that is another, its id."""
        match = self.match(entity)
        return f"'{match.name}'" if match.id == match.name else f"'{match.name}' ({match.id})"

    def complete(self, text: str, limit: int = 10) -> list[Match]:
        """Entities to offer for what has been typed so far, at most `limit`.

        First those that are called so, then those whose name begins so, those with a word that begins so, those whose
        id begins so, and those that have it anywhere; of each kind first the ones with most edges.
        """
        if limit < 1:
            raise FewlinkError(f"limit must be at least 1, got {limit}")
        folded = fold(text.replace("\n", " "))
        typed = spaced(folded)
        found: dict[int, None] = {}
        if typed:
            starts = self._names.beginning(typed)
            first = self._names.first(starts)
            for group in (self._names.equal(typed), *map(self._names.owners, (starts[first], starts[~first]))):
                self._offer(found, group, limit)
        if folded.strip() and len(found) < limit:
            self._offer(found, self._ids.owners(self._ids.beginning(folded.strip())), limit)
        if typed and len(found) < limit:
            found.update(dict.fromkeys(self._names.holding(typed, 2 * limit)))
        return [self.match(entity) for entity in list(found)[:limit]]

    def _offer(self, found: dict[int, None], group: np.ndarray, limit: int) -> None:
        """Add entities with most edges until there are `limit`."""
        if len(found) >= limit or not len(group):
            return
        group = np.unique(group)
        worth = self._degrees[group]
        most = limit + len(found)
        best = np.argpartition(-worth, most)[:most] if most < len(group) else np.arange(len(group))
        found.update(dict.fromkeys(group[best[np.lexsort((group[best], -worth[best]))]].tolist()))

    def nearest(self, name: str, count: int = 3) -> list[int]:
        """The entities whose name or id is most like this one, best first; none where nothing is like it."""
        folded = fold(name.replace("\n", " "))
        likeness: dict[int, float] = {}
        for index, text in ((self._names, spaced(folded)), (self._ids, folded)):
            if not text:
                continue
            matcher = difflib.SequenceMatcher()
            matcher.set_seq2(text)
            for entity in index.alike(text, SHORTLIST).tolist():
                matcher.set_seq1(index[entity])
                if matcher.quick_ratio() >= NEAR and (ratio := matcher.ratio()) >= NEAR:
                    likeness[entity] = max(ratio, likeness.get(entity, 0.0))
        return sorted(likeness, key=lambda entity: (-likeness[entity], entity))[:count]

    def members(self, kind: str) -> np.ndarray:
        """The entities of a type, by its name, (n,) int32, sorted; never none."""
        types = self.graph.types
        if types is None:
            raise FewlinkError(f"the graph has no types, so none is called '{kind}': list the entities instead")
        number = types.names.find(kind)
        if number is None:
            alike = [i for i, name in enumerate(types.names) if fold(name) == fold(kind)]
            if len(alike) != 1:
                raise UnknownName(f"unknown type '{kind}'{did_you_mean(kind, types.names)}")
            number = alike[0]
        found = types.members(np.array([number])).astype(np.int32)
        if not len(found):
            raise FewlinkError(f"type '{types.names[number]}' has no members in this graph: choose another type")
        return found

    def has_type(self, kind: str) -> bool:
        """Whether a type is called exactly so."""
        return self.graph.types is not None and self.graph.types.names.find(kind) is not None
