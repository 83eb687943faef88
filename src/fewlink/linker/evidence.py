"""The evidence in a graph for and against pairs of one of its relations.

Each pair comes with a *left-out* triple of the relation, which does not count as evidence. So a triple and its
negatives are compared as if the triple were not in the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fewlink.graph import Graph
from fewlink.graph.groups import Groups, offsets_of, spans

MAX_EDGES = 200  # of an entity, to compare it with others
MAX_ROWS = 1 << 22  # in memory
PRIOR_PAIRS = 2.0  # added to the denominator of a share
SMOOTHING = 0.5  # added to counts
COLUMNS = (
    "tail by head: best",
    "tail by head: mean",
    "tail by head: sum",
    "tail by head: lift",
    "head by tail: best",
    "head by tail: mean",
    "head by tail: sum",
    "head by tail: lift",
    "paths: best",
    "paths: sum",
    "paths: number",
    "slots of tail",
    "slots of head",
    "slots together",
    "log count of tail",
    "log count of head",
    "log degree of tail",
    "log degree of head",
)


class QueriedPairs(NamedTuple):
    """Pairs and the left-out pair of each: all (n,)."""

    heads: np.ndarray
    tails: np.ndarray
    out_heads: np.ndarray
    out_tails: np.ndarray

    def take(self, rows: np.ndarray | slice) -> QueriedPairs:
        return QueriedPairs(*(part[rows] for part in self))

    def inverted(self) -> QueriedPairs:
        return QueriedPairs(self.tails, self.heads, self.out_tails, self.out_heads)

    @classmethod
    def joined(cls, *parts: QueriedPairs) -> QueriedPairs:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Shared(NamedTuple):
    """How often entities with a certain edge have a certain partner in the relation.

    Shapes: `edges` (f,), sorted keys of edges, with `counts` (f,) of pairs; `joint` (j,), sorted keys of an edge and a
    partner, with `joint_counts` (j,).
    """

    edges: np.ndarray
    counts: np.ndarray
    joint: np.ndarray
    joint_counts: np.ndarray


class SlotWorth(NamedTuple):
    """The weight of each slot or type (S,) at tails and at heads, of having none, and of pairs of slots (S, S)."""

    present: list[np.ndarray]
    missing: list[float]
    together: np.ndarray


class RelationEvidence:
    """The evidence of one relation of a graph, given its pairs (n, 2), for these and other pairs."""

    def __init__(self, graph: Graph, relation: int, pairs: np.ndarray) -> None:
        self.graph = graph
        self.relation = relation
        self.pairs = pairs.astype(np.int64)
        self.size = len(graph.entities)
        self.signed = 2 * len(graph.relations)
        self.inverse = (relation + len(graph.relations)) % self.signed

    def columns(self, asked: QueriedPairs, paths: Sequence[np.ndarray]) -> np.ndarray:
        """The evidence (n, COLUMNS) for pairs; `paths` are the three columns (n,) of their paths."""
        forward = self._by_partner(asked, self.relation, self._from_heads)
        back = self._by_partner(asked.inverted(), self.inverse, self._from_tails)
        heads, tails = self.pairs.T
        of_tails, of_heads = (np.bincount(ends, minlength=self.size) for ends in (tails, heads))
        counts = [
            of_tails[asked.tails] - (asked.tails == asked.out_tails),
            of_heads[asked.heads] - (asked.heads == asked.out_heads),
            self.graph.degrees[asked.tails] - (asked.tails == asked.out_tails),
            self.graph.degrees[asked.heads] - (asked.heads == asked.out_heads),
        ]
        return np.column_stack([*forward, *back, *paths, *self._slots(asked), *np.log1p(counts)])

    # Partners of entities that share an edge

    @functools.cached_property
    def _from_heads(self) -> Shared:
        return self._shared(self.pairs)

    @functools.cached_property
    def _from_tails(self) -> Shared:
        return self._shared(self.pairs[:, ::-1])

    def _edges(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The keys of edges of these entities, at most `MAX_EDGES` of each, and the entity of each edge."""
        graph = self.graph
        begins = graph.offsets[entities]
        ends = graph.offsets[entities + 1]
        at, owners = spans(begins, ends)
        many = (ends - begins)[owners]
        if (many > MAX_EDGES).any():  # keep evenly spaced ones
            place = at - begins[owners]
            step = place * MAX_EDGES // many
            kept = (many <= MAX_EDGES) | (step != (place - 1) * MAX_EDGES // many)
            at = at[kept]
            owners = owners[kept]
        return graph.relation_ids[at].astype(np.int64) * self.size + graph.tail_ids[at], owners

    def _shared(self, pairs: np.ndarray) -> Shared:
        entities, of = np.unique(pairs[:, 0], return_inverse=True)
        keys, owners = self._edges(entities)
        edges, which, holders = np.unique(keys, return_inverse=True, return_counts=True)
        often = holders > 1
        number = np.cumsum(often) - 1
        kept = often[which]
        own = number[which[kept]]
        owners = owners[kept]  # edges and entities, sorted by entity
        begins = np.searchsorted(owners, np.arange(len(entities) + 1))
        at, rows = spans(begins[of], begins[of + 1])
        joint, counts = np.unique(own[at] * self.size + pairs[rows, 1], return_counts=True)
        return Shared(edges[often], np.bincount(own[at], minlength=int(often.sum())), joint, counts)

    def _by_partner(self, asked: QueriedPairs, relation: int, shared: Shared) -> list[np.ndarray]:
        """How often entities that share an edge with the head have this tail: four columns (n,)."""
        if not len(shared.edges):
            return [np.zeros(len(asked.heads))] * 4
        entities, of = np.unique(asked.heads, return_inverse=True)
        keys, owners = self._edges(entities)
        places = _find(shared.edges, keys)
        kept = places >= 0
        places = places[kept]
        owners = owners[kept]
        begins = np.searchsorted(owners, np.arange(len(entities) + 1))
        lengths = (begins[1:] - begins[:-1])[of]
        results = [np.zeros(len(of)) for _ in range(4)]
        known = np.bincount(self.pairs[:, 1 if relation == self.relation else 0], minlength=self.size)
        prior = (known[asked.tails] - (asked.tails == asked.out_tails) + SMOOTHING) / (len(self.pairs) + 1)
        for part in _parts(lengths):
            at, rows = spans(begins[of[part]], begins[of[part] + 1])
            if not len(at):
                continue
            share, used = self._shares(asked.take(part[rows]), relation, shared, places[at])
            rows = part[rows][used]
            share = share[used]
            if not len(rows):
                continue
            firsts = np.flatnonzero(np.diff(rows, prepend=-1))
            at_rows = rows[firsts]
            number = np.diff(firsts, append=len(rows))
            best = np.maximum.reduceat(share, firsts)
            results[0][at_rows] = np.sqrt(best)
            results[1][at_rows] = np.sqrt(np.add.reduceat(share, firsts) / number)
            # .95 keeps the logarithm finite where a share is 1, and .01 the ratio where a share is 0
            results[2][at_rows] = np.log1p(np.add.reduceat(-np.log1p(-0.95 * share), firsts))
            results[3][at_rows] = np.log((best + 0.01) / (prior[at_rows] + 0.01))
        return results

    def _shares(
        self, asked: QueriedPairs, relation: int, shared: Shared, edges: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The share (n,) of the entities with an edge of the head that have this tail, shrunk towards 0.

        Also whether the edge is evidence (n,): not if it is the left-out triple, or if no other entity has it.
        `edges` (n,) are indexes into `shared.edges`, one for each pair.
        """
        joint = _find(shared.joint, edges * self.size + asked.tails)
        both = np.where(joint >= 0, shared.joint_counts[joint], 0).astype(float)
        every = shared.counts[edges].astype(float)
        own_head = asked.heads == asked.out_heads
        left_out = own_head.copy()
        others = np.flatnonzero(~own_head)
        if others.size:  # the left-out head may have the edge as well
            wanted = asked.out_heads[others] * (self.signed * self.size) + shared.edges[edges[others]]
            left_out[others] = _find(self.graph.once(_edge_keys), wanted) >= 0
        both -= left_out & (asked.tails == asked.out_tails)
        every -= left_out
        is_left_out = own_head & (shared.edges[edges] == relation * self.size + asked.out_tails)
        return np.maximum(both, 0) / (np.maximum(every, 0) + PRIOR_PAIRS), ~is_left_out & (every > 0)

    # Slots and types

    @functools.cached_property
    def _slot_worth(self) -> SlotWorth:
        """The weight of each slot and type at heads and tails of this relation."""
        table, _ = self.graph.once(slot_table)
        heads, tails = self.pairs[:: max(1, len(self.pairs) // 2000)].T
        own = [self.relation, self.inverse]
        at_heads, at_tails = (table[ends].astype(np.float32) for ends in (heads, tails))
        at_heads[:, own] = at_tails[:, own] = 0
        worth = [slot_weights(self.graph, ends.sum(0), len(ends), own) for ends in (at_tails, at_heads)]
        alone = np.outer(at_heads.sum(0), at_tails.sum(0)) / len(heads)
        together = np.log((at_heads.T @ at_tails + 1) / (alone + 1)).astype(np.float32)
        together[own] = together[:, own] = 0
        return SlotWorth([present for present, _ in worth], [missing for _, missing in worth], together)

    def _slots(self, asked: QueriedPairs) -> list[np.ndarray]:
        """How typical of this relation the slots of the tail, the head and both together are: three columns (n,)."""
        worth = self._slot_worth
        slots = self.graph.once(_slots_of)
        numbers = np.diff(slots.offsets)
        costs = numbers[asked.heads] * numbers[asked.tails]
        columns = np.zeros((3, len(costs)))
        for part in _parts(costs):
            heads = asked.heads[part]
            tails = asked.tails[part]
            for k, ends in enumerate((tails, heads)):
                at, rows = spans(slots.offsets[ends], slots.offsets[ends + 1])
                alone = np.bincount(rows, worth.present[k][slots.members[at]], minlength=len(ends)) + worth.missing[k]
                columns[k, part] = np.sign(alone) * np.sqrt(np.abs(alone))
            at, rows = spans(slots.offsets[heads], slots.offsets[heads + 1])
            to, pairs = spans(slots.offsets[tails[rows]], slots.offsets[tails[rows] + 1])
            each = worth.together[slots.members[at[pairs]], slots.members[to]]
            both = np.bincount(rows[pairs], each, minlength=len(heads))
            columns[2, part] = both / np.sqrt(np.maximum(costs[part], 1))
        return [*columns]

    # Paths

    def paths(self, asked: QueriedPairs) -> tuple[np.ndarray, np.ndarray]:
        """The distinct kinds of paths of one or two edges that join each pair (m,), and the pair of each (m,).

        Kind a is the single relation a; kind 2R + a · 2R + b is relation a, then b.
        """
        degrees = self.graph.degrees
        from_heads = degrees[asked.heads] <= degrees[asked.tails]  # start at the end with fewer edges
        kinds = []
        owners = []
        for forward in (True, False):
            of = np.flatnonzero(from_heads == forward)
            for places in _parts(degrees[(asked.heads if forward else asked.tails)[of]]):
                for found, rows in self._walked(asked.take(of[places]), forward):
                    kinds.append(found)
                    owners.append(of[places][rows])
        return np.concatenate(kinds), np.concatenate(owners)

    def _walked(self, asked: QueriedPairs, forward: bool) -> list[tuple[np.ndarray, np.ndarray]]:
        """The kinds of paths of one edge and of two, with their pairs; the walk starts at heads, or else at tails."""
        graph = self.graph
        signed = self.signed
        own = asked
        out_own = (asked.out_heads, asked.out_tails)
        relation = self.relation
        if not forward:
            own = asked.inverted()
            out_own = (asked.out_tails, asked.out_heads)
            relation = self.inverse
        at, rows = graph.edges_of(own.heads)
        first = graph.relation_ids[at].astype(np.int64)
        middles = graph.tail_ids[at].astype(np.int64)
        direct = (middles == own.tails[rows]) & (first != relation)
        left_out = (first == relation) & (own.heads == out_own[0])[rows] & (middles == out_own[1][rows])
        one = first[direct] if forward else (first[direct] + signed // 2) % signed
        one_of = rows[direct]
        first, middles, rows = (each[~left_out] for each in (first, middles, rows))
        keys, relations = graph.once(_edges_by_ends)
        wanted = own.tails[rows] * self.size + middles
        places, which = spans(*(np.searchsorted(keys, wanted, side) for side in ("left", "right")))
        last = relations[places].astype(np.int64)
        rows = rows[which]
        opposite = (relation + signed // 2) % signed
        left_out = (last == opposite) & (own.tails == out_own[1])[rows] & (middles[which] == out_own[0][rows])
        first, last, rows = (each[~left_out] for each in (first[which], last, rows))
        first, last = (first, last) if forward else (last, first)
        every = np.unique(rows * (signed * signed) + first * signed + (last + signed // 2) % signed)
        return [(one, one_of), (signed + every % (signed * signed), every // (signed * signed))]


class PathWorth(NamedTuple):
    """How often each kind of path joins right and wrong pairs.

    Shapes: `kinds` (p,), sorted; `joined` (2, p), the number of right and wrong pairs; `pairs` (2,), of all pairs.
    """

    kinds: np.ndarray
    joined: np.ndarray
    pairs: np.ndarray

    @classmethod
    def of(cls, kinds: np.ndarray, owners: np.ndarray, right: np.ndarray, counted: np.ndarray) -> PathWorth:
        """Count kinds of paths (m,) by their pairs, `owners` (m,); `right` and `counted` (n,) describe the pairs."""
        known, which = np.unique(kinds, return_inverse=True)
        sides = np.stack([right & counted, ~right & counted])
        joined = np.stack([np.bincount(which, side[owners], minlength=len(known)) for side in sides])
        return cls(known, joined, sides.sum(1))

    def columns(
        self,
        kinds: np.ndarray,
        owners: np.ndarray,
        count: int,
        right: np.ndarray | None = None,
        counted: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """The evidence in the paths of pairs: three columns (n,). A counted pair does not count for itself."""
        places = _find(self.kinds, kinds)
        used = places >= 0
        places = places[used]
        owners = owners[used]
        yes, no = self.joined[:, places]
        if right is not None and counted is not None:
            yes = yes - (right & counted)[owners]
            no = no - (~right & counted)[owners]
        worth = np.log((yes + SMOOTHING) / (self.pairs[0] + 1)) - np.log((no + SMOOTHING) / (self.pairs[1] + 1))
        worth = np.where(yes + no > 0, worth, 0.0)
        best = np.zeros(count)
        np.maximum.at(best, owners, worth)
        total = np.bincount(owners, worth, minlength=count)
        return [best, np.sign(total) * np.sqrt(np.abs(total)), np.log1p(np.bincount(owners, minlength=count))]


def slot_table(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Whether each entity has each slot (entities, S) bool, and the share of entities that have it (S,).

    The S slots are the R relations, their R inverses and the types.
    """
    signed = 2 * len(graph.relations)
    types = graph.types
    table = np.zeros((len(graph.entities), signed + (0 if types is None else len(types.names))), bool)
    table[graph.head_ids[graph.slot_starts], graph.relation_ids[graph.slot_starts]] = True
    if types is not None:
        table[np.repeat(np.arange(len(table)), np.diff(types.offsets)), signed + types.types] = True
    return table, table.mean(0)


def slot_weights(graph: Graph, counts: np.ndarray, number: int, own: Sequence[int]) -> tuple[np.ndarray, float]:
    """The weight (S,) of each slot at one end of a relation, and the weight of having none.

    `counts` (S,) says how many of the `number` entities at this end have each slot; the relation's `own` slots have no
    weight.
    """
    everywhere = graph.once(slot_table)[1]
    share = (counts + SMOOTHING) / (number + 1)
    present = np.log(share / (everywhere + SMOOTHING / len(graph.entities)))
    missing = np.log((1 - share + 0.01) / (1 - everywhere + 0.01))
    present[own] = missing[own] = 0
    return (present - missing).astype(np.float32), float(missing.sum())


def _slots_of(graph: Graph) -> Groups:
    """The slots and types of each entity."""
    entities, slots = np.nonzero(graph.once(slot_table)[0])
    return Groups(offsets_of(entities, len(graph.entities)), slots)


def _parts(costs: np.ndarray) -> list[np.ndarray]:
    """The places of pairs, in parts that cost about `MAX_ROWS` each, given the cost (n,) of each pair."""
    return np.split(np.arange(len(costs)), np.flatnonzero(np.diff(np.cumsum(costs) // MAX_ROWS)) + 1)


def _edges_by_ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The sorted keys (head, tail) of all edges, and their relations."""
    keys = graph.head_ids.astype(np.int64) * len(graph.entities) + graph.tail_ids
    order = np.argsort(keys, kind="stable")
    return keys[order], graph.relation_ids[order]


def _edge_keys(graph: Graph) -> np.ndarray:
    signed = 2 * len(graph.relations)
    size = len(graph.entities)
    keys: np.ndarray = (graph.head_ids.astype(np.int64) * signed + graph.relation_ids) * size + graph.tail_ids
    return keys


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each wanted value in sorted keys, or -1."""
    places = np.searchsorted(keys, wanted)
    places[places == len(keys)] = 0
    return np.where(keys[places] == wanted, places, -1) if len(keys) else np.full(len(wanted), -1)
