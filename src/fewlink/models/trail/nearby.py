"""The part of a graph near one head: a bounded walk chooses some edges around it, which the network reads as a graph.

A walk begins at a head and chooses among the relations of an entity, then among the edges of that relation. An entity
is worth passing if walks from it soon end at a tail of a reference, or at an entity that the references alone suggest.
All edges of an entity are taken, in the order of the share of walks that passes through each of its edges times its
worth, until there are enough; of an entity with very many edges, those to the worthiest entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softmax

from fewlink.graph import Graph
from fewlink.graph.groups import spans
from fewlink.propagation.edges import EdgeOrder, RowEdges, Taken, fan_in_of

ROUNDS = 4  # times that the neighbours of reached entities are reached in turn
STEPS = 3  # of walks to the entities that the references suggest
LEAST = 0.01  # that an entity is worth, compared with the mean
FEWEST = 8  # edges of one entity may be taken in any part
SHARE = 0.1  # of a part's edges may be those of one entity, or `FEWEST` if that is more


class NearEdges(NamedTuple):
    """Edges of some entities. Shapes: all (e,); `owners` are their heads; fans as in `EdgeOrder`."""

    owners: np.ndarray
    targets: np.ndarray
    relations: np.ndarray
    fan_out: np.ndarray
    fan_in: np.ndarray

    @classmethod
    def joined(cls, *parts: NearEdges) -> NearEdges:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def take(self, places: np.ndarray) -> NearEdges:
        return NearEdges(*(column[places] for column in self))


def reference_edges(pairs: np.ndarray, relation: int) -> NearEdges:
    """Distinct references (K, 2) as edges of a relation, then of the next one, its inverse."""
    heads, tails = np.asarray(pairs, np.int64).T
    out, into = (_fans(ends) for ends in (heads, tails))
    return NearEdges(
        np.concatenate([heads, tails]),
        np.concatenate([tails, heads]),
        np.repeat([relation, relation + 1], len(heads)),
        np.concatenate([out, into]),
        np.concatenate([into, out]),
    )


class Worth(NamedTuple):
    """How worthwhile it is to pass through entities: `values` (n,) of `nodes` (n,), sorted, or of all entities."""

    nodes: np.ndarray | None
    values: np.ndarray

    @classmethod
    def of(
        cls,
        nodes: np.ndarray | None,
        edges: EdgeOrder,
        visible: np.ndarray,
        references: np.ndarray,
        suggested: Tensor,
    ) -> Worth:
        """Given edges by head (e,), 0 for relations (2R,) that are not read, references (K, 2) as nodes, and the scores
        (n,) of nodes without any head."""
        given = reference_edges(references, 0)
        count = len(suggested)
        heads = np.concatenate([edges.row.numpy(), given.owners])
        targets = np.concatenate([edges.first.numpy(), given.targets])
        fans = np.concatenate([edges.fan_out.numpy() * visible[edges.second.numpy()], given.fan_out])
        shares = fans / np.maximum(np.bincount(heads, fans, count), 1e-9)[heads]
        ends = softmax(suggested.double(), 0).numpy()
        ends += np.bincount(references[:, 1], minlength=count) / len(references)
        values = ends.copy()
        for _ in range(STEPS):
            ends = np.bincount(heads, shares * ends[targets], count)
            values += ends
        return cls(nodes, values / values.mean() + LEAST)

    def at(self, entities: np.ndarray) -> np.ndarray:
        if self.nodes is None:
            return np.asarray(self.values[entities])
        places = np.minimum(np.searchsorted(self.nodes, entities), len(self.nodes) - 1)
        return np.asarray(np.where(self.nodes[places] == entities, self.values[places], LEAST))


@dataclass(eq=False)
class Surroundings:
    """What walks from the heads of one task may take: edges of the graph, and the distinct `references` (K, 2) as edges
    of relation 2R and, inverse, 2R + 1. With `visible` (2R,), a bool for each relation, edges of the others are not
    taken."""

    graph: Graph
    references: np.ndarray
    worth: Worth
    most_edges: int
    visible: np.ndarray | None = None
    _of_hubs: dict[int, Taken] = field(default_factory=dict)  # the edges that are taken of entities with very many

    def __post_init__(self) -> None:
        self.most_of_one = max(FEWEST, int(SHARE * self.most_edges))
        edges = reference_edges(self.references, 2 * len(self.graph.relations))
        self.given = edges.take(np.lexsort((-self.worth.at(edges.targets), edges.owners)))

    def bytes(self) -> int:
        given = sum(column.nbytes for column in self.given)
        return self.worth.values.nbytes + given + 20 * self.most_of_one * len(self._of_hubs)

    def sizes(self, entities: np.ndarray) -> np.ndarray:
        """The number of edges that are taken of each entity (n,), at most."""
        first, last = self._references_of(entities)
        return np.asarray(np.minimum(self.graph.degrees_of(entities, self.visible), self.most_of_one) + last - first)

    def edges(self, entities: np.ndarray) -> NearEdges:
        """The edges that are taken of distinct entities (n,)."""
        graph = self.graph
        is_hub = graph.degrees_of(entities, self.visible) > self.most_of_one
        few = entities[~is_hub]
        firsts, counts, owners = graph.slots_of(few, self.visible)
        taken = [Taken.of(firsts, counts, few[owners]), *map(self._of_hub, entities[is_hub].tolist())]
        at, heads, fan_out = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        of_graph = NearEdges(heads, graph.tail_ids[at], graph.relation_ids[at], fan_out, fan_in_of(graph, at))
        given, _ = spans(*self._references_of(entities))
        return NearEdges.joined(of_graph, self.given.take(given))

    def _references_of(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the references of each entity (n,) begin and end."""
        first, last = (np.searchsorted(self.given.owners, entities, side) for side in ("left", "right"))
        return first, np.minimum(last, first + self.most_of_one)

    def _of_hub(self, entity: int) -> Taken:
        """The edges that are taken of an entity with very many."""
        if entity not in self._of_hubs:
            firsts, counts, _ = self.graph.slots_of(np.array([entity]), self.visible)
            every = Taken.of(firsts, counts, np.full(len(firsts), entity))
            merit = every.fan_out * self.worth.at(self.graph.tail_ids[every.edges])
            best = np.argsort(-merit, kind="stable")[: self.most_of_one]
            self._of_hubs[entity] = Taken(*(column[best] for column in every))
        return self._of_hubs[entity]

    def near(self, head: int) -> tuple[np.ndarray, RowEdges]:
        """The entities (n,) that a walk from a head reaches, sorted, and the edges between them."""
        nodes = np.array([head])
        mass: np.ndarray = np.ones(1)  # the share of walks that passes through each
        expanded = np.zeros(1, bool)
        left = self.most_edges
        taken: list[NearEdges] = []
        for number in range(ROUNDS):
            waiting = np.flatnonzero(~expanded)
            sizes = self.sizes(nodes[waiting])
            merit = mass[waiting] * self.worth.at(nodes[waiting]) / np.maximum(sizes, 1)
            order = np.argsort(-merit, kind="stable")
            totals = np.cumsum(sizes[order])
            limit = left * (number + 1) // ROUNDS
            chosen = order[totals <= limit] if number else order  # a head has all its edges
            left -= int(sizes[chosen].sum())
            chosen = waiting[chosen]
            expanded[chosen] = True
            edges = self.edges(nodes[chosen])
            taken.append(edges)
            owners = np.searchsorted(nodes, edges.owners)
            shares = mass[owners] * edges.fan_out
            shares /= np.maximum(np.bincount(owners, edges.fan_out, len(nodes)), 1e-9)[owners]
            before = nodes
            nodes, which = np.unique(np.concatenate([nodes, edges.targets]), return_inverse=True)
            mass = np.bincount(which, np.concatenate([mass, shares]))
            known = expanded
            expanded = np.zeros(len(nodes), bool)
            expanded[which[: len(before)]] = known
        return nodes, self._row_edges(nodes, NearEdges.joined(*taken), expanded)

    def _row_edges(self, nodes: np.ndarray, edges: NearEdges, expanded: np.ndarray) -> RowEdges:
        """The edges by target and relation: those that were taken, and their inverses where these were not."""
        signed = 2 * len(self.graph.relations)
        sources = np.searchsorted(nodes, edges.owners)
        targets = np.searchsorted(nodes, edges.targets)
        back = ~expanded[targets]
        inverse = np.where(
            edges.relations < signed, (edges.relations + signed // 2) % max(signed, 1), edges.relations ^ 1
        )
        relations = np.concatenate([edges.relations, inverse[back]])
        begins_at = np.concatenate([sources, targets[back]])
        ends_at = np.concatenate([targets, sources[back]])
        fan_out = np.concatenate([edges.fan_out, edges.fan_in[back]])
        fan_in = np.concatenate([edges.fan_in, edges.fan_out[back]])
        pairs = ends_at * (signed + 2) + relations
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        begins = np.flatnonzero(np.diff(pairs, prepend=-1))
        rows, of_pairs = np.divmod(pairs[begins], signed + 2)
        columns = (
            begins_at[order].astype(np.int32),
            fan_out[order],
            of_pairs,
            fan_in[order][begins],
            np.append(begins, len(pairs)).astype(np.int32),
            np.searchsorted(rows, np.arange(len(nodes) + 1)).astype(np.int32),
        )
        return RowEdges(*map(torch.from_numpy, columns))


def as_one(parts: Sequence[RowEdges]) -> RowEdges:
    """The edges of several graphs as those of one, whose nodes come one graph after the other."""
    nodes = edges = pairs = 0
    columns = []
    for part in parts:
        offsets = (part.edges[:-1] + edges, part.pairs[:-1] + pairs)
        columns.append((part.sources + nodes, part.source_fans, part.relations, part.fans, *offsets))
        nodes += len(part.pairs) - 1
        edges += len(part.sources)
        pairs += len(part.relations)
    sources, source_fans, relations, fans, edges_of, pairs_of = (torch.cat(each) for each in zip(*columns, strict=True))
    return RowEdges(
        sources,
        source_fans,
        relations,
        fans,
        torch.cat([edges_of, edges_of.new_tensor([edges])]),
        torch.cat([pairs_of, pairs_of.new_tensor([pairs])]),
    )


def _fans(ends: np.ndarray) -> np.ndarray:
    """One over the number of equal ends (n,)."""
    _, which, counts = np.unique(ends, return_inverse=True, return_counts=True)
    return (1 / counts[which]).astype(np.float32)
