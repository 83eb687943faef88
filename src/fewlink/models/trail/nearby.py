"""TRAIL near each head only: a bounded walk chooses a small part of the graph around it, and the network reads the
parts of many heads as one graph.

A walk begins at a head and chooses among the relations of an entity, then among the edges of that relation. An entity
is worth passing if walks from it soon end at a tail of a reference, or at an entity that the references alone suggest.
All edges of an entity are taken, in the order of the share of walks that passes through each of its edges times its
worth, until there are enough; of an entity with very many edges, those to the worthiest entities.

States of the stream that begins at the references are those of the graph that the scorer reads; the head's own states
are zero outside of its part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softmax

from fewlink.graph import Graph
from fewlink.graph.groups import spans
from fewlink.models.trail.network import HEAD, Encoded, TrailNetwork
from fewlink.models.trail.propagate import MessageEdges, Rows, Weights, every_row, propagate, reached_by
from fewlink.propagation.edges import EdgeOrder, RowEdges, Taken, fan_in_of

ROUNDS = 4  # times that the neighbours of reached entities are reached in turn
STEPS = 3  # of walks to the entities that the references suggest
LEAST = 0.01  # that an entity is worth, compared with the mean
FEWEST = 8  # edges of one entity may be taken in any part
SHARE = 0.1  # of a part's edges may be those of one entity, or `FEWEST` if that is more
CANDIDATES_AT_ONCE = 1 << 11  # whose hidden layer a processor's cache holds


class Worth(NamedTuple):
    """How worthwhile it is to pass through entities: `values` (n,) of `nodes` (n,), sorted, or of all entities."""

    nodes: np.ndarray | None
    values: np.ndarray

    @classmethod
    def of(cls, nodes: np.ndarray | None, edges: EdgeOrder, references: np.ndarray, suggested: Tensor) -> Worth:
        """Given edges by head (e,), references (K, 2) as nodes, and the scores (n,) of nodes without any head."""
        given = reference_edges(references, 0)
        count = len(suggested)
        both = ((edges.row, given.owners), (edges.first, given.targets), (edges.fan_out, given.fan_out))
        heads, targets, fans = (np.concatenate([each.numpy(), more]) for each, more in both)
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


class NearEdges(NamedTuple):
    """Edges of some entities. Shapes: all (e,); `owners` are places among these entities; fans as in `EdgeOrder`."""

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
    """Distinct references (K, 2) as edges of a relation, then of the next one, its inverse; owners are entities."""
    heads, tails = np.asarray(pairs, np.int64).T
    out, into = (_fans(ends) for ends in (heads, tails))
    return NearEdges(
        np.concatenate([heads, tails]),
        np.concatenate([tails, heads]),
        np.repeat([relation, relation + 1], len(heads)),
        np.concatenate([out, into]),
        np.concatenate([into, out]),
    )


class Surroundings:
    """The edges around entities for one task: those of the graph, and distinct references (K, 2) as edges of relation
    2R and, inverse, 2R + 1, whose fans are counted among the references. With `visible` (2R,), a bool for each relation
    and inverse, edges of the others are not taken."""

    def __init__(
        self,
        graph: Graph,
        references: np.ndarray,
        worth: Worth,
        most_edges: int,
        visible: np.ndarray | None = None,
    ) -> None:
        self.graph = graph
        self.worth = worth
        self.most_edges = most_edges
        self.visible = visible
        self.most_of_one = max(FEWEST, int(SHARE * most_edges))
        self.relations = 2 * len(graph.relations) + 2
        edges = reference_edges(references, self.relations - 2)
        self.given = edges.take(np.lexsort((-worth.at(edges.targets), edges.owners)))
        self._first: dict[int, Taken] = {}  # the edges that are taken of entities with very many

    def bytes(self) -> int:
        values = self.worth.values.nbytes
        given = sum(column.nbytes for column in self.given)
        return values + given + 20 * self.most_of_one * len(self._first)

    def sizes(self, entities: np.ndarray) -> np.ndarray:
        """The number of edges that are taken of each entity (n,), at most."""
        first, last = self._spans(entities)
        return np.asarray(np.minimum(self.graph.degrees_of(entities, self.visible), self.most_of_one) + last - first)

    def edges(self, entities: np.ndarray) -> NearEdges:
        """The edges that are taken of entities (n,), each with its inverse."""
        graph = self.graph
        many = graph.degrees_of(entities, self.visible) > self.most_of_one
        few = np.flatnonzero(~many)
        hubs = np.flatnonzero(many)
        firsts, counts, owners = graph.slots_of(entities[few], self.visible)
        taken = [Taken.of(firsts, counts, few[owners])]
        for hub in hubs.tolist():
            some = self._first_edges(int(entities[hub]))
            taken.append(some._replace(heads=np.full_like(some.heads, hub)))
        at, owners, fan_out = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        given, of_given = spans(*self._spans(entities))
        of_graph = NearEdges(owners, graph.tail_ids[at], graph.relation_ids[at], fan_out, fan_in_of(graph, at))
        return NearEdges.joined(of_graph, self.given.take(given)._replace(owners=of_given))

    def _spans(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the references of each entity (n,) begin and end."""
        first, last = (np.searchsorted(self.given.owners, entities, side) for side in ("left", "right"))
        return first, np.minimum(last, first + self.most_of_one)

    def _first_edges(self, entity: int) -> Taken:
        """The edges that are taken of an entity with very many."""
        if entity not in self._first:
            firsts, counts, _ = self.graph.slots_of(np.array([entity]), self.visible)
            every = Taken.of(firsts, counts, np.full(len(firsts), entity))
            merit = every.fan_out * self.worth.at(self.graph.tail_ids[every.edges])
            best = np.argsort(-merit, kind="stable")[: self.most_of_one]
            self._first[entity] = Taken(*(column[best] for column in every))
        return self._first[entity]


