"""Scores of one pair with some edges, marks or references left out: the network runs again where it can matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph.groups import offsets_of
from fewlink.models.trail.network import Encoded, TrailNetwork
from fewlink.models.trail.reading import ReadGraph

AT_ONCE = 1 << 20  # numbers of a block of messages


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
    tail; the references are edges of relation 2R and, inverse, of 2R + 1.
    """

    nodes: np.ndarray
    edges: np.ndarray
    relations: int
    layers: Sequence[ConeLayer]

    @classmethod
    def of(cls, graph: ReadGraph, references: np.ndarray, head: int, tail: int, depth: int) -> Cone:
        """For `depth` layers and references (K, 2)."""
        order, count = graph.edges.by_tail, graph.edges.relations
        given, taken = references.T
        sources, relations, targets = (part.cpu().numpy() for part in (order.first, order.second, order.row))
        fans = torch.stack([order.fan_out, order.fan_in], 1)
        fans = torch.cat([fans, fans.prod(1, keepdim=True).sqrt(), torch.ones_like(fans[:, :1])], 1)
        new = np.repeat([count, count + 1], len(references)).astype(relations.dtype)
        sources = np.concatenate([sources, given, taken]).astype(np.int64)
        targets = np.concatenate([targets, taken, given]).astype(np.int64)
        relations = np.concatenate([relations, new]).astype(np.int64)
        far = depth + 1
        from_marks, to_tail = (
            hops(sources, targets, graph.edges.nodes, np.asarray(begin), far)
            for begin in ([head, *given, *taken], [tail])
        )
        used = np.flatnonzero(from_marks[sources] + 1 + to_tail[targets] <= depth)
        used = used[np.argsort(targets[used], kind="stable")]
        nodes = np.unique(np.concatenate([sources[used], targets[used], [head, tail], given, taken]))
        edges = np.stack(
            [np.searchsorted(nodes, sources[used]), relations[used], np.searchsorted(nodes, targets[used])]
        )
        begun, left, device = from_marks[nodes], to_tail[nodes], graph.edges.device
        fans = torch.cat([fans, fans.new_ones(2 * len(references), 4)])[torch.from_numpy(used).to(device)]

        def layer(number: int) -> ConeLayer:
            rows = np.flatnonzero((begun <= number) & (left <= depth - number))
            some = np.flatnonzero((begun[edges[0]] < number) & (left[edges[2]] <= depth - number))
            at = np.searchsorted(rows, edges[2, some])
            begins, ends, kinds, which = (
                torch.from_numpy(part).to(device) for part in (edges[0, some], at, edges[1, some], some)
            )
            return ConeLayer(rows, some, offsets_of(at, len(rows)), begins, ends, kinds, fans[which])

        return cls(nodes, edges.T, count, [layer(number) for number in range(1, depth + 1)])

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


class Removal(NamedTuple):
    """What a run of the network leaves out: the head's mark, references, and places of edges of the cone."""

    head: bool = False
    references: Sequence[int] = ()
    edges: np.ndarray | Sequence[int] = ()


