"""Scores of one pair with some edges left out: both streams of the network run again where states can differ."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph.groups import offsets_of, spans
from fewlink.models.trail.answering import ReferenceEdges
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, Layer, TrailNetwork
from fewlink.models.trail.references import References
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, constants

AT_ONCE = 1 << 20  # numbers of a block of messages
STREAMS = (HEAD, REFERENCES)


class ConeLayer(NamedTuple):
    """What one layer computes: new states of `rows`, from edges whose targets are places in `rows`.

    Shapes: `rows` (n,); `edges` (e,) places in `Cone.edges`, sorted by target; `sources`, `targets`, `relations` (e,);
    `fans` (e, 4); `offsets` (n + 1,), where the edges of each row begin.
    """

    rows: np.ndarray
    edges: np.ndarray
    offsets: np.ndarray
    sources: Tensor
    targets: Tensor
    relations: Tensor
    fans: Tensor

    def over(self, weights: Tensor, some: slice | np.ndarray) -> Tensor:
        """What the messages of some edges are multiplied with (n, W), given weights of relations (2R + 2, W)."""
        blocks: Tensor = weights[self.relations[some]].unflatten(-1, (4, -1)) * self.fans[some][:, :, None]
        return blocks.flatten(1)


@dataclass(frozen=True, eq=False)
class Cone:
    """The part of a graph that can change the score of one pair: what marks reach and what reaches the tail.

    Entities are numbered by their places in `nodes` (n,). `edges` (e, 3) are heads, relations and tails, sorted by
    tail; the references are edges of relation 2R and, inverse, of 2R + 1. Each stream has its own `layers`.
    """

    nodes: np.ndarray
    edges: np.ndarray
    relations: int
    layers: tuple[Sequence[ConeLayer], Sequence[ConeLayer]]

    @classmethod
    def of(
        cls, table: EdgeTable, own: ReferenceEdges, begins: tuple[np.ndarray, np.ndarray], tail: int, depth: int
    ) -> Cone:
        """For `depth` layers of streams that begin at the entities in `begins`."""
        order = table.by_tail
        count = table.relations
        far = depth + 1
        sources, relations, targets = (
            torch.cat([of_graph.long(), of_references]).cpu().numpy()
            for of_graph, of_references in (
                (order.first, own.sources),
                (order.second, own.kinds + count),
                (order.row, own.targets),
            )
        )
        to_tail = hops(sources, targets, table.nodes, np.array([tail]), far)
        from_marks = [hops(sources, targets, table.nodes, begin, far) for begin in begins]
        nearest = np.minimum(*from_marks)
        used = np.flatnonzero(nearest[sources] + 1 + to_tail[targets] <= depth)
        used = used[np.argsort(targets[used], kind="stable")]
        nodes = np.unique(np.concatenate([sources[used], targets[used], [tail], *begins]))
        edges = np.stack(
            [np.searchsorted(nodes, sources[used]), relations[used], np.searchsorted(nodes, targets[used])]
        )
        place = torch.from_numpy(used)
        is_own = place >= table.edges
        fans = torch.empty(len(used), 4)
        fans[~is_own] = constants(order, place[~is_own], 4, Norms.FOUR)
        fans[is_own] = own.constants[place[is_own] - table.edges, 0, :: own.constants.shape[2] // 4]
        left = to_tail[nodes]

        def layer(begun: np.ndarray, number: int) -> ConeLayer:
            rows = np.flatnonzero((begun <= number) & (left <= depth - number))
            some = np.flatnonzero((begun[edges[0]] < number) & (left[edges[2]] <= depth - number))
            at = np.searchsorted(rows, edges[2, some])
            begin, end, kinds, which = (torch.from_numpy(each) for each in (edges[0, some], at, edges[1, some], some))
            return ConeLayer(rows, some, offsets_of(at, len(rows)), begin, end, kinds, fans[which])

        of_head, of_references = (
            [layer(begun[nodes], number) for number in range(1, depth + 1)] for begun in from_marks
        )
        return cls(nodes, edges.T, count, (of_head, of_references))

    def place(self, entities: np.ndarray | int) -> np.ndarray:
        """The places of entities that are in the cone."""
        return np.searchsorted(self.nodes, entities)

    def find(self, edges: np.ndarray) -> np.ndarray:
        """The places of edges (n, 3) and of their inverses, as far as they are in the cone."""
        heads, relations, tails = np.asarray(edges).reshape(-1, 3).T
        half = self.relations // 2
        inverse = np.where(relations < self.relations, (relations + half) % self.relations, relations ^ 1)
        wanted = [self._keys(heads, relations, tails), self._keys(tails, inverse, heads)]
        return np.flatnonzero(np.isin(self._keys(*self.edges.T), np.concatenate(wanted)))

    def _keys(self, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
        keys: np.ndarray = (heads * (self.relations + 2) + relations) * len(self.nodes) + tails
        return keys


class Trace(NamedTuple):
    """States (n, W) of one stream before the first layer and after each; sums of messages at the rows of each layer."""

    states: list[Tensor]
    sums: list[Tensor]


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of one task with its cone; `head`, `tail` and `ends` (E,) of the references are places in the cone.

    `cosines` (COSINES,) are those of the pair's names, or None.
    """

    network: TrailNetwork
    encoded: Encoded
    cone: Cone
    marks: Tensor  # (2, E) of the references
    ends: np.ndarray
    head: int
    tail: int
    cosines: Tensor | None

    @classmethod
    def of(
        cls,
        network: TrailNetwork,
        encoded: Encoded,
        table: EdgeTable,
        references: References,
        edges: ReferenceEdges,
        head: int,
        tail: int,
        cosines: Tensor | None = None,
    ) -> Pair:
        """The pair of two nodes of an edge table, whose nodes are also the ends of the references and their edges."""
        ends = references.ends[0].numpy()
        cone = Cone.of(table, edges, (np.array([head]), ends), tail, network.shape.layers)
        places = cone.place(ends), int(cone.place(head)), int(cone.place(tail))
        return cls(network, encoded, cone, references.marks[0], *places, cosines)

    @functools.cached_property
    def traces(self) -> tuple[Trace, Trace]:
        """Both streams with all edges."""
        with torch.no_grad():
            of_head, of_references = (self._trace(stream) for stream in STREAMS)
        return of_head, of_references

    @property
    def states(self) -> tuple[Tensor, Tensor]:
        """The states (W,) of the tail after the last layer of both streams."""
        of_head, of_references = (trace.states[-1][self.tail] for trace in self.traces)
        return of_head, of_references

    @torch.no_grad()
    def scores(self, removals: Sequence[np.ndarray]) -> Tensor:
        """The score without each of these sets of edges, given as places in the cone: (L,)."""
        if not removals:
            return torch.zeros(0)
        return self.score(*(self._without(stream, removals) for stream in STREAMS))

    def score(self, from_head: Tensor, from_references: Tensor, cosines: Tensor | None = None) -> Tensor:
        """Scores (…) of states (…, W) of the tail in both streams, with the pair's own `cosines` or others."""
        own = self.cosines if cosines is None else cosines
        return self.network.score(from_head, from_references, self.encoded.task[0], own)

    def _trace(self, stream: int) -> Trace:
        x = self._first(stream)
        all_sums = []
        states = [x]
        for layer, update, weights in self._layers(stream):
            sums = x.new_zeros(len(layer.rows), x.shape[1])
            for part in _parts(len(layer.edges), x[0]):
                sums.index_add_(0, layer.targets[part], x[layer.sources[part]] * layer.over(weights, part))
            rows = torch.from_numpy(layer.rows)
            x = x.index_copy(0, rows, update.updated(x[rows], sums))
            states.append(x)
            all_sums.append(sums)
        return Trace(states, all_sums)

    def _without(self, stream: int, removals: Sequence[np.ndarray]) -> Tensor:
        """States (L, W) of the tail after the last layer of a stream, without each of these sets of edges."""
        trace = self.traces[stream]
        count = len(removals)
        nodes = np.zeros(0, np.int64)
        states = trace.states[0].new_zeros(0, count, self.network.shape.width)
        for (layer, update, weights), base in zip(self._layers(stream), trace.states[:-1], strict=True):
            before = Changed.of(base, nodes, states)
            nodes, sums = before.sums(layer, weights, removals)
            states = update.updated(before.at(nodes), sums)
        place = np.flatnonzero(nodes == self.tail)
        return states[place[0]] if len(place) else trace.states[-1][self.tail].expand(count, -1)

    def _layers(self, stream: int) -> Iterator[tuple[ConeLayer, Layer, Tensor]]:
        """Each layer with its weights (2R + 2, W)."""
        return zip(self.cone.layers[stream], self.network.layers_of(stream), self.weights(stream), strict=True)

    def _first(self, stream: int) -> Tensor:
        """States (n, W) before the first layer."""
        of_head, *of_ends = self.network.marks(self.encoded.task[0]).view(3, -1)
        x: Tensor = of_head.new_zeros(len(self.cone.nodes), len(of_head))
        if stream == HEAD:
            x[self.head] = of_head
        else:
            x[self.ends] = self.marks.T @ torch.stack(of_ends)
        return x

    def weights(self, stream: int) -> Tensor:
        """Weights of all relations, the new one and its inverse last: (layers, 2R + 2, W)."""
        return torch.cat([self.encoded.relations[stream, :, 0], self.encoded.new[stream, :, 0]], 1)


