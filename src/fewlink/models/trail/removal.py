"""Scores of one pair with some edges left out: both streams of the network run again where it can matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph.groups import offsets_of
from fewlink.models.trail.answering import ReferenceEdges
from fewlink.models.trail.network import HEAD, REFERENCES, Encoded, TrailNetwork
from fewlink.models.trail.references import References
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, edge_constants

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
        order, count, far = table.by_tail, table.relations, depth + 1
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
        of_graph = edge_constants(order.fan_out, order.fan_in, 4, Norms.FOUR)
        fans = torch.cat([of_graph, own.constants[:, :: own.constants.shape[1] // 4]])[torch.from_numpy(used)]
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
    """States (n, W) of one stream before the first layer and after each, and the sums of messages of each layer at its
    rows."""

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

    @torch.no_grad()
    def scores(self, removals: Sequence[np.ndarray], traces: tuple[Trace, Trace] | None = None) -> Tensor:
        """The score without each of these sets of edges, given as places in the cone: (L,).

        Traces of both streams are filled for the first set.
        """
        if not removals:
            return torch.zeros(0)
        found = [self._states(stream, removals, traces[stream] if traces else None) for stream in STREAMS]
        return self.score(*found)

    def score(self, from_head: Tensor, from_references: Tensor, *, names: bool = True) -> Tensor:
        """Scores (…) of states (…, W) of the tail in both streams."""
        return self.network.score(from_head, from_references, self.encoded.task[0], self.cosines if names else None)

    def _states(self, stream: int, removals: Sequence[np.ndarray], trace: Trace | None) -> Tensor:
        """States (L, W) of the tail after the last layer of a stream."""
        x, width = self._first(stream)[:, None].repeat(1, len(removals), 1), self.network.shape.width
        if trace is not None:
            trace.states.append(x[:, 0])
        for layer, update, weights in zip(
            self.cone.layers[stream], self.network.layers_of(stream), self.weights(stream), strict=True
        ):
            sums = self._sums(x, layer, weights.unflatten(-1, (4, width // 4)), removals)
            rows = torch.from_numpy(layer.rows)
            x = x.index_copy(0, rows, update.updated(x[rows], sums))
            if trace is not None:
                trace.states.append(x[:, 0])
                trace.sums.append(sums[:, 0])
        return x[self.tail]

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

    def _sums(self, x: Tensor, layer: ConeLayer, weights: Tensor, removals: Sequence[np.ndarray]) -> Tensor:
        """Sums of messages at a layer's rows (n, L, W), given weights (2R + 2, 4, W / 4)."""
        sums: Tensor = x.new_zeros(len(layer.rows), *x.shape[1:])
        x = x.unflatten(-1, (4, -1))
        gone = [np.flatnonzero(np.isin(layer.edges, edges)) for edges in removals]
        places, tasks = np.concatenate(gone), np.repeat(np.arange(len(gone)), [len(each) for each in gone])
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        for at in range(0, len(layer.edges), step):
            part = slice(at, at + step)
            messages = x[layer.sources[part]]
            messages *= (weights[layer.relations[part]] * layer.fans[part, :, None])[:, None]
            here = (places >= at) & (places < at + step)
            messages[places[here] - at, tasks[here]] = 0
            sums.index_add_(0, layer.targets[part], messages.flatten(2))
        return sums


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
