"""Candidate tails: the range of a relation, the protocols `paper`, `full`, `open` and `released`; similar entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import choose
from fewlink.core.seeds import generator, scramble
from fewlink.core.threads import distinct
from fewlink.graph import Graph
from fewlink.graph.groups import Groups
from fewlink.graph.types import RDF_TYPE
from fewlink.tasks.benchmark import Task, sorted_pairs
from fewlink.tasks.set_order import in_set_order

MOST = 500_000  # open candidates of a large graph
PAPER_SIZE = 1000  # candidates, as in the paper's evaluation
PAPER_SEED = 0  # fixed by the protocol: every model gets the same candidates
PRIOR_ENTITIES = 10  # entities with average features that count beside the given ones
TYPICAL = 0.05  # the share of the given ones that may be less typical than every chosen entity
PROTOCOLS = ("paper", "full", "open", "released")


@dataclass(frozen=True)
class Candidates:
    """The tails to score for one relation.

    Shapes: `ids` (c,) int32, sorted; `counted` (c,) bool, False for tails that are included only as the answer of a
    query. `outside` is the number of other entities, all tied behind the scored ones; 0 if the range is closed.
    """

    ids: np.ndarray
    counted: np.ndarray
    outside: int = 0


def candidates_of(protocol: str, task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    """The candidates of a task under a protocol.

    - `full`: the whole range, by the types of all the relation's tails: an oracle that published results share.
    - `paper`: 1000 tails of that range, the same for every model; the answer of a query is added for that query.
    - `open`: entities that share a type or a relation slot with the tail of a reference; all others tie behind them.
    - `released`: as `paper`, with the first 1000 in the order of Python 2's sets, as in the authors' program of FSRL.
    """
    protocols = {"full": _full, "paper": _paper, "open": _open, "released": _released}
    return choose("candidates protocol", protocol, protocols)(task, references, graph)


def competing_tails(protocol: str, task: Task, graph: Graph) -> np.ndarray:
    """The tails (c,) of a closed protocol, sorted, without those that are candidates only as the answer of a query."""
    candidates = candidates_of(protocol, task, task.pairs[:0], graph)
    tails: np.ndarray = candidates.ids[candidates.counted]
    return tails


def likely_tails(graph: Graph, tails: np.ndarray, hidden: int | None = None) -> np.ndarray:
    """The type constraint: entities of the same kind as these tails, sorted, including the tails.

    For a tail with types, these are the entities that share one of them; for a tail without, those in the same
    relation slots (head or tail of the same background relation, other than a `hidden` one).
    """
    return _any_of(graph, [np.asarray(tails), *(members for _, members in _kinds(graph, tails, hidden))])


def open_candidates(graph: Graph, references: np.ndarray, hidden: int | None = None) -> np.ndarray:
    """Tails (c,) that share a type or a relation slot with the tail of a reference (K, 2); sorted.

    Few references show few types of a relation, so slots are used for tails with types as well. In a large graph these
    are at most about `MOST`: those of the types and slots with the fewest entities, which say most. With a `hidden`
    relation, they are those of the graph without it.
    """
    tails = references[:, 1]
    if graph.counted is not None:
        return of_rare_kinds(graph, np.unique(tails), MOST, hidden)
    slots = (graph.slots[slot] for slot in _slots(graph, tails, hidden))
    return _any_of(graph, [likely_tails(graph, tails, hidden), *slots])


def of_rare_kinds(graph: Graph, tails: np.ndarray, most: int, hidden: int | None = None) -> np.ndarray:
    """The tails, and the entities of their types and slots, the rarest first, until there are `most`; sorted.

    If the rarest alone has more, only those of its entities with the most edges are taken. Slots of a `hidden` relation
    do not count.
    """
    kinds = [(graph.slots, slot) for slot in _slots(graph, tails, hidden)]
    if graph.types is not None:
        kinds += [(graph.types.groups, kind) for kind in graph.types.of_entities(tails).tolist()]
    sizes = np.array([groups.offsets[kind + 1] - groups.offsets[kind] for groups, kind in kinds], np.int64)
    order = np.argsort(sizes, kind="stable")
    few = order[np.cumsum(sizes[order]) <= most]
    chosen = [groups[kind] for groups, kind in (kinds[place] for place in few.tolist())]
    if len(order) and not len(few):
        groups, kind = kinds[order[0]]
        chosen = [graph.once(_most_connected, groups is graph.slots, kind, most)]
    return distinct(np.concatenate([tails, *chosen])).astype(np.int32)


def _most_connected(graph: Graph, slot: bool, kind: int, most: int) -> np.ndarray:
    """The `most` entities of a slot or type with the most edges."""
    members = np.asarray((graph.slots if slot or graph.types is None else graph.types.groups)[kind])
    return members[np.argpartition(-graph.degrees_of(members), most)[:most]]


def task_of_pairs(graph: Graph, name: str, pairs: np.ndarray) -> Task:
    """A task from all known pairs (n, 2) of a relation; its range is given by the type constraint."""
    return Task(name, pairs, sorted_pairs(pairs), likely_tails(graph, pairs[:, 1]))


def by_similarity(graph: Graph, ids: np.ndarray, ignored: int = -1) -> tuple[np.ndarray, int]:
    """All entities (n,), the most similar to `ids` first, and the number that are similar at all.

    Similarity counts the types and relation slots, except the slot `ignored`, that an entity shares with any of `ids`;
    rare ones weigh more. Among equally similar entities, those with more edges come first.
    """
    groups = [graph.slots[slot] for slot in _slots(graph, ids) if slot != ignored]
    if graph.types is not None:
        groups += [graph.types.groups[kind] for kind in graph.types.of_entities(np.unique(ids)).tolist()]
    similarity = np.zeros(len(graph.entities))
    for members in groups:
        similarity[members] += np.log1p(len(similarity) / len(members))
    order = np.lexsort((-graph.degrees, -similarity)).astype(np.int32)
    return order, int((similarity > 0).sum())


def of_kind(graph: Graph, ids: np.ndarray, ignored: int = -1) -> np.ndarray:
    """Whether each entity (n,) is of the same kind as `ids`; these always are.

    Let q be the share of all entities that have a feature, and p the share of `ids`, with `PRIOR_ENTITIES` average
    entities added. An entity is of their kind if Σ log(p / q) over its types exceeds log 2, and it is not if the sum is
    negative. In between, types say too little, and naive Bayes decides by relation slots, except the slot `ignored`:
    it shares a slot with one of `ids`, and Σ log(p / q) over those it has, plus Σ log((1 - p) / (1 - q)) over those it
    lacks, exceeds -log 2 or reaches that of nearly all `ids`.
    """
    ids = np.unique(ids)
    entities = len(graph.entities)
    if not len(ids):
        return np.zeros(entities, bool)
    stated = graph.relations.find(RDF_TYPE) if graph.types is not None else None
    slots = [slot for slot in range(2 * len(graph.relations)) if slot not in (ignored, stated)]
    had, p, q = _shares(graph.slots, ids, entities)
    present = np.log(p / q)
    absent = np.log((1 - p) / (1 - q))
    likeness = absent[slots].sum() + _sum_of_features(graph.slots, slots, present - absent, entities)
    shares_slot = _sum_of_features(graph.slots, slots, had > 0, entities) > 0
    same: np.ndarray = shares_slot & (likeness >= min(-np.log(2), np.quantile(likeness[ids], TYPICAL)))
    if graph.types is not None:
        _, p, q = _shares(graph.types.groups, ids, entities)
        by_types = _sum_of_features(graph.types.groups, range(len(q)), np.log(p / q), entities)
        same = (same & (by_types > -1e-9)) | (by_types > np.log(2))
    same[ids] = True
    return same


def _shares(features: Groups, ids: np.ndarray, entities: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many of `ids` have each feature, and the shares p and q, which lie strictly between 0 and 1; all (f,)."""
    sizes = np.diff(features.offsets)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    had = np.bincount(owners[np.isin(features.members, ids)], minlength=len(sizes))
    q = np.clip(sizes / entities, 0.5 / entities, 1 - 0.5 / entities)
    return had, (had + PRIOR_ENTITIES * q) / (len(ids) + PRIOR_ENTITIES), q


