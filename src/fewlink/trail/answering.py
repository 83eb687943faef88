"""TRAIL on a CPU, one head at a time: only what can reach an asked tail is computed, in pieces that fit the cache."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, asinh, bag_sums, chunk_sums, constants, source_states
from fewlink.trail.network import EPS, Encoded, Layer, TrailNetwork
from fewlink.trail.reading import Tasks

FEW = 0.1  # share of all edges up to which a layer goes along the edges of reached entities only
SOME = 0.4  # share up to which the last layer computes asked tails only


class CpuPropagation:
    """Propagation over one graph; its buffers are used again for each head."""

    def __init__(self, network: TrailNetwork, edges: EdgeTable) -> None:
        self.network, self.edges = network, edges
        width, slots = network.shape.width, edges.by_tail.slots(False)
        self.states = torch.zeros(edges.nodes, width)
        self.sums = torch.zeros(edges.nodes, width)
        self.sources = torch.empty(len(slots.sources), width)

    @torch.no_grad()
    def states_of(self, task: Tasks, encoded: Encoded, head: int, rows: Tensor) -> Tensor:
        """States (n, W) of entities `rows` (n,) after the last layer, given one task and one head."""
        x, references, shots = self.states.zero_(), task.references[0], task.weights[0].bool()
        heads, tails = references[shots].unbind(1)
        marks = self.network.marks(encoded.task[0]).view(3, -1)
        x[head] += marks[0]
        x.index_add_(0, heads, marks[1].expand(len(heads), -1)).index_add_(0, tails, marks[2].expand(len(tails), -1))
        active: Tensor | None = torch.cat([heads, tails, heads.new_tensor([head])]).unique()
        layers: list[Layer] = [*self.network.layers]  # type: ignore[list-item]
        weights = list(zip(layers, encoded.relations[:, 0], encoded.new[:, 0], strict=True))
        for layer, w, new in weights[:-1]:
            active = self._layer(layer, w, new, heads, tails, active)
        layer, w, new = weights[-1]
        return self._last(layer, w, new, heads, tails, rows)

    def _layer(
        self, layer: Layer, w: Tensor, new: Tensor, heads: Tensor, tails: Tensor, active: Tensor | None
    ) -> Tensor | None:
        """Move all states; the entities reached so far, or None where they are many."""
        x, order = self.states, self.edges.by_head
        over = x[heads] * new[0], x[tails] * new[1]  # messages over the references
        if active is not None:
            at, _ = spans(order.offsets[active], order.offsets[active + 1])
            if len(at) <= FEW * self.edges.edges:
                messages = x[self.edges.by_head.row[at]] * w[order.second[at]]
                messages *= constants(order, at, x.shape[1], Norms.FOUR)
                sums, targets = self.sums.zero_(), order.first[at].long()
                sums.index_add_(0, targets, messages)
                sums.index_add_(0, tails, over[0]).index_add_(0, heads, over[1])
                reached: Tensor = torch.cat([active, tails, heads, targets]).unique()
                x[reached] = updated(layer, x[reached], sums[reached])
                return reached
        order = self.edges.by_tail
        source_states(order, x[:, None], Norms.FOUR, out=self.sources)
        for chunk in order.chunks(False):
            sums = chunk_sums(order, chunk, self.sources[:, None], w, Norms.FOUR)[:, 0]
            for targets, messages in ((tails, over[0]), (heads, over[1])):
                inside = (targets >= chunk.rows.start) & (targets < chunk.rows.stop)
                sums.index_add_(0, targets[inside] - chunk.rows.start, messages[inside])
            x[chunk.rows] = updated(layer, x[chunk.rows], sums)
        return None

    def _last(self, layer: Layer, w: Tensor, new: Tensor, heads: Tensor, tails: Tensor, rows: Tensor) -> Tensor:
        """The moved states of `rows` only."""
        x, order = self.states, self.edges.by_tail
        at, _ = spans(order.offsets[rows], order.offsets[rows + 1])
        if len(at) > SOME * self.edges.edges:
            self._layer(layer, w, new, heads, tails, None)
            return self.states[rows]
        messages = x.index_select(0, order.first[at]) * w.index_select(0, order.second[at])
        messages *= constants(order, at, x.shape[1], Norms.FOUR)
        lengths = order.offsets[rows + 1] - order.offsets[rows]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
        sums = bag_sums(torch.arange(len(at), dtype=torch.int32), messages, offsets)
        places = torch.full((self.edges.nodes,), -1, dtype=torch.long)
        places[rows] = torch.arange(len(rows))
        for sources, targets, weight in ((heads, tails, new[0]), (tails, heads, new[1])):
            inside = places[targets] >= 0
            sums.index_add_(0, places[targets[inside]], x[sources[inside]] * weight)
        return updated(layer, x[rows], sums)


def updated(layer: Layer, x: Tensor, sums: Tensor) -> Tensor:
    """States (n, W) after the update of a layer."""
    y = torch.addmm(x @ layer.from_state, asinh(sums), layer.from_sums)
    return layer_norm(y, y.shape[-1:], layer.gain, eps=EPS).relu_().add_(x)


def spans(begins: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """All positions in the spans [begin, end), one span after the other, and the index of the span of each."""
    lengths = ends - begins
    owners = torch.repeat_interleave(torch.arange(len(begins)), lengths)
    firsts = lengths.cumsum(0) - lengths
    return torch.arange(len(owners)) - firsts[owners] + begins[owners], owners
