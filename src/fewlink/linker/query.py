"""A query as arrays of ids, from names in code, files and commands; and how the graph joins two entities."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fewlink.core.errors import FewlinkError, InputError, UnknownName, did_you_mean, read_file
from fewlink.core.threads import distinct
from fewlink.data import Benchmark, Task, candidates_of
from fewlink.data.candidates import likely_tails
from fewlink.graph import Graph
from fewlink.linker.names import Names, fold

WORDS = ("open", "full", "all")  # candidates that are not the name of a type
ARROW = "=>"
FAR = 6  # hops within which two entities count as joined
TRIED = 2_000  # entities that the search for a path without a repeated entity visits
TOO_MANY = 1 << 22  # edges of a neighbourhood that is not searched
Pairs = Iterable[tuple[str, str]]
Choice = str | Iterable[str] | Callable[[str], bool] | None


@dataclass(frozen=True)
class Relation:
    """A relation of the benchmark by name: a task, or a relation of the graph (`number`); read from tail to head if
    `inverse`."""

    name: str
    graph: Graph = field(compare=False)
    task: Task | None = field(compare=False)
    number: int = -1
    trained: bool = False
    inverse: bool = False

    def inverted(self) -> Relation:
        return dataclasses.replace(self, inverse=not self.inverse)

    def pairs(self) -> np.ndarray:
        """Its pairs (n, 2), in the order of the benchmark or of the graph's file."""
        return self._pairs()[:, ::-1] if self.inverse else self._pairs()

    def _pairs(self) -> np.ndarray:
        if self.task is not None:
            return self.task.pairs
        at = np.flatnonzero(self.graph.relation_ids == self.number)
        at = at[np.argsort(self.graph.positions[at], kind="stable")]
        return np.stack([self.graph.head_ids[at], self.graph.tail_ids[at]], 1)

    def tails(self, head: int) -> np.ndarray:
        """The known tails of a head (m,)."""
        if self.task is not None:
            known = self._known_heads if self.inverse else self.task.known_tails
            return known.get(head, np.zeros(0, np.int32))
        number = self.number + len(self.graph.relations) if self.inverse else self.number
        edges = slice(int(self.graph.offsets[head]), int(self.graph.offsets[head + 1]))
        return np.asarray(self.graph.tail_ids[edges][self.graph.relation_ids[edges] == number])

    @functools.cached_property
    def _known_heads(self) -> dict[int, np.ndarray]:
        """The known heads of each tail of a task relation."""
        heads: dict[int, list[int]] = {}
        for head, tails in (self.task.known_tails if self.task else {}).items():
            for tail in tails.tolist():
                heads.setdefault(tail, []).append(head)
        return {tail: np.array(of, np.int32) for tail, of in heads.items()}


