"""What is counted once of a large graph and stored with it, so that no question reads all edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fewlink.core.progress import Advance, progress
from fewlink.graph.groups import Groups, spans
from fewlink.graph.vocabulary import check_ids, check_offsets, load_array

POPULAR = 20_000  # entities with most edges
MEMORY = 2 << 30  # bytes to use by default
EDGE_BYTES = 1 << 9  # of the memory for each edge that is read at once: its columns and their copies
MEMBER_BYTES = 1 << 12  # and for each entity whose relations are: it has many of them
MAX_PAIRS = 4_000_000_000  # of relations that an entity has, up to which all are counted
SAMPLE = 4_096  # entities of each relation that are counted otherwise, evenly spaced


@dataclass(frozen=True, eq=False)
class Counted:
    """What is counted of a graph with T triples and R relations.

    Shapes: `fans` (2T,) int32, the number of heads that the tail of each edge has with its relation; `sizes` (2R,)
    int64, the edges of each relation; `slot_offsets` (2R + 1,) int64 and `slot_members` (s,) int32, the entities that
    have each relation; `together` (2R, 2R) float32, how often an entity with one relation has another, rows adding up
    to 1; `popular` (p,) int32, the entities with most edges, sorted.
    """

    fans: np.ndarray
    sizes: np.ndarray
    slot_offsets: np.ndarray
    slot_members: np.ndarray
    together: np.ndarray
    popular: np.ndarray

    @property
    def slots(self) -> Groups:
        return Groups(self.slot_offsets, self.slot_members)

    @classmethod
    def open(cls, folder: Path, entities: int, relations: int, edges: int) -> Counted:
        """Open what `count` wrote. Raise ValueError if its arrays do not fit the graph."""
        found = cls(*(load_array(file_of(folder, field.name)) for field in dataclasses.fields(cls)))
        pairs = (2 * relations, 2 * relations)
        if len(found.fans) != edges or found.sizes.shape != pairs[:1] or found.together.shape != pairs:
            raise ValueError("what was counted does not fit the graph")
        check_offsets(found.slot_offsets, len(found.slot_members), "slots", 2 * relations + 1)
        check_ids(found.slot_members, entities, "slots")
        check_ids(found.popular, entities, "popular entities")
        return found


def file_of(folder: Path, name: str) -> Path:
    return folder / f"counted.{name}.npy"


class Edges(NamedTuple):
    """The edges of a graph, in the arrays of `Graph`, and its number of relations."""

    offsets: np.ndarray
    relation_ids: np.ndarray
    positions: np.ndarray
    relations: int


def count(graph: Edges, folder: Path, memory: int = MEMORY, max_pairs: int = MAX_PAIRS, sample: int = SAMPLE) -> None:
    """Count a graph, some edges at a time, and write the arrays of `Counted` to a folder, in about `memory` bytes.

    Which relations entities have together is counted of all entities up to `max_pairs` pairs of relations, and
    otherwise of a `sample` of the entities of each relation.
    """
    with progress("counting edges", 4.0) as advance:
        _count_fans(graph, folder, memory, advance)
        _count_relations(graph, folder, memory, max_pairs, sample, lambda done: advance(2 + done))


def _count_fans(graph: Edges, folder: Path, memory: int, advance: Advance) -> None:
    """Write the fans of edges, those of some triples at a time: places in memory are written in random order."""
    window = max(memory // 8, 1)  # two counts of 4 bytes for each triple
    edges = len(graph.relation_ids)
    fans = _new(file_of(folder, "fans"), edges, np.int32)
    triples = edges // 2
    windows = -(-triples // window)
    for number, begin in enumerate(range(0, triples, window)):
        runs = np.zeros((2, min(window, triples - begin)), np.int32)  # tails of the head, heads of the tail
        for part in _parts(graph, memory):
            lengths = np.diff(part.firsts, append=len(part.relations))
            here, inverse, place = _inside(part, begin, runs.shape[1], graph.relations)
            runs[inverse, place] = np.repeat(lengths, lengths)[here]
            advance((2 * number + part.last / edges) / windows)
        for part in _parts(graph, memory):
            here, inverse, place = _inside(part, begin, runs.shape[1], graph.relations)
            own = fans[part.first : part.last]
            own[here] = runs[1 - inverse, place]
            advance((2 * number + 1 + part.last / edges) / windows)


def _inside(part: _Part, begin: int, size: int, relations: int) -> tuple[np.ndarray | slice, np.ndarray, np.ndarray]:
    """The edges of a part whose triples are in a window, whether each is inverse, and its place in the window."""
    place = part.positions - begin
    inverse = (part.relations >= relations).astype(np.int8)
    here = (place >= 0) & (place < size)
    return (slice(None), inverse, place) if here.all() else (here, inverse[here], place[here])


def _count_relations(
    graph: Edges, folder: Path, memory: int, max_pairs: int, sample: int, advance: Callable[[float], None]
) -> None:
    """Write everything but the fans."""
    relations = graph.relations
    edges = len(graph.relation_ids)
    entities = len(graph.offsets) - 1
    scratch = [folder / f"scratch.{name}.npy" for name in ("relations", "ends")]
    sizes = np.zeros(2 * relations, np.int64)
    counts = np.zeros(2 * relations, np.int64)
    slot_ends = _new(scratch[1], entities + 1, np.int64)
    squares = 0.0
    for part in _parts(graph, memory):
        sizes += np.bincount(part.relations, minlength=len(sizes))
        counts += np.bincount(part.relations[part.firsts], minlength=len(counts))
        own = np.bincount(part.heads[part.firsts] - part.begin, minlength=part.end - part.begin)
        slot_ends[part.begin + 1 : part.end + 1] = int(slot_ends[part.begin]) + np.cumsum(own)
        squares += float((own.astype(np.float64) ** 2).sum())
        advance(part.last / edges / 2)
    np.save(file_of(folder, "sizes"), sizes)
    offsets = np.append(0, np.cumsum(counts))
    np.save(file_of(folder, "slot_offsets"), offsets)
    members = _new(file_of(folder, "slot_members"), int(offsets[-1]), np.int32)
    by_entity = _new(scratch[0], int(offsets[-1]), np.int32)
    free = offsets[:-1].copy()
    for part in _parts(graph, memory):
        of = part.relations[part.firsts]
        heads = part.heads[part.firsts]
        by_entity[int(slot_ends[part.begin]) : int(slot_ends[part.end])] = of
        order = np.argsort(of, kind="stable")
        ordered = of[order]
        here = np.bincount(ordered, minlength=len(free))
        within = np.arange(len(ordered)) - (np.cumsum(here) - here)[ordered]
        members[free[ordered] + within] = heads[order]
        free += here
        advance(0.5 + part.last / edges / 2)
    most = np.inf if squares <= max_pairs else sample
    members_at_once = max(memory // MEMBER_BYTES, 1)
    together = np.lib.format.open_memmap(file_of(folder, "together"), "w+", np.float32, (2 * relations, 2 * relations))
    for relation in range(2 * relations):
        own = members[offsets[relation] : offsets[relation + 1]]
        if len(own) > most:
            own = own[np.linspace(0, len(own) - 1, int(most)).astype(np.int64)]
        row = np.zeros(2 * relations)
        for at in range(0, len(own), members_at_once):
            some = own[at : at + members_at_once]
            row += np.bincount(by_entity[spans(slot_ends[some], slot_ends[some + 1])[0]], minlength=len(row))
        together[relation] = row / max(row.sum(), 1)
        advance(1 + relation / (2 * relations))
    np.save(file_of(folder, "popular"), most_popular(graph.offsets))
    del slot_ends, by_entity, members, together
    for path in scratch:
        path.unlink()


def most_popular(offsets: np.ndarray) -> np.ndarray:
    """The entities with most edges (p,) int32, sorted; of those with equally many, the first."""
    degrees = np.diff(offsets).astype(np.int32)
    if len(degrees) <= POPULAR:
        return np.arange(len(degrees), dtype=np.int32)
    least = np.partition(degrees, len(degrees) - POPULAR)[len(degrees) - POPULAR]
    above = np.flatnonzero(degrees > least)
    equal = np.flatnonzero(degrees == least)[: POPULAR - len(above)]
    return np.sort(np.concatenate([above, equal])).astype(np.int32)


@dataclass(frozen=True)
class _Part:
    """All edges, `first` to `last`, of the entities `begin` to `end`; `firsts` are those that begin a slot."""

    begin: int
    end: int
    first: int
    last: int
    heads: np.ndarray
    relations: np.ndarray
    positions: np.ndarray
    firsts: np.ndarray


def _parts(graph: Edges, memory: int) -> Iterator[_Part]:
    edges_at_once = max(memory // EDGE_BYTES, 1)
    begin = 0
    entities = len(graph.offsets) - 1
    while begin < entities:
        first = int(graph.offsets[begin])
        end = max(begin + 1, int(np.searchsorted(graph.offsets, first + edges_at_once, "right")) - 1)
        last = int(graph.offsets[end])
        heads = np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(graph.offsets[begin : end + 1]))
        relations = np.array(graph.relation_ids[first:last])
        begins = np.ones(len(heads), bool)
        begins[1:] = (heads[1:] != heads[:-1]) | (relations[1:] != relations[:-1])
        positions = np.array(graph.positions[first:last])
        yield _Part(begin, end, first, last, heads, relations, positions, np.flatnonzero(begins))
        begin = end


def _new(path: Path, size: int, kind: type) -> np.ndarray:
    """A new array (size,) of zeros in a file."""
    if not size:
        np.save(path, np.zeros(0, kind))
        return np.zeros(0, kind)
    return np.lib.format.open_memmap(path, "w+", kind, (size,))