class Changed(NamedTuple):
    """States without L sets of edges, where they can differ from those with all edges.

    Shapes: `base` (n, W) with all edges; `places` (n,) of nodes in `states` (c, L, W), or -1 where nothing changes.
    """

    base: Tensor
    places: np.ndarray
    states: Tensor

    @classmethod
    def of(cls, base: Tensor, nodes: np.ndarray, states: Tensor) -> Changed:
        places = np.full(len(base), -1)
        places[nodes] = np.arange(len(nodes))
        return cls(base, places, states)

    def at(self, nodes: np.ndarray) -> Tensor:
        """The states (m, L, W) of nodes (m,)."""
        found = self.base[nodes, None].repeat(1, self.states.shape[1], 1)
        inside = self.places[nodes] >= 0
        found[inside] = self.states[self.places[nodes[inside]]]
        return found

    def sums(self, layer: ConeLayer, weights: Tensor, removals: Sequence[np.ndarray]) -> tuple[np.ndarray, Tensor]:
        """The nodes (c,) that a layer can change, and the sums of their messages (c, L, W).

        Messages from unchanged nodes are added up once; all are added up anew, since a sum of nothing is exactly zero.
        """
        sources = layer.sources.numpy()
        targets = layer.targets.numpy()
        gone = [np.flatnonzero(np.isin(layer.edges, edges)) for edges in removals]
        removed = np.concatenate(gone)
        without = np.repeat(np.arange(len(gone)), [len(each) for each in gone])
        differ = self.places[sources] >= 0
        differ[removed] = True
        rows = np.unique(np.append(targets[differ], np.flatnonzero(self.places[layer.rows] >= 0)))
        edges, owners = spans(layer.offsets[rows], layer.offsets[rows + 1])
        alike = edges[~differ[edges]]
        moving = edges[differ[edges]]
        to_alike, to_moving = (torch.from_numpy(owners[each]) for each in (~differ[edges], differ[edges]))
        common = self.base.new_zeros(len(rows), self.base.shape[1])
        for part in _parts(len(alike), common[:1]):
            some = alike[part]
            common.index_add_(0, to_alike[part], self.base[sources[some]] * layer.over(weights, some))
        sums = common[:, None].repeat(1, len(removals), 1)
        at = np.searchsorted(moving, removed)
        for part in _parts(len(moving), sums[:1]):
            some = moving[part]
            messages = self.at(sources[some]) * layer.over(weights, some)[:, None]
            here = (at >= part.start) & (at < part.stop)
            messages[at[here] - part.start, without[here]] = 0
            sums.index_add_(0, to_moving[part], messages)
        return layer.rows[rows], sums


def _parts(edges: int, state: Tensor) -> Iterator[slice]:
    """Edges in blocks, given what one of them carries."""
    step = max(1, AT_ONCE // max(1, state.numel()))
    return (slice(at, at + step) for at in range(0, edges, step))


def hops(sources: np.ndarray, targets: np.ndarray, nodes: int, begin: np.ndarray, far: int) -> np.ndarray:
    """How many edges each node is away from the nearest of `begin`, in either direction, or `far` if more: (nodes,)."""
    found = np.full(nodes, far)
    found[begin] = 0
    for distance in range(1, far):
        reached = targets[found[sources] == distance - 1]
        reached = reached[found[reached] == far]
        if not len(reached):
            break
        found[reached] = distance
    return found