@dataclass(frozen=True)
class References:
    """The references of a query as pairs of ids, and the relation if the query names one; hashable.

    `rejected` are pairs that are known to be wrong: what resembles them ranks lower, and they are not ranked. If
    `inverse`, heads are asked for: all pairs and the relation are read from tail to head.
    """

    pairs: tuple[tuple[int, int], ...]
    relation: Relation | None = None
    rejected: tuple[tuple[int, int], ...] = ()
    inverse: bool = False

    def inverted(self) -> References:
        """The same references read the other way round."""
        pairs, rejected = (tuple((tail, head) for head, tail in own) for own in (self.pairs, self.rejected))
        return References(pairs, self.relation.inverted() if self.relation else None, rejected, not self.inverse)

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """The pairs as an array (K, 2)."""
        return np.array(self.pairs, np.int32)

    @functools.cached_property
    def rejected_ids(self) -> np.ndarray:
        """The rejected pairs as an array (m, 2)."""
        return np.array(self.rejected, np.int32).reshape(-1, 2)

    def without(self, rejected: Pairs, names: Names, notes: list[str]) -> References:
        """The references with rejected pairs, given by name; raises if a pair is both, and notes that they are used."""
        distinct = tuple(dict.fromkeys(find_pairs(names, rejected, "rejected pair")))
        for head, tail in distinct:
            if (head, tail) in self.pairs:
                pair = f"{names.quoted(head)} → {names.quoted(tail)}"
                raise FewlinkError(f"{pair} is a reference and a rejected pair: leave out one of them")
        if distinct:
            count = "1 rejected pair was" if len(distinct) == 1 else f"{len(distinct):,} rejected pairs were"
            notes.append(f"{count} used: pairs that resemble {'it' if len(distinct) == 1 else 'them'} rank lower")
        return dataclasses.replace(self, rejected=distinct)

    def may_be_tails(self, head: int, candidates: np.ndarray) -> np.ndarray:
        """Which candidates (c,) were not rejected for this head."""
        return ~np.isin(candidates, self.rejected_ids[self.rejected_ids[:, 0] == head, 1])

    def known_tails(self, head: int) -> np.ndarray:
        """The known tails (m,) of a head: those of the references and those of the relation."""
        tails = self.ids[self.ids[:, 0] == head, 1]
        return tails if self.relation is None else np.concatenate([tails, self.relation.tails(head)])


def find_relation(benchmark: Benchmark, name: str) -> Relation:
    """A task relation, or one of the graph, by its id or readable name."""
    graph, tasks = benchmark.graph, {t.name: (split, t) for split, ts in benchmark.tasks.items() for t in ts}
    if name in tasks:
        split, task = tasks[name]
        return Relation(name, graph, task, trained=split == "train")
    number = graph.relations.find(name)
    if number is None:
        matches = [i for i in range(len(graph.relations)) if fold(graph.relation_name(i)) == fold(name)]
        if len(matches) != 1:
            hint = did_you_mean(name, [*tasks, *graph.relations])
            raise UnknownName(f"unknown relation '{name}'{hint or f': {benchmark.name} has no such relation'}")
        number = matches[0]
    return Relation(graph.relations[number], graph, None, number)


def find_pairs(names: Names, pairs: Pairs, what: str = "reference") -> list[tuple[int, int]]:
    """References, or rejected pairs, by name as pairs of ids."""
    if isinstance(pairs, str):
        raise FewlinkError(f"{what}s are pairs of a head and a tail, not the text {pairs!r}")
    ids = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise FewlinkError(f"{what} {pair!r} is not a pair of a head and a tail")
        head, tail = pair
        ids.append((names.find(head, f"head of a {what}"), names.find(tail, f"tail of a {what}")))
    if not ids and what == "reference":
        raise FewlinkError("no references: give at least one pair of a head and a tail that the relation holds for")
    return ids


def distinct_pairs(names: Names, pairs: Iterable[tuple[int, int]], notes: list[str]) -> tuple[tuple[int, int], ...]:
    """References without duplicates, in their order; each duplicate adds a note."""
    distinct: dict[tuple[int, int], None] = {}
    for head, tail in pairs:
        if (head, tail) in distinct:
            notes.append(f"the reference {names.quoted(head)} → {names.quoted(tail)} is given twice and counts once")
        distinct[head, tail] = None
    return tuple(distinct)


def relations_of(graph: Graph, pairs: Iterable[tuple[int, int]]) -> list[str]:
    """The relations of the graph that hold for all of these pairs."""
    common: set[int] | None = None
    for head, tail in pairs:
        edges = slice(int(graph.offsets[head]), int(graph.offsets[head + 1]))
        own = set(graph.relation_ids[edges][graph.tail_ids[edges] == tail].tolist())
        common = own if common is None else common & own
    return [graph.relations[relation] for relation in sorted(common or ()) if relation < len(graph.relations)]


def direct_relations(graph: Graph, head: int, tail: int) -> list[int]:
    """The relations, inverse ones included, of the edges from head to tail."""
    edges = slice(int(graph.offsets[head]), int(graph.offsets[head + 1]))
    relations: list[int] = np.unique(graph.relation_ids[edges][graph.tail_ids[edges] == tail]).tolist()
    return [] if head == tail else relations