class Trace(NamedTuple):
    """States (n, W) before the first layer and after each, and the sums of messages of each layer at its rows."""

    states: list[Tensor]
    sums: list[Tensor]


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair with its cone; `references` (K, 2) are places in the cone, like `head` and `tail`."""

    network: TrailNetwork
    cone: Cone
    references: np.ndarray
    head: int
    tail: int

    @classmethod
    def of(cls, network: TrailNetwork, graph: ReadGraph, references: np.ndarray, head: int, tail: int) -> Pair:
        """The pair of two entities of a graph, given references (K, 2) in its ids."""
        cone = Cone.of(graph, references, head, tail, network.shape.layers)
        return cls(network, cone, cone.place(references), int(cone.place(head)), int(cone.place(tail)))

    @torch.no_grad()
    def scores(self, encoded: Encoded, removals: Sequence[Removal], trace: Trace | None = None) -> Tensor:
        """The score without each of these (L,); `encoded` has one task for all or one for each.

        A trace is filled for the first removal.
        """
        if not removals:
            return torch.zeros(0)
        x, width = self._marks(encoded, removals), self.network.shape.width
        removed = [self._removed(removal) for removal in removals]
        if trace is not None:
            trace.states.append(x[:, 0])
        for layer, update, weights in zip(
            self.cone.layers, self.network.layers, relation_weights(encoded), strict=True
        ):
            sums = self._sums(x, layer, weights.transpose(0, 1).unflatten(-1, (4, width // 4)), removed)
            rows = torch.from_numpy(layer.rows).to(x.device)
            x = x.index_copy(0, rows, update.updated(x[rows], sums))  # type: ignore[operator]
            if trace is not None:
                trace.states.append(x[:, 0])
                trace.sums.append(sums[:, 0])
        return self.readout(x[self.tail], encoded)

    def _marks(self, encoded: Encoded, removals: Sequence[Removal]) -> Tensor:
        """States before the first layer (n, L, W)."""
        marks = self.network.marks(encoded.task).unflatten(-1, (3, -1)).expand(len(removals), -1, -1)  # (L, 3, W)
        x: Tensor = marks.new_zeros(len(self.cone.nodes), len(removals), marks.shape[-1])
        for task, removal in enumerate(removals):
            if not removal.head:
                x[self.head, task] += marks[task, 0]
            for k, ends in enumerate(self.references.tolist()):
                if k not in removal.references:
                    for end, mark in zip(ends, marks[task, 1:], strict=True):
                        x[end, task] += mark
        return x

    def _removed(self, removal: Removal) -> np.ndarray:
        """Places of all edges that are left out."""
        heads, relations, tails = self.cone.edges.T
        gone = [np.asarray(removal.edges, np.int64)]
        ends, counts = np.unique(self.references[list(removal.references)], axis=0, return_counts=True)
        for (given, taken), count in zip(ends, counts, strict=True):  # the same pair may be given twice
            forth = (heads == given) & (relations == self.cone.relations) & (tails == taken)
            back = (heads == taken) & (relations == self.cone.relations + 1) & (tails == given)
            gone += [np.flatnonzero(forth)[:count], np.flatnonzero(back)[:count]]
        return np.unique(np.concatenate(gone))

    def _sums(self, x: Tensor, layer: ConeLayer, weights: Tensor, removed: Sequence[np.ndarray]) -> Tensor:
        """Sums of messages at a layer's rows (n, L, W), given weights (2R + 2, L or 1, 4, W / 4)."""
        sums: Tensor = x.new_zeros(len(layer.rows), *x.shape[1:])
        x = x.unflatten(-1, (4, -1))
        gone = [np.flatnonzero(np.isin(layer.edges, edges)) for edges in removed]
        places, tasks = np.concatenate(gone), np.repeat(np.arange(len(gone)), [len(part) for part in gone])
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        for at in range(0, len(layer.edges), step):
            part = slice(at, at + step)
            messages = x[layer.sources[part]]
            messages *= weights[layer.relations[part]] * layer.fans[part, None, :, None]
            here = (places >= at) & (places < at + step)
            messages[places[here] - at, tasks[here]] = 0
            sums.index_add_(0, layer.targets[part], messages.flatten(2))
        return sums

    def readout(self, states: Tensor, encoded: Encoded) -> Tensor:
        """Scores (L,) of the tail's states (L, W)."""
        first = torch.zeros(len(states), 1, dtype=torch.long, device=states.device)
        return self.network.scores(states[None, :, None], encoded, first).flatten()


def relation_weights(encoded: Encoded) -> Tensor:
    """Weights of all relations, the new one and its inverse last: (layers, L, 2R + 2, W)."""
    return torch.cat([encoded.relations, encoded.new], 2)


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