class Near(NamedTuple):
    """The parts around several heads, side by side. A node is an entity in the part of one head.

    Shapes: `begins` (H,) the nodes that are the heads themselves; `heads` (n,) the place of each node's head, sorted;
    `entities` (n,), sorted for each head; `edges` of all nodes.
    """

    begins: np.ndarray
    heads: np.ndarray
    entities: np.ndarray
    edges: RowEdges

    @classmethod
    def of(cls, around: Surroundings, heads: np.ndarray) -> Near:
        """Walk from each of several heads (H,)."""
        count = len(around.graph.entities)
        places = np.arange(len(heads))
        keys = begins = places * count + heads  # of nodes, sorted
        mass: np.ndarray = np.ones(len(keys))
        expanded = np.zeros(len(keys), bool)
        left = np.full(len(heads), around.most_edges)
        taken = list[NearEdges]()
        for number in range(ROUNDS):
            waiting = np.flatnonzero(~expanded)
            owner, entities = np.divmod(keys[waiting], count)
            sizes = around.sizes(entities)
            order = np.lexsort((-mass[waiting] * around.worth.at(entities) / np.maximum(sizes, 1), owner))
            waiting = waiting[order]
            owner = owner[order]
            sizes = sizes[order]
            totals = np.cumsum(sizes)
            totals -= np.append(0, totals)[np.searchsorted(owner, places)][owner]  # those of other heads
            limit = np.maximum(left * (number + 1) // ROUNDS, 0 if number else sizes)
            chosen = totals <= limit[owner]
            waiting = waiting[chosen]
            owner = owner[chosen]
            sizes = sizes[chosen]
            edges = around.edges(keys[waiting] % count)
            shares = mass[waiting][edges.owners] * edges.fan_out
            shares /= np.maximum(np.bincount(edges.owners, edges.fan_out, len(waiting)), 1e-9)[edges.owners]
            targets = edges.targets + owner[edges.owners] * count
            taken.append(edges._replace(owners=keys[waiting][edges.owners], targets=targets))
            left = left - np.bincount(owner, sizes, len(heads)).astype(np.int64)
            expanded[waiting] = True
            before = len(keys)
            keys, which = np.unique(np.concatenate([keys, targets]), return_inverse=True)
            mass = np.bincount(which, np.concatenate([mass, shares]))
            known = expanded
            expanded = np.zeros(len(keys), bool)
            expanded[which[:before]] = known
        edges = NearEdges.joined(*taken)
        sources = np.searchsorted(keys, edges.owners)
        targets = np.searchsorted(keys, edges.targets)
        of_nodes = _row_edges(edges, sources, targets, expanded, around.relations)
        return cls(np.searchsorted(keys, begins), keys // count, keys % count, of_nodes)

    def states(self, network: TrailNetwork, encoded: Encoded, wanted: Tensor) -> Tensor:
        """States (m, W) of `wanted` nodes (m,) in the streams of the heads."""
        edges = MessageEdges(self.edges)
        weights = [
            Weights(layer, torch.cat([relations, new], 1), relations.new_zeros(0, network.shape.width))
            for layer, relations, new in zip(
                network.layers_of(HEAD), encoded.relations[HEAD], encoded.new[HEAD], strict=True
            )
        ]
        every = every_row(edges)
        own, _ = self.edges.of(wanted)
        rows = [*[every] * (len(weights) - 1), Rows(wanted, every.entities, wanted, own)]
        begins = torch.from_numpy(self.begins)
        marks = network.head_marks(encoded, 1).expand(len(begins), -1)
        return propagate(edges, reached_by(begins, marks, 1, 1), weights, rows)[:, 0, 0]


def _row_edges(
    edges: NearEdges, sources: np.ndarray, targets: np.ndarray, expanded: np.ndarray, relations: int
) -> RowEdges:
    """The edges of all nodes by target and relation: those that were taken, and their inverses where these were not."""
    known = relations - 2
    back = ~expanded[targets]
    inverse = np.where(edges.relations < known, (edges.relations + known // 2) % max(known, 1), edges.relations ^ 1)
    taken = np.concatenate([edges.relations, inverse[back]])
    begins_at = np.concatenate([sources, targets[back]])
    ends_at = np.concatenate([targets, sources[back]])
    fan_out, fan_in = (
        np.concatenate([own, other[back]])
        for own, other in ((edges.fan_out, edges.fan_in), (edges.fan_in, edges.fan_out))
    )
    pairs = ends_at * relations + taken
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    begins = np.flatnonzero(np.diff(pairs, prepend=-1))
    rows, of_pairs = np.divmod(pairs[begins], relations)
    columns = (
        begins_at[order].astype(np.int32),
        fan_out[order],
        of_pairs,
        fan_in[order][begins],
        np.append(begins, len(pairs)).astype(np.int32),
        np.searchsorted(rows, np.arange(len(expanded) + 1)).astype(np.int32),
    )
    return RowEdges(*map(torch.from_numpy, columns))


@torch.no_grad()
def scores_near(
    network: TrailNetwork, encoded: Encoded, near: Near, candidates: np.ndarray, base: Tensor, cosines: Tensor | None
) -> Tensor:
    """Scores (H, C) of distinct candidates (C,), sorted, given what the references add to their hidden layer, `base`
    (C, 2W), and what names say (H, C, n): equation 6."""
    places = np.minimum(np.searchsorted(candidates, near.entities), len(candidates) - 1)
    wanted = np.flatnonzero(candidates[places] == near.entities)
    of_states = near.states(network, encoded, torch.from_numpy(wanted)) @ network.of_state.weight.chunk(2, 1)[0].T
    columns = torch.from_numpy(places[wanted])
    of_names = network.of_names.weight.T
    heads = len(near.begins)
    begins = range(0, len(candidates), CANDIDATES_AT_ONCE)
    bounds = np.searchsorted(
        near.heads[wanted] * len(candidates) + places[wanted],
        np.add.outer(np.arange(heads) * len(candidates), [*begins, len(candidates)]),
    )
    scores = base.new_empty(heads, len(candidates))
    for head in range(heads):
        for at, first, last in zip(begins, bounds[head], bounds[head, 1:], strict=False):
            part = slice(at, at + CANDIDATES_AT_ONCE)
            hidden = base[part].clone() if cosines is None else torch.addmm(base[part], cosines[head, part], of_names)
            hidden.index_add_(0, columns[first:last] - at, of_states[first:last])
            scores[head, part] = network.last(hidden.relu_()).squeeze(-1)
    return scores


def _fans(ends: np.ndarray) -> np.ndarray:
    """One over the number of equal ends (n,)."""
    _, which, counts = np.unique(ends, return_inverse=True, return_counts=True)
    return (1 / counts[which]).astype(np.float32)
