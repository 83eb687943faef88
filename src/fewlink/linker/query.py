"""A query: names that users write resolved to the ids of a graph, as a value that can be compared and remembered."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fewlink.core.errors import FewlinkError, UnknownName, did_you_mean
from fewlink.data import Benchmark, Task, candidates_of
from fewlink.data.candidates import likely_tails, open_candidates
from fewlink.graph import Graph
from fewlink.linker.names import Names, fold

if TYPE_CHECKING:
    from fewlink.linker.adjustment import Adjustment

CANDIDATE_WORDS = ("open", "full", "all")  # any other text is the name of a type
Pairs = Iterable[tuple[str, str]]
Choice = str | Iterable[str] | Callable[[str], bool] | None


@dataclass(frozen=True)
class Relation:
    """A relation of the benchmark by name: a task, or a relation of the graph (`number`).

    If `inverse`, its pairs are read from tail to head. `trained`: it is a task of the train split.
    """

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
    """The references of a query as pairs of ids, and the relation if the query names one.

    `rejected` are pairs known to be wrong: they are not ranked, and pairs that resemble them rank lower. If `inverse`,
    the query asks for heads: all pairs and the relation are read from tail to head.
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

    def with_rejected(self, rejected: Iterable[tuple[int, int]], names: Names, notes: list[str]) -> References:
        """These references with rejected pairs; raises if a pair is both. Adds a note if there are any."""
        distinct = tuple(dict.fromkeys(rejected))
        for head, tail in distinct:
            if (head, tail) in self.pairs:
                pair = f"{names.quoted(head)} → {names.quoted(tail)}"
                raise FewlinkError(f"{pair} is both a reference and a rejected pair: remove one of them")
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


@dataclass(frozen=True)
class Query:
    """Which tails fit these heads, given some references? All names are resolved; `Linker.resolve` makes one.

    references      pairs of the relation, rejected pairs, and the relation itself if it is named
    heads           entities to find tails for (or, if the references are inverse, tails to find heads for)
    k               how many tails of each head; if `across_heads`, how many pairs of all heads together
    candidates      "open", "full", "all", the name of a type, or ids
    exclude_known   whether known pairs are left out of the answer
    constraints     names of `fewlink.linker.constraints.KINDS`, "auto" or "none"
    explain         whether each prediction comes with its reasons
    adjustment      what the decisions of a project add to probabilities; `answered` are heads with a true tail
    notes           remarks on the query for its author

    A query is hashable; notes do not count. `part` takes some of its heads, for answers that are computed in turns.
    """

    references: References
    heads: tuple[int, ...] = ()
    k: int = 10
    candidates: str | tuple[int, ...] = "open"
    exclude_known: bool = True
    constraints: tuple[str, ...] = ()
    across_heads: bool = False
    explain: bool = False
    adjustment: Adjustment | None = None
    answered: frozenset[int] = frozenset()
    notes: tuple[str, ...] = field(default=(), compare=False)
    heads_in_all: int = 0  # of the query that this one is a part of; 0: it is whole

    @property
    def inverse(self) -> bool:
        """Whether the query asks for the heads of tails."""
        return self.references.inverse

    @property
    def competing_heads(self) -> int:
        """The number of heads whose pairs may rule out each other."""
        return self.heads_in_all or len(self.heads)

    def part(self, heads: Sequence[int]) -> Query:
        """The query for some of its heads. `Linker.rank` keeps as many tails of each as the whole query needs."""
        return dataclasses.replace(self, heads=tuple(heads), heads_in_all=self.competing_heads)

    @property
    def batch_key(self) -> Hashable:
        """Queries with equal keys differ only in their heads and k: `Linker.rank_batch` scores them in one call."""
        alone = self.across_heads or bool(self.constraints)
        return (
            self.references,
            self.candidates,
            self.exclude_known,
            self.constraints,
            self.across_heads,
            self.adjustment,
            self.answered,
            self.heads if alone else None,
        )