def simple_path(graph: Graph, head: int, relations: Sequence[int], tail: int) -> list[int]:
    """The entities of a path from head to tail along these relations, inverse ones included, none of them twice.

    Of several paths it takes one over entities with few edges, which tell more. Empty if there is none, or if none is
    found among the first entities tried.
    """
    if head == tail:
        return []
    reached = [np.array([head])]
    for place, relation in enumerate(relations):
        at, _ = graph.edges_of(reached[-1])
        ends = np.unique(graph.tail_ids[at[graph.relation_ids[at] == relation]])
        last = place == len(relations) - 1
        reached.append(np.intersect1d(ends, [tail]) if last else np.setdiff1d(ends, [head, tail]))
    count, tried = len(graph.relations), 0

    def back(walked: list[int]) -> list[int]:
        nonlocal tried
        place = len(relations) - len(walked)  # of the relation into the entity walked last
        if place < 0:
            return walked[::-1]
        tried += 1
        at, _ = graph.edges_of(np.array([walked[-1]]))
        inverse = (relations[place] + count) % (2 * count)
        beside = np.intersect1d(graph.tail_ids[at[graph.relation_ids[at] == inverse]], reached[place])
        beside = np.setdiff1d(beside, walked)
        for before in beside[np.lexsort((beside, graph.degrees[beside]))].tolist():
            if tried > TRIED:
                break
            if found := back([*walked, before]):
                return found
        return []

    return back([tail]) if len(reached[-1]) else []


def distance(graph: Graph, head: int, tail: int, most: int = FAR) -> int | None:
    """The hops of the shortest path from head to tail: 0 if there is none of up to `most`, None if that takes long."""
    seen = [np.zeros(len(graph.entities), bool) for _ in range(2)]
    fronts = [np.array([head]), np.array([tail])]
    for mask, front in zip(seen, fronts, strict=True):
        mask[front] = True
    for hops in range(1, most + 1):
        side = int(graph.degrees[fronts[0]].sum() > graph.degrees[fronts[1]].sum())
        if graph.degrees[fronts[side]].sum() > TOO_MANY:
            return None
        at, _ = graph.edges_of(fronts[side])
        ends = distinct(graph.tail_ids[at])
        if seen[1 - side][ends].any():
            return hops
        fronts[side] = ends[~seen[side][ends]]
        seen[side][ends] = True
        if not len(fronts[side]):
            break
    return 0


def first_pairs(relation: Relation, shots: int) -> tuple[tuple[int, int], ...]:
    """The first `shots` pairs of a relation."""
    if shots < 1:
        raise FewlinkError(f"shots must be at least 1, got {shots}")
    pairs = relation.pairs()
    if not len(pairs):
        raise FewlinkError(f"{relation.name} has no pairs: give references")
    return tuple((head, tail) for head, tail in pairs[:shots].tolist())


def find_heads(names: Names, heads: str | Iterable[str], notes: list[str], what: str = "head") -> np.ndarray:
    """Query heads (h,) by name, in their order; each duplicate adds a note. `what` is "tail" if heads are wanted."""
    ids = names.find_all([heads] if isinstance(heads, str) else heads, what)
    if not ids:
        raise FewlinkError(f"no {what}s: name at least one entity to find {'heads' if what == 'tail' else 'tails'} for")
    return distinct_heads(names, ids, notes, what)


def distinct_heads(names: Names, heads: Iterable[int], notes: list[str], what: str = "head") -> np.ndarray:
    """Query heads (h,) without duplicates, in their order; each duplicate adds a note."""
    distinct: dict[int, None] = {}
    for head in heads:
        if head in distinct:
            notes.append(f"the {what} {names.quoted(head)} is given twice and is ranked once")
        distinct[head] = None
    return np.array(list(distinct), np.int32)


