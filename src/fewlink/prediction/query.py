"""What a user asks, as arrays: references, heads, candidates and what is known of a relation; or a clear refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fewlink.base.errors import FewlinkError, UnknownName
from fewlink.base.resolver import did_you_mean
from fewlink.data import Benchmark, Task, candidates_of
from fewlink.data.candidates import likely_tails
from fewlink.graph import Graph
from fewlink.prediction.name_index import fold
from fewlink.prediction.names import Names

WORDS = ("open", "full", "all")  # candidates that are not the name of a type
Pairs = Iterable[tuple[str, str]]
Choice = str | Iterable[str] | Callable[[str], bool] | None


@dataclass(frozen=True)
class Relation:
    """A relation of the benchmark by name: a task, or a relation of the graph (`number`)."""

    name: str
    graph: Graph
    task: Task | None
    number: int = -1
    trained: bool = False

    def pairs(self) -> np.ndarray:
        """Its pairs (n, 2) in the benchmark's order, or in the order of the graph's file."""
        if self.task is not None:
            return self.task.pairs
        at = np.flatnonzero(self.graph.relation_ids == self.number)
        at = at[np.argsort(self.graph.positions[at], kind="stable")]
        return np.stack([self.graph.head_ids[at], self.graph.tail_ids[at]], 1)

    def tails(self, head: int) -> np.ndarray:
        """The known tails of a head (m,)."""
        if self.task is not None:
            return self.task.known_tails.get(head, np.zeros(0, np.int32))
        own = slice(int(self.graph.offsets[head]), int(self.graph.offsets[head + 1]))
        return np.asarray(self.graph.tail_ids[own][self.graph.relation_ids[own] == self.number])


def find_relation(benchmark: Benchmark, name: str) -> Relation:
    """A task relation, or one of the graph, by its id or readable name."""
    graph, tasks = benchmark.graph, {t.name: (split, t) for split, ts in benchmark.tasks.items() for t in ts}
    if name in tasks:
        split, task = tasks[name]
        return Relation(name, graph, task, trained=split == "train")
    number = graph.relations.find(name)
    if number is None:
        called = [i for i in range(len(graph.relations)) if fold(graph.relation_name(i)) == fold(name)]
        if len(called) != 1:
            hint = did_you_mean(name, [*tasks, *graph.relations])
            raise UnknownName(f"unknown relation '{name}'{hint or f': {benchmark.name} has no such relation'}")
        number = called[0]
    return Relation(graph.relations[number], graph, None, number)


def references_of(names: Names, pairs: Pairs, notes: list[str]) -> np.ndarray:
    """References (K, 2) by name; one that is given twice counts once, which is noted."""
    if isinstance(pairs, str):
        raise FewlinkError(f"references are pairs of a head and a tail, not the text {pairs!r}")
    found = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise FewlinkError(f"reference {pair!r} is not a pair of a head and a tail")
        ends = zip(pair, ("head", "tail"), strict=True)
        head, tail = (names.find(name, f"{end} of a reference") for name, end in ends)
        found.append((head, tail))
    if not found:
        raise FewlinkError("no references: give at least one pair of a head and a tail that the relation holds for")
    return np.array(distinct_references(names, found, notes), np.int32)


def distinct_references(names: Names, pairs: Iterable[tuple[int, int]], notes: list[str]) -> list[tuple[int, int]]:
    """Each pair once, in their order; one that is given twice is noted."""
    found: dict[tuple[int, int], None] = {}
    for head, tail in pairs:
        if (head, tail) in found:
            notes.append(f"the reference {names.told(head)} → {names.told(tail)} is given twice and counts once")
        found[head, tail] = None
    return list(found)


def first_references(relation: Relation, shots: int) -> np.ndarray:
    """The first `shots` pairs of a relation."""
    if shots < 1:
        raise FewlinkError(f"shots must be at least 1, got {shots}")
    pairs = relation.pairs()
    if not len(pairs):
        raise FewlinkError(f"{relation.name} has no pairs: give references")
    return pairs[:shots].astype(np.int32)


def heads_of(names: Names, heads: str | Iterable[str], notes: list[str]) -> np.ndarray:
    """Heads (h,) by name, in their order; one that is given twice is asked about once, which is noted."""
    found = names.find_all([heads] if isinstance(heads, str) else heads, "head")
    if not found:
        raise FewlinkError("no heads: name at least one entity to find tails for")
    return np.array(distinct_heads(names, found, notes), np.int32)


def distinct_heads(names: Names, heads: Iterable[int], notes: list[str]) -> list[int]:
    """Each head once, in their order; one that is given twice is noted."""
    found: dict[int, None] = {}
    for head in heads:
        if head in found:
            notes.append(f"the head {names.told(head)} is given twice and is asked about once")
        found[head] = None
    return list(found)


def nothing_left(names: Names, head: int) -> str:
    """What is noted of a head that gets no tail."""
    return f"{names.told(head)} has no candidate left: all of them are known answers"


def candidates_for(
    benchmark: Benchmark, names: Names, choice: Choice, references: np.ndarray, relation: Relation | None
) -> np.ndarray:
    """The tails to rank (c,), sorted; never none.

    None or "open": what is like the references' tails, by type or by the relations it has a part in; "full": the range
    of the relation; "all": every entity; another text: the members of a type; or names, or a test of ids.
    """
    graph = benchmark.graph
    if choice is None or choice == "open":
        asked = Task("", references, references, references[:0, 1])
        return candidates_of("open", asked, references, graph).ids
    if choice == "full":
        if relation is None:
            raise FewlinkError("candidates 'full' are the range of a relation: name it, or leave candidates out")
        if relation.task is None:
            return likely_tails(graph, np.concatenate([relation.pairs()[:, 1], references[:, 1]]))
        return candidates_of("full", relation.task, references, graph).ids
    if choice == "all":
        return np.arange(len(graph.entities), dtype=np.int32)
    if isinstance(choice, str):
        return names.members(choice)
    if callable(choice):
        kept = [number for number, name in enumerate(graph.entities) if choice(name)]
    else:
        kept = names.find_all(choice, "candidate")
    if not kept:
        raise FewlinkError("no candidates: " + ("the test lets no entity through" if callable(choice) else "name some"))
    return np.unique(np.array(kept, np.int32))


def known_tails(references: np.ndarray, relation: Relation | None) -> Callable[[int], np.ndarray]:
    """A function from a head to its known tails (m,): of references, and of the relation where one is named."""

    def tails(head: int) -> np.ndarray:
        own = references[references[:, 0] == head, 1]
        return own if relation is None else np.concatenate([own, relation.tails(head)])

    return tails


def check_count(k: int, what: str = "k") -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise FewlinkError(f"{what} must be a whole number of at least 1, got {k!r}")
    return int(k)


def told_pairs(names: Names, pairs: Sequence[Sequence[int]] | np.ndarray) -> list[tuple[str, str]]:
    """Pairs of entities as ids."""
    entities = names.graph.entities
    return [(entities[int(head)], entities[int(tail)]) for head, tail in pairs]