def find_relation(benchmark: Benchmark, name: str) -> Relation:
    """A task relation, or one of the graph, by its id or readable name."""
    graph = benchmark.graph
    tasks = {task.name: (split, task) for split, tasks in benchmark.tasks.items() for task in tasks}
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


def find_pairs(names: Names, pairs: Pairs, what: str = "reference", field: str = "references") -> list[tuple[int, int]]:
    """Pairs of names as pairs of ids. `what` and `field` tell an error what the pairs are and where they stand."""
    if isinstance(pairs, str):
        raise FewlinkError(f"{what}s are pairs of a head and a tail, not the text {pairs!r}")
    ids = []
    for place, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise FewlinkError(f"{what} {pair!r} is not a pair of a head and a tail")
        head = names.find(pair[0], f"head of a {what}", f"{field}.{place}.0")
        ids.append((head, names.find(pair[1], f"tail of a {what}", f"{field}.{place}.1")))
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


def first_pairs(relation: Relation, shots: int) -> tuple[tuple[int, int], ...]:
    """The first `shots` pairs of a relation."""
    if shots < 1:
        raise FewlinkError(f"shots must be at least 1, got {shots}")
    pairs = relation.pairs()
    if not len(pairs):
        raise FewlinkError(f"{relation.name} has no pairs: give references")
    return tuple((head, tail) for head, tail in pairs[:shots].tolist())


def find_heads(
    names: Names, heads: str | Iterable[str], notes: list[str], what: str = "head", field: str = "heads"
) -> tuple[int, ...]:
    """Query heads by name, in their order; each duplicate adds a note. `what` is "tail" if the query is inverse."""
    distinct: dict[int, None] = {}
    for place, name in enumerate([heads] if isinstance(heads, str) else heads):
        head = names.find(name, what, f"{field}.{place}")
        if head in distinct:
            notes.append(f"the {what} {names.quoted(head)} is given twice and is ranked once")
        distinct[head] = None
    return tuple(distinct)


def find_candidates(graph: Graph, names: Names, choice: Choice) -> str | tuple[int, ...]:
    """Candidates as a `Query` has them: a word or the name of a type as it is, else sorted ids.

    Entities are given by name, or by a predicate of entity ids.
    """
    if choice is None:
        return "open"
    if isinstance(choice, str):
        return choice
    if callable(choice):
        ids = {number for number, name in enumerate(graph.entities) if choice(name)}
    else:
        ids = {names.find(name, "candidate", f"candidates.{place}") for place, name in enumerate(choice)}
    if not ids:
        raise FewlinkError("no candidates: " + ("the predicate accepts no entity" if callable(choice) else "name some"))
    return tuple(sorted(ids))


def candidate_ids(
    benchmark: Benchmark, names: Names, candidates: str | tuple[int, ...], references: References
) -> np.ndarray:
    """The tails to rank (c,), sorted; raises if there are none.

    "open": tails that resemble those of the references; "full": the range of the relation; "all": every entity; any
    other text: the members of a type.
    """
    graph, relation = benchmark.graph, references.relation
    if not isinstance(candidates, str):
        return np.array(candidates, np.int32)
    if candidates == "open":
        return open_candidates(graph, references.ids)
    if candidates == "all":
        return np.arange(len(graph.entities), dtype=np.int32)
    if candidates != "full":
        return names.members(candidates, "candidates")
    if relation is None:
        raise FewlinkError("candidates 'full' are the range of a relation: name the relation, or leave candidates out")
    if relation.task is None or relation.inverse:
        return likely_tails(graph, np.concatenate([relation.pairs()[:, 1], references.ids[:, 1]]))
    return candidates_of("full", relation.task, references.ids, graph).ids


def check_count(k: int, what: str = "k") -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise FewlinkError(f"{what} must be a whole number of at least 1, got {k!r}")
    return int(k)


def id_texts(graph: Graph, pairs: Sequence[Sequence[int]] | np.ndarray) -> list[tuple[str, str]]:
    """Pairs of entities by their ids as texts."""
    return [(graph.entities[int(head)], graph.entities[int(tail)]) for head, tail in pairs]