def no_candidate_note(names: Names, head: int) -> str:
    """The note about a head without predictions."""
    return f"{names.quoted(head)} has no candidate left: all of them are known answers or ruled out"


def open_candidates(graph: Graph, references: np.ndarray) -> np.ndarray:
    """Tails (c,) that resemble those of references (K, 2), by type or by the relations they take part in; sorted."""
    task = Task("", references, references, references[:0, 1])
    return candidates_of("open", task, references, graph).ids


def is_open(choice: object) -> bool:
    """Whether candidates are chosen by the references."""
    return choice is None or (isinstance(choice, str) and choice == "open")


def find_candidates(benchmark: Benchmark, names: Names, choice: Choice, references: References) -> np.ndarray:
    """The tails to rank (c,), sorted; raises if there are none.

    None or "open": tails that resemble those of the references; "full": the range of the relation; "all": every entity;
    any other text: the members of a type; else names of entities, or a predicate of entity ids.
    """
    graph, relation = benchmark.graph, references.relation
    if choice is None or is_open(choice):
        return open_candidates(graph, references.ids)
    if choice == "full":
        if relation is None:
            raise FewlinkError("candidates 'full' are the range of a relation: name it, or leave candidates out")
        if relation.task is None or relation.inverse:
            return likely_tails(graph, np.concatenate([relation.pairs()[:, 1], references.ids[:, 1]]))
        return candidates_of("full", relation.task, references.ids, graph).ids
    if choice == "all":
        return np.arange(len(graph.entities), dtype=np.int32)
    if isinstance(choice, str):
        return names.members(choice)
    if callable(choice):
        ids = [number for number, name in enumerate(graph.entities) if choice(name)]
    else:
        ids = names.find_all(choice, "candidate")
    if not ids:
        raise FewlinkError("no candidates: " + ("the predicate accepts no entity" if callable(choice) else "name some"))
    return np.unique(np.array(ids, np.int32))


def check_count(k: int, what: str = "k") -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise FewlinkError(f"{what} must be a whole number of at least 1, got {k!r}")
    return int(k)


def id_texts(graph: Graph, pairs: Sequence[Sequence[int]] | np.ndarray) -> list[tuple[str, str]]:
    """Pairs of entities by their ids as texts."""
    return [(graph.entities[int(head)], graph.entities[int(tail)]) for head, tail in pairs]


def read_names(path: Path) -> list[str]:
    """The names in a file, one per line; empty lines and spaces around names are ignored."""
    names = [text for _, line in _lines(path) if (text := line.strip())]
    if not names:
        raise InputError(path, "holds no names: write one entity on each line")
    return names


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs in a file, `head<TAB>tail` on each line; empty lines are ignored."""
    pairs = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise InputError(path, f"needs two names separated by one tab, and has {len(parts)} columns", number)
        pairs.append((parts[0], parts[1]))
    if not pairs:
        raise InputError(path, "has no pairs: write head<TAB>tail on each line")
    return pairs


def parse_pair(text: str) -> tuple[str, str]:
    """`head => tail`, or head and tail separated by a tab, for names that contain an arrow."""
    parts = [part.strip() for part in text.split("\t" if "\t" in text else ARROW)]
    if len(parts) != 2 or not all(parts):
        raise FewlinkError(
            f"'{text}' is not a pair: write 'HEAD => TAIL', or HEAD<TAB>TAIL if a name contains an arrow"
        )
    return parts[0], parts[1]


def parse_triple(text: str) -> tuple[str, str, str]:
    """`head => relation => tail`, or the three separated by tabs, for names that contain an arrow."""
    parts = [part.strip() for part in text.split("\t" if "\t" in text else ARROW)]
    if len(parts) != 3 or not all(parts):
        raise FewlinkError(f"'{text}' is not a triple: write 'HEAD => RELATION => TAIL', or tabs instead of the arrows")
    return parts[0], parts[1], parts[2]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    yield from enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