def _sum_of_features(features: Groups, chosen: Iterable[int], weights: np.ndarray, entities: int) -> np.ndarray:
    """The sum of the weights (f,) of the chosen features that each entity (n,) has."""
    counted = np.zeros(len(weights))
    counted[list(chosen)] = weights[list(chosen)]
    return np.bincount(features.members, np.repeat(counted, np.diff(features.offsets)), minlength=entities)


class SameTypeSampler:
    """Fixed samples of the entities that `likely_tails` returns: those with the lowest hashes.

    The lowest hashes of a union are among the lowest of its groups, so the sampler computes the sample of each type
    and slot once.
    """

    def __init__(self, graph: Graph, max_size: int) -> None:
        self.graph = graph
        self.max_size = max_size
        self._first: dict[tuple[str, int], np.ndarray] = {}

    def of(self, ids: np.ndarray, size: int) -> np.ndarray:
        """At most `size` entities of the same kind as `ids` (n,), and `ids` themselves, sorted."""
        samples = [self._first_of(kind, members) for kind, members in _kinds(self.graph, ids)]
        return np.union1d(_lowest_hashes(np.unique(np.concatenate([ids, *samples])), size), ids).astype(np.int32)

    def _first_of(self, kind: tuple[str, int], members: np.ndarray) -> np.ndarray:
        if kind not in self._first:
            self._first[kind] = _lowest_hashes(members, self.max_size)
        return self._first[kind]


