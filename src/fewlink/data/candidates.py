"""Which tails may be asked about: the range of a relation, and the three protocols `paper`, `full` and `open`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fewlink.base.resolver import choose
from fewlink.base.seeds import generator, scramble
from fewlink.data.benchmark import Task
from fewlink.graph import Graph

PAPER_SIZE = 1000
PAPER_SEED = 0  # part of the protocol: everybody's 1000 are the same
PROTOCOLS = ("paper", "full", "open")


@dataclass(frozen=True)
class Candidates:
    """The tails to score for one relation.

    Shapes: `ids` (c,) int32 sorted; `counted` (c,) bool, False for tails that are only in as the answer of some query;
    `outside`: how many further entities stand behind the scored ones, all tied (0 where the range is closed).
    """

    ids: np.ndarray
    counted: np.ndarray
    outside: int = 0


def candidates_of(protocol: str, task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    """The candidates of a task under a protocol.

    - `full`: the whole range (types of all the relation's tails: an oracle that published results share).
    - `paper`: 1000 of that range, the same for everybody; each query's own answer is added for that query.
    - `open`: entities that share a type or a relation slot with a reference's tail; all others tie behind them.
    """
    return choose("candidates protocol", protocol, {"full": _full, "paper": _paper, "open": _open})(
        task, references, graph
    )


def likely_tails(graph: Graph, tails: np.ndarray) -> np.ndarray:
    """The type constraint: entities of the same kind as these tails, sorted, the tails themselves included.

    For a tail with types: the entities that share one of them. For a tail without: those that occur in the same
    relation slots (as head, or as tail, of the same background relation).
    """
    return _any_of(graph, [np.asarray(tails), *(members for _, members in _kinds(graph, tails))])


class SameTypeSampler:
    """Entities of the kind of others, as `likely_tails` has them: at most some, always the same ones.

    They are the first by a hash. The first of a union are the first among the first of its parts, so of each type and
    slot only those are looked at, and kept.
    """

    def __init__(self, graph: Graph, most: int) -> None:
        self.graph, self.most = graph, most
        self._first: dict[tuple[str, int], np.ndarray] = {}

    def of(self, ids: np.ndarray, most: int) -> np.ndarray:
        """At most `most` of them, no more than at all, and these (n,) themselves, sorted."""
        parts = [self._first_of(kind, members) for kind, members in _kinds(self.graph, ids)]
        return np.union1d(_first(np.unique(np.concatenate([ids, *parts])), most), ids).astype(np.int32)

    def _first_of(self, kind: tuple[str, int], members: np.ndarray) -> np.ndarray:
        if kind not in self._first:
            self._first[kind] = _first(members, self.most)
        return self._first[kind]


def _first(ids: np.ndarray, most: int) -> np.ndarray:
    return ids[np.argpartition(scramble(ids), most)[:most]] if len(ids) > most else ids


def _kinds(graph: Graph, ids: np.ndarray) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    """What these entities are, with the members of it: their types, and the slots of those that have no type."""
    ids = np.unique(ids)
    if graph.types is not None:
        for kind in graph.types.of_entities(ids).tolist():
            yield ("type", kind), graph.types.groups[kind]
        ids = ids[~graph.types.typed(ids)]
    yield from ((("slot", slot), graph.slots[slot]) for slot in _slots(graph, ids))


def _slots(graph: Graph, ids: np.ndarray) -> list[int]:
    """The relations, inverse ones included, that any of these entities has."""
    slots: list[int] = np.unique(graph.relation_ids[graph.edges_of(ids)[0]]).tolist()
    return slots


def _any_of(graph: Graph, parts: Iterable[np.ndarray]) -> np.ndarray:
    """The entities of all parts together, sorted."""
    chosen = np.zeros(len(graph.entities), bool)
    for part in parts:
        chosen[part] = True
    return np.flatnonzero(chosen).astype(np.int32)


def _full(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    return Candidates(task.range, np.ones(len(task.range), bool))


def _paper(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    if len(task.range) <= PAPER_SIZE:
        return _full(task, references, graph)
    sample = generator(PAPER_SEED, "paper candidates", task.name).choice(task.range, PAPER_SIZE, replace=False)
    ids = np.union1d(sample, task.pairs[:, 1]).astype(np.int32)
    return Candidates(ids, np.isin(ids, sample))


def _open(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    tails = references[:, 1]
    # few references show few of a relation's types, so slots are asked as well
    ids = _any_of(graph, [likely_tails(graph, tails), *(graph.slots[slot] for slot in _slots(graph, tails))])
    return Candidates(ids, np.ones(len(ids), bool), outside=len(graph.entities) - len(ids))
