"""Propagation over the entities on a CPU for one head, which recomputes only entities that its label changes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.models.ultra.network import Encoded, EntityLayer, EntityModel, Tasks
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, edge_sums, row_sums

SPARSE = 0.15  # a layer follows only edges of changed entities if these are at most this share of all edges
SPARSE_LAST = 0.4  # the last layer computes only candidates if their edges are at most this share of all edges


class Unlabelled(NamedTuple):
    """The propagation of a task without a label at a head, up to some layer.

    states  (nodes, W) before each of these layers and after the last of them
    sums    (nodes, W) of messages in each of these layers
    """

    states: list[Tensor]
    sums: list[Tensor]


class CpuPropagation:
    """Propagation over one graph for one head at a time, with reused buffers."""

    def __init__(self, model: EntityModel, edges: EdgeTable) -> None:
        self.model = model
        self.edges = edges
        self.states = torch.zeros(edges.nodes, model.width)
        self.moved = torch.zeros_like(self.states)

    def unlabelled(self, task: Tasks, encoded: Encoded) -> Unlabelled:
        """The states and sums of messages of all entities, without a label at a head."""
        states = [torch.zeros_like(self.states)]
        sums = []
        for layer, w, new in self._layers(encoded):
            sums.append(torch.empty_like(self.states))
            moved = torch.empty_like(self.states)
            self._all(layer, w, states[-1], moved, *self._over(task, new, states[-1]), keep=sums[-1])
            states.append(moved)
        return Unlabelled(states, sums)

    def before_messages(self) -> Unlabelled:
        """The first layer without a label at a head: there are no messages, and all entities have the same state."""
        nothing = torch.zeros(1, self.model.width)
        states = nothing, self.model.entity_layers[0].updated(nothing, nothing)
        return Unlabelled([state.expand_as(self.states) for state in states], [nothing.expand_as(self.states)])

    def states_of(self, task: Tasks, encoded: Encoded, common: Unlabelled, head: int, rows: Tensor) -> Tensor:
        """States (n, W) of entities `rows` (n,) after the last layer, given one task and one head.

        Layers beyond those in `common` compute all entities.
        """
        label = encoded.task  # (1, W)
        changed = torch.tensor([head])
        x = label
        layers = self._layers(encoded)
        everywhere = False
        for number, (layer, w, new) in enumerate(layers):
            if not everywhere:
                at = self.edges.by_head.edges_of(changed)
                if number < len(common.sums) and len(at) <= SPARSE * self.edges.edges:
                    before = common.states[number], common.sums[number]
                    changed, x = self._spread(layer, w, new, task, before, changed, x, at, label, head)
                    continue
                everywhere = True
                self.states.copy_(common.states[number])
                self.states[changed] = x
            targets, messages = self._over(task, new, self.states)
            targets = torch.cat([targets, targets.new_tensor([head])])
            messages = torch.cat([messages, label])
            if number == len(layers) - 1:
                return self._some(layer, w, targets, messages, rows)
            self._all(layer, w, self.states, self.moved, targets, messages)
            self.states, self.moved = self.moved, self.states
        self.states.copy_(common.states[-1])
        self.states[changed] = x
        return self.states[rows]

    def _layers(self, encoded: Encoded) -> list[tuple[EntityLayer, Tensor, Tensor]]:
        """Each layer with the weights of relations (2R, W), and of the new one and its inverse (2, W)."""
        return list(zip(self.model.entity_layers, encoded.relations[:, 0], encoded.new[:, 0], strict=True))

    def _over(self, task: Tasks, new: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The messages over the references: their targets (2K,) and values (2K, W)."""
        heads, tails = task.references[0].unbind(1)
        return torch.cat([tails, heads]), torch.cat([x[heads] * new[0], x[tails] * new[1]])

    def _spread(
        self,
        layer: EntityLayer,
        w: Tensor,
        new: Tensor,
        task: Tasks,
        common: tuple[Tensor, Tensor],
        changed: Tensor,
        x: Tensor,
        at: Tensor,
        label: Tensor,
        head: int,
    ) -> tuple[Tensor, Tensor]:
        """The entities that the label at the head changes up to this layer, and their states after it.

        Before the layer, the entities `changed` have the states x and the edges at positions `at`.
        """
        order = self.edges.by_head
        states, sums = common
        places = torch.full((self.edges.nodes,), -1)
        places[changed] = torch.arange(len(changed))
        gaps = x - states[changed]
        messages = [gaps[places[order.row[at]]] * w[order.second[at]]]
        targets = [order.first[at].long()]
        heads, tails = task.references[0].unbind(1)
        for sources, ends, weight in ((heads, tails, new[0]), (tails, heads, new[1])):
            inside = places[sources] >= 0
            messages.append(gaps[places[sources[inside]]] * weight)
            targets.append(ends[inside])
        reached = torch.cat([changed, *targets]).unique()
        own = states[reached]
        places[reached] = torch.arange(len(reached))
        own[places[changed]] = x
        total = sums[reached].index_add_(0, places[torch.cat(targets)], torch.cat(messages))
        total[places[head]] += label[0]
        return reached, layer.updated(own, total)

    def _all(
        self,
        layer: EntityLayer,
        w: Tensor,
        x: Tensor,
        moved: Tensor,
        targets: Tensor,
        messages: Tensor,
        keep: Tensor | None = None,
    ) -> None:
        """Write the states after a layer into `moved`, and the sums of messages into `keep`.

        The messages (m, W) to `targets` (m,) are added to those along the edges.
        """
        for rows, found in row_sums(self.edges.by_tail.row_edges(False), x[:, None], w[:, None], Norms.ONE):
            sums = found[:, 0]
            inside = (targets >= rows.start) & (targets < rows.stop)
            sums.index_add_(0, targets[inside] - rows.start, messages[inside])
            moved[rows] = layer.updated(x[rows], sums)
            if keep is not None:
                keep[rows] = sums

    def _some(self, layer: EntityLayer, w: Tensor, targets: Tensor, messages: Tensor, rows: Tensor) -> Tensor:
        """The states of only the entities `rows` after a layer."""
        order = self.edges.by_tail
        rows, back = rows.unique(return_inverse=True)
        at = order.edges_of(rows)
        if len(at) > SPARSE_LAST * self.edges.edges:
            self._all(layer, w, self.states, self.moved, targets, messages)
            return self.moved[rows[back]]
        over = self.states.index_select(0, order.first[at]).mul_(w.index_select(0, order.second[at]))
        sums = edge_sums(order, rows, over)
        places = torch.full((self.edges.nodes,), -1)
        places[rows] = torch.arange(len(rows))
        inside = places[targets] >= 0
        sums.index_add_(0, places[targets[inside]], messages[inside])
        return layer.updated(self.states[rows], sums)[back]