def _lowest_hashes(ids: np.ndarray, count: int) -> np.ndarray:
    return ids[np.argpartition(scramble(ids), count)[:count]] if len(ids) > count else ids


def _kinds(graph: Graph, ids: np.ndarray, hidden: int | None = None) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    """Yield the types of these entities, and the slots of those without a type, each with its members."""
    ids = np.unique(ids)
    if graph.types is not None:
        for kind in graph.types.of_entities(ids).tolist():
            yield ("type", kind), graph.types.groups[kind]
        ids = ids[~graph.types.typed(ids)]
    yield from ((("slot", slot), graph.slots[slot]) for slot in _slots(graph, ids, hidden))


def _slots(graph: Graph, ids: np.ndarray, hidden: int | None = None) -> list[int]:
    """The relations, inverses included, of any of these entities, except a `hidden` one and rdf:type, which all typed
    entities have."""
    slots: list[int] = np.unique(graph.relation_ids[graph.slots_of(np.unique(ids))[0]]).tolist()
    stated = graph.relations.find(RDF_TYPE) if graph.types is not None else None
    left_out = {stated} if hidden is None else {stated, hidden, hidden + len(graph.relations)}
    return [slot for slot in slots if slot not in left_out]


def _any_of(graph: Graph, groups: Iterable[np.ndarray]) -> np.ndarray:
    """The union of groups of entities, sorted."""
    chosen = np.zeros(len(graph.entities), bool)
    for members in groups:
        chosen[members] = True
    return np.flatnonzero(chosen).astype(np.int32)


def _full(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    return Candidates(task.range, np.ones(len(task.range), bool))


def _paper(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    if len(task.range) <= PAPER_SIZE:
        return _full(task, references, graph)
    sample = generator(PAPER_SEED, "paper candidates", task.name).choice(task.range, PAPER_SIZE, replace=False)
    return _with_answers(task, sample)


def _released(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    if len(task.range) <= PAPER_SIZE:
        return _full(task, references, graph)
    return _with_answers(task, graph.once(_in_set_order, np.asarray(task.range, np.int32).tobytes())[:PAPER_SIZE])


def _in_set_order(graph: Graph, range_: bytes) -> np.ndarray:
    return in_set_order(graph, np.frombuffer(range_, np.int32))


def _with_answers(task: Task, sample: np.ndarray) -> Candidates:
    """A sample (c,) of the range as candidates; the answer of a query is added for that query."""
    ids = np.union1d(sample, task.pairs[:, 1]).astype(np.int32)
    return Candidates(ids, np.isin(ids, sample))


def _open(task: Task, references: np.ndarray, graph: Graph) -> Candidates:
    ids = open_candidates(graph, references)
    return Candidates(ids, np.ones(len(ids), bool), outside=len(graph.entities) - len(ids))
