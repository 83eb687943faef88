"""Queries: the names that users write, resolved to the ids of a graph, as hashable values."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fewlink.core.errors import FewlinkError, UnknownName, did_you_mean
from fewlink.graph import Graph
from fewlink.graph.name_index import fold, readable
from fewlink.linker.names import Names
from fewlink.tasks import Benchmark, Task, candidates_of
from fewlink.tasks.candidates import likely_tails, open_candidates

HEADS_PER_BATCH = 32  # that a worker ranks at a time
CANDIDATE_WORDS = ("open", "full", "all")  # any other text names a type
Pairs = Iterable[tuple[str, str]]
Choice = str | Iterable[str] | None
Explain = bool | Literal["full"]
MIN_PROBABILITY = 1e-6  # probabilities are clipped to this distance from 0 and 1


@dataclass(frozen=True)
class Relation:
    """A relation of the benchmark: a task, or a relation of the graph by its `number`.

    `trained` says that it is a task of the train split. If `inverse`, its pairs are read from tail to head.
    """

    name: str
    graph: Graph = field(compare=False)
    task: Task | None = field(compare=False)
    number: int = -1
    trained: bool = False
    inverse: bool = False

    def readable_name(self) -> str:
        return readable(self.name) if self.number < 0 else self.graph.relation_name(self.number)

    def inverted(self) -> Relation:
        return dataclasses.replace(self, inverse=not self.inverse)

    @property
    def in_graph(self) -> bool:
        """Whether its triples are in the graph that models read."""
        return self.number >= 0 or self.trained

    def hidden(self) -> Relation:
        """The relation for a model that does not see its triples: a task with the same known pairs."""
        if not self.in_graph:
            return self
        task = self.task
        if task is None:
            pairs = self._pairs()
            task = Task(self.name, pairs, np.unique(pairs, axis=0), np.unique(pairs[:, 1]))
        return dataclasses.replace(self, task=task, number=-1, trained=False)

    def pairs(self) -> np.ndarray:
        """The pairs (n, 2), in the order of the benchmark or of the file of triples."""
        return self._pairs()[:, ::-1] if self.inverse else self._pairs()

    def _pairs(self) -> np.ndarray:
        if self.task is not None:
            return self.task.pairs
        at = self.graph.edges_with(self.number)
        at = at[np.argsort(self.graph.positions[at], kind="stable")]
        return np.stack([self.graph.heads_of(at), self.graph.tail_ids[at]], 1)

    def tails(self, head: int) -> np.ndarray:
        """The known tails of a head (m,)."""
        if self.task is not None:
            known = self.task.known[:, ::-1] if self.inverse else self.task.known
            return np.asarray(known[known[:, 0] == head, 1])
        number = self.number + len(self.graph.relations) if self.inverse else self.number
        at, _ = self.graph.edges_of(np.array([head]))
        return np.asarray(self.graph.tail_ids[at[self.graph.relation_ids[at] == number]])


@dataclass(frozen=True)
class References:
    """The references of a query as pairs of ids, and the relation if the query names one.

    `rejected` are wrong pairs: they are not ranked, and pairs that resemble them rank lower. If `inverse`, the query is
    for heads, and all pairs and the relation are read from tail to head.
    """

    pairs: tuple[tuple[int, int], ...]
    relation: Relation | None = None
    rejected: tuple[tuple[int, int], ...] = ()
    inverse: bool = False

    def inverted(self) -> References:
        """The same references read in the other direction."""
        return References(
            tuple((tail, head) for head, tail in self.pairs),
            self.relation.inverted() if self.relation else None,
            tuple((tail, head) for head, tail in self.rejected),
            not self.inverse,
        )

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """The pairs as an array (K, 2)."""
        return np.array(self.pairs, np.int32).reshape(-1, 2)

    @functools.cached_property
    def rejected_ids(self) -> np.ndarray:
        """The rejected pairs as an array (m, 2)."""
        return np.array(self.rejected, np.int32).reshape(-1, 2)

    def with_rejected(self, rejected: Iterable[tuple[int, int]], names: Names, notes: list[str]) -> References:
        """Add rejected pairs, with a note; raise if a pair is also a reference."""
        distinct = tuple(dict.fromkeys(rejected))
        true = set(self.pairs)
        for head, tail in distinct:
            if (head, tail) in true:
                pair = f"{names.quoted(head)} → {names.quoted(tail)}"
                raise FewlinkError(f"{pair} is both a reference and a rejected pair: remove one of them")
        if distinct:
            count = "1 rejected pair was" if len(distinct) == 1 else f"{len(distinct):,} rejected pairs were"
            notes.append(f"{count} used: pairs that resemble {'it' if len(distinct) == 1 else 'them'} rank lower")
        return dataclasses.replace(self, rejected=distinct)

    def answered_heads(self) -> np.ndarray:
        """The heads (h,) of the references and of known pairs, sorted."""
        known = self.ids if self.relation is None else self.relation.pairs()
        return np.union1d(self.ids[:, 0], known[:, 0])

    def known_tails(self, head: int) -> np.ndarray:
        """The known tails (m,) of a head in the references and in the relation."""
        tails = self.ids[self.ids[:, 0] == head, 1]
        return tails if self.relation is None else np.concatenate([tails, self.relation.tails(head)])


@dataclass(frozen=True)
class Adjustment:
    """What is added to all logits (`shift`, at most 0) and to those of heads with a true tail (`more`), fitted to some
    number of `decisions`."""

    shift: float
    more: float
    decisions: int

    def __call__(self, probabilities: np.ndarray, answered: np.ndarray) -> np.ndarray:
        """Adjust probabilities (n,); `answered` (n,) says whether the head of each pair already has a true tail."""
        logits = logits_of(probabilities) + self.shift + self.more * np.asarray(answered, float)
        return np.asarray(1 / (1 + np.exp(-logits)))

    def sentence(self, project: str = "") -> str:
        """The note that says what the probabilities are adjusted to."""
        decisions = f"the last {self.decisions:,} decisions" if self.decisions > 1 else "one decision"
        source = f"the project {project}" if project else "this project"
        return f"probabilities are adjusted to {decisions} of {source}"


@dataclass(frozen=True)
class Query:
    """A query by ids: which tails fit these heads, given the references? `Linker.resolve` makes one from names.

    references      pairs of the relation, rejected pairs, and the relation if it is named
    heads           entities to find tails for; if the references are inverse, tails to find heads for
    k               the number of tails per head; if `across_heads`, of pairs of all heads together
    candidates      "open", "full", "all", the name of a type, or ids
    exclude_known   whether known pairs are left out of the answer
    constraints     names of `fewlink.linker.ranking.KINDS`, "auto" or "none"
    explain         whether the first prediction of each head comes with its reasons; if "full", every prediction
    adjustment      the adjustment of probabilities by the decisions of a project
    answered        heads that have a true tail in the project
    notes           remarks on the query for its author; they do not count in comparisons
    """

    references: References
    heads: tuple[int, ...] = ()
    k: int = 10
    candidates: str | tuple[int, ...] = "open"
    exclude_known: bool = True
    constraints: tuple[str, ...] = ()
    across_heads: bool = False
    explain: Explain = False
    adjustment: Adjustment | None = None
    answered: frozenset[int] = frozenset()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def inverse(self) -> bool:
        """Whether the query is for the heads of tails."""
        return self.references.inverse


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
            if fold(name) in map(fold, benchmark.literal_relations):
                reason = "its tails are numbers, dates or text: read it with --literals keep"
                raise UnknownName(f"the relation '{name}' was left out, because {reason}")
            hint = did_you_mean(name, [*tasks, *graph.relations])
            raise UnknownName(f"unknown relation '{name}'{hint or f': {benchmark.name} has no such relation'}")
        number = matches[0]
    return Relation(graph.relations[number], graph, None, number)


def find_pairs(
    names: Names, pairs: Pairs, what: str = "reference", field: str = "references", notes: list[str] | None = None
) -> list[tuple[int, int]]:
    """Resolve pairs of names to pairs of ids, with notes on names to look at.

    Errors describe the pairs as `what` and locate them in `field`.
    """
    if isinstance(pairs, str):
        raise FewlinkError(f"{what}s must be pairs of a head and a tail, not the text {pairs!r}")
    ids = []
    given: list[str] = []
    for place, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise FewlinkError(f"{what} {pair!r} is not a pair of a head and a tail")
        head = names.find(pair[0], f"head of a {what}", f"{field}.{place}.0")
        ids.append((head, names.find(pair[1], f"tail of a {what}", f"{field}.{place}.1")))
        given += pair
    if notes is not None:
        notes += names.remarks(given, f"end of a {what}")
    return ids


def distinct_pairs(names: Names, pairs: Iterable[tuple[int, int]], notes: list[str]) -> tuple[tuple[int, int], ...]:
    """Remove duplicate references, with a note on them."""
    counts = Counter(pairs)
    several = [f"{names.quoted(head)} → {names.quoted(tail)}" for (head, tail), count in counts.items() if count > 1]
    if len(several) == 1:
        notes.append(f"the reference {several[0]} is given twice and counts once")
    elif several:
        few = "; ".join(several[:3]) + ("; …" if len(several) > 3 else "")
        notes.append(f"{len(several):,} references are given twice and count once: {few}")
    return tuple(counts)


def relations_of(graph: Graph, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """The relations of the graph that hold for all of these pairs."""
    common = set(range(len(graph.relations)))
    for head, tail in pairs:
        common &= set(graph.between(head, tail).tolist())
        if not common:
            break
    return [graph.relations[relation] for relation in sorted(common)]


def find_heads(
    names: Names, heads: str | Iterable[str], notes: list[str], what: str = "head", field: str = "heads"
) -> tuple[int, ...]:
    """Resolve query heads, in order and without duplicates, with a note for each. `what` may be "tail"."""
    distinct: dict[int, None] = {}
    given = [heads] if isinstance(heads, str) else list(heads)
    for place, name in enumerate(given):
        head = names.find(name, what, f"{field}.{place}")
        if head in distinct:
            notes.append(f"the {what} {names.quoted(head)} is given twice and is ranked once")
        distinct[head] = None
    notes += names.remarks(given, what)
    return tuple(distinct)


def find_candidates(names: Names, choice: Choice) -> str | tuple[int, ...]:
    """Resolve a choice of candidates for a `Query`: a word or the name of a type stays, entities become sorted ids."""
    if choice is None:
        return "open"
    if isinstance(choice, str):
        return choice
    ids = {names.find(name, "candidate", f"candidates.{place}") for place, name in enumerate(choice)}
    if not ids:
        raise FewlinkError("no candidates: name at least one entity")
    return tuple(sorted(ids))


def candidate_ids(
    benchmark: Benchmark,
    names: Names,
    candidates: str | tuple[int, ...],
    references: References,
    hidden: int | None = None,
) -> np.ndarray:
    """The tails to rank (c,), sorted; raises if there are none.

    "open": tails that resemble those of the references; "full": the range of the relation; "all": every entity; any
    other text: the members of a type.
    """
    graph = benchmark.graph
    relation = references.relation
    if not isinstance(candidates, str):
        return np.array(candidates, np.int32)
    if candidates == "open":
        return open_candidates(graph, references.ids, hidden)
    if candidates == "all":
        return np.arange(len(graph.entities), dtype=np.int32)
    if candidates != "full":
        return names.members(candidates, "candidates")
    if relation is None:
        raise FewlinkError("candidates 'full' need a relation: name it, or leave candidates out")
    if relation.task is None or relation.inverse:
        return likely_tails(graph, np.concatenate([relation.pairs()[:, 1], references.ids[:, 1]]))
    return candidates_of("full", relation.task, references.ids, graph).ids


def check_count(k: int, what: str = "k") -> int:
    """The number, if it is whole and at least 1; raises otherwise."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise FewlinkError(f"{what} must be a whole number of at least 1, got {k!r}")
    return int(k)


def id_texts(graph: Graph, pairs: Sequence[Sequence[int]] | np.ndarray) -> list[tuple[str, str]]:
    """Pairs of entities as their ids in the graph's files."""
    return [(graph.entities[int(head)], graph.entities[int(tail)]) for head, tail in pairs]


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """The logits (n,) of probabilities (n,)."""
    clipped = np.clip(probabilities, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.asarray(np.log(clipped / (1 - clipped)))


def batches_of(heads: Sequence[int]) -> list[Sequence[int]]:
    """Heads, some at a time, as workers take them."""
    return [heads[begin : begin + HEADS_PER_BATCH] for begin in range(0, len(heads), HEADS_PER_BATCH)]


def batch_name(batches: Sequence[Sequence[int]], number: int) -> str:
    """The name of one of the batches in errors."""
    begin = number * HEADS_PER_BATCH
    return f"heads {begin + 1:,} to {begin + len(batches[number]):,}"
