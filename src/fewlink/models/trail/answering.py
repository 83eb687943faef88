"""Propagation on a CPU for one task: along the edges of what is reached, and for the wanted entities only."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.graph.groups import spans
from fewlink.models.trail.network import Encoded, Layer, TrailNetwork
from fewlink.models.trail.references import References
from fewlink.propagation.edges import EdgeTable, GraphPart
from fewlink.propagation.product import Norms, chunk_sums, constants, edge_sums, source_states

SPARSE = 0.1  # share of all edges up to which a layer goes along the edges of reached entities only
SPARSE_LAST = 0.4  # share up to which the last layer computes wanted entities only


class ReferenceEdges(NamedTuple):
    """The references of one task as edges of the new relation (`kinds` 0) and of its inverse (1).

    Shapes: `sources`, `targets`, `kinds` (m,); `constants` (m, W).
    """

    sources: Tensor
    targets: Tensor
    kinds: Tensor
    constants: Tensor

    @classmethod
    def of(cls, references: References, width: int) -> ReferenceEdges:
        extra = references.edges()
        kinds = torch.arange(2).repeat_interleave(references.pairs.shape[1])
        scales = references.constants(width, Norms.FOUR).flatten(0, 2)
        return cls(extra.rows[extra.sources], extra.rows[extra.targets], kinds, scales)

    def within(self, part: GraphPart) -> ReferenceEdges:
        """Those between entities of a part of the graph, as places there."""
        sources, targets = (torch.from_numpy(part.places(ends.numpy())) for ends in (self.sources, self.targets))
        inside = (sources >= 0) & (targets >= 0)
        return ReferenceEdges(sources[inside], targets[inside], self.kinds[inside], self.constants[inside])


class Reached(NamedTuple):
    """Entities `rows` (r,), each once, and their states (r, Q, W); all others have states of zeros."""

    rows: Tensor
    states: Tensor


class Stream(NamedTuple):
    """One stream of one task: its layers, with the weights of relations (2R, W) and of the edges of references (m, W)
    in each."""

    layers: list[tuple[Layer, Tensor, Tensor]]
    edges: ReferenceEdges

    @classmethod
    def of(cls, network: TrailNetwork, encoded: Encoded, stream: int, edges: ReferenceEdges) -> Stream:
        relations, new = encoded.relations[stream, :, 0], encoded.new[stream, :, 0]
        layers = [
            (layer, w, of_new[edges.kinds] * edges.constants)
            for layer, w, of_new in zip(network.layers_of(stream), relations, new, strict=True)
        ]
        return cls(layers, edges)


class CpuPropagation:
    """Propagation over the edges of one graph for Q heads side by side; its buffers are used again."""

    def __init__(self, edges: EdgeTable) -> None:
        self.edges = edges
        self._places = torch.full((edges.nodes,), -1)
        self._sources = torch.empty(0)

    @torch.no_grad()
    def __call__(self, stream: Stream, begin: Reached, wanted: Tensor | None = None) -> Tensor:
        """States of `wanted` entities (n,), or of all, after the last layer: (n, Q, W)."""
        x: Reached | Tensor = begin  # a tensor has the states of all entities
        for layer, w, over in stream.layers[:-1]:
            x = self._layer(layer, w, over, stream.edges, x)
        return self._last(*stream.layers[-1], stream.edges, x, wanted)

    def _layer(
        self, layer: Layer, w: Tensor, over: Tensor, extra: ReferenceEdges, x: Reached | Tensor
    ) -> Reached | Tensor:
        if isinstance(x, Reached):
            order = self.edges.by_head
            at, owners = (
                torch.from_numpy(each)
                for each in spans(order.offsets[x.rows].numpy(), order.offsets[x.rows + 1].numpy())
            )
            if len(at) <= SPARSE * self.edges.edges:
                return self._from_reached(layer, w, over, extra, x, at, owners)
            x = self._everywhere(x)
        order, flat = self.edges.by_tail, x.flatten(1)
        sources = order.slots(False).sources
        if self._sources.shape != (len(sources), flat.shape[1]):
            self._sources = torch.empty(len(sources), flat.shape[1])
        of_sources = source_states(order, x, Norms.FOUR, out=self._sources)
        messages = x[extra.sources] * over[:, None]
        moved = torch.empty_like(x)
        for chunk in order.chunks(False):
            sums = chunk_sums(order, chunk, of_sources, w, Norms.FOUR)
            inside = (extra.targets >= chunk.rows.start) & (extra.targets < chunk.rows.stop)
            sums.index_add_(0, extra.targets[inside] - chunk.rows.start, messages[inside])
            moved[chunk.rows] = layer.updated(x[chunk.rows], sums)
        return moved

    def _from_reached(
        self,
        layer: Layer,
        w: Tensor,
        over: Tensor,
        extra: ReferenceEdges,
        x: Reached,
        at: Tensor,
        owners: Tensor,
    ) -> Reached:
        """A layer along the edges `at` (e,) of the reached entities `owners` (e,)."""
        order, width = self.edges.by_head, w.shape[1]
        weights = w[order.second[at]] * constants(order, at, width, Norms.FOUR)
        self._places[x.rows] = torch.arange(len(x.rows))
        given = self._places[extra.sources]
        self._places[x.rows] = -1
        targets = torch.cat([order.first[at].long(), extra.targets[given >= 0]])
        weights = torch.cat([weights, over[given >= 0]])
        owners = torch.cat([owners, given[given >= 0]])
        reached = torch.zeros(self.edges.nodes, dtype=torch.bool)
        reached[x.rows] = reached[targets] = True
        rows = reached.nonzero().squeeze(1)
        self._places[rows] = torch.arange(len(rows))
        states = x.states.new_zeros(len(rows), *x.states.shape[1:])
        states[self._places[x.rows]] = x.states
        sums = torch.zeros_like(states).index_add_(0, self._places[targets], x.states[owners] * weights[:, None])
        self._places[rows] = -1
        return Reached(rows, layer.updated(states, sums))

    def _last(
        self,
        layer: Layer,
        w: Tensor,
        over: Tensor,
        extra: ReferenceEdges,
        x: Reached | Tensor,
        wanted: Tensor | None,
    ) -> Tensor:
        """The states of `wanted` entities only after a layer."""
        order = self.edges.by_tail
        rows, back = torch.arange(self.edges.nodes) if wanted is None else wanted, slice(None)
        if wanted is not None:
            rows, back = wanted.unique(return_inverse=True)  # type: ignore[assignment]
        at = order.edges_of(rows)
        if isinstance(x, Reached) or len(at) > SPARSE_LAST * self.edges.edges:
            moved = self._layer(layer, w, over, extra, x)
            return (self._everywhere(moved) if isinstance(moved, Reached) else moved)[rows[back]]
        weights = w.index_select(0, order.second[at]) * constants(order, at, w.shape[1], Norms.FOUR)
        messages = x.index_select(0, order.first[at]) * weights[:, None]
        sums = edge_sums(order, rows, messages.flatten(1)).view(-1, *x.shape[1:])
        self._places[rows] = torch.arange(len(rows))
        places = self._places[extra.targets]
        self._places[rows] = -1
        inside = places >= 0
        sums.index_add_(0, places[inside], x[extra.sources[inside]] * over[inside][:, None])
        return layer.updated(x[rows], sums)[back]

    def _everywhere(self, x: Reached) -> Tensor:
        """The states of all entities."""
        states = x.states.new_zeros(self.edges.nodes, *x.states.shape[1:])
        states[x.rows] = x.states
        return states
