"""Propagation on a CPU, several tasks side by side: only over entities that messages reach, and that answers need."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.graph.groups import spans
from fewlink.models.trail.network import Encoded, Layer, TrailNetwork
from fewlink.models.trail.references import References
from fewlink.propagation.edges import EdgeTable, GraphPart, RowEdges
from fewlink.propagation.product import Norms, constants, row_sums

PUSH = 12  # edges that can be read into their targets in the time in which one is followed from its source
MOST = 0.95  # share of all edges from which a layer computes every entity
REACHED = 0.7  # share of all edges at reached entities above which a layer reads all edges


class ReferenceEdges(NamedTuple):
    """The references of T tasks, each once, as edges of the new relation (`kinds` 0) and of its inverse (1).

    Shapes: `sources`, `targets`, `kinds` (m,); `constants` (m, T, W), zeros where it is no reference of a task.
    """

    sources: Tensor
    targets: Tensor
    kinds: Tensor
    constants: Tensor

    @classmethod
    def of(cls, references: References, width: int) -> ReferenceEdges:
        """Those of one task."""
        extra = references.edges()
        kinds = torch.arange(2, device=references.ends.device).repeat_interleave(references.pairs.shape[1])
        scales = references.constants(width, Norms.FOUR).flatten(0, 2)
        return cls(extra.rows[extra.sources], extra.rows[extra.targets], kinds, scales[:, None]).joined([])

    def joined(self, others: Sequence[ReferenceEdges]) -> ReferenceEdges:
        """Those of these tasks and of others, sorted."""
        tasks = [self, *others]
        every = torch.cat([torch.stack([each.kinds, each.sources, each.targets], 1) for each in tasks])
        edges, places = every.unique(dim=0, return_inverse=True)
        kinds, sources, targets = edges.T.contiguous()
        spread = [
            each.constants.new_zeros(len(edges), *each.constants.shape[1:]).index_copy_(0, own, each.constants)
            for each, own in zip(tasks, places.split([len(each.kinds) for each in tasks]), strict=True)
        ]
        return ReferenceEdges(sources, targets, kinds, torch.cat(spread, 1))

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
    """One stream of T tasks: its layers, with the weights of relations (2R, T, W) and of the new one and its inverse
    (2, T, W) in each. Each of Q columns of states has its task, or T is 1."""

    layers: list[tuple[Layer, Tensor, Tensor]]
    edges: ReferenceEdges

    @classmethod
    def of(cls, network: TrailNetwork, encoded: Encoded, stream: int, edges: ReferenceEdges) -> Stream:
        weights = (each[stream].transpose(1, 2) for each in (encoded.relations, encoded.new))
        return cls([*zip(network.layers_of(stream), *weights, strict=True)], edges)

    def of_columns(self, tasks: Tensor) -> Stream:
        """The stream for columns of states of these tasks (Q,)."""
        if self.edges.constants.shape[1] == 1:
            return self
        layers = [(layer, w[:, tasks], new[:, tasks]) for layer, w, new in self.layers]
        return Stream(layers, self.edges._replace(constants=self.edges.constants[:, tasks]))


class Rows(NamedTuple):
    """The entities whose states a layer computes, and what it reads for them.

    Shapes: `entities` (n,), sorted; `before` (m,) the entities whose states are read, sorted; `own` (n,) the places of
    the computed ones among them, or -1 for a state of zeros; `edges` of the n rows, whose sources are such places;
    `given` (k,) which of the references' edges lead to them; `sources` (k,) of these among `before`, `targets` (k,)
    among `entities`.
    """

    entities: Tensor
    before: Tensor
    own: Tensor
    edges: RowEdges
    given: Tensor
    sources: Tensor
    targets: Tensor

    def from_reached(self, reached: Tensor, nodes: int) -> Rows:
        """The rows whose states can be other than zeros if only the `reached` entities (m,) have such states before."""
        before = places_of(reached, nodes)[self.before]
        own = before[self.own]
        given = before[self.sources]
        sources = before.int().index_select(0, self.edges.sources)
        inside = given >= 0
        edges = self.edges.only(sources >= 0, sources)
        changed = (own >= 0) | (edges.pairs.diff() > 0)
        changed[self.targets[inside]] = True
        edges = dataclasses.replace(edges, pairs=torch.cat([edges.pairs[:-1][changed], edges.pairs[-1:]]))
        targets = (changed.cumsum(0) - 1)[self.targets[inside]]
        return Rows(self.entities[changed], reached, own[changed], edges, self.given[inside], given[inside], targets)

    def bytes(self) -> int:
        """The bytes of all arrays, with the powers of fans and the offsets of chunks that are made of the edges."""
        edges = self.edges
        ids = (self.entities, self.before, self.own, self.given, self.sources, self.targets)
        twice = edges.source_fans, edges.fans, edges.edges, edges.pairs
        return sum(each.nbytes for each in (*ids, edges.sources, edges.relations, *twice, *twice))


def all_rows(table: EdgeTable, extra: ReferenceEdges, layers: int) -> list[Rows]:
    """Every entity in each of so many layers."""
    every = torch.arange(table.nodes)
    given = torch.arange(len(extra.sources))
    return [Rows(every, every, every, table.by_tail.row_edges(False), given, extra.sources, extra.targets)] * layers


def rows_to(table: EdgeTable, extra: ReferenceEdges, wanted: Tensor, layers: int) -> list[Rows]:
    """What each layer must compute for the states of `wanted` entities after the last one; it may compute more."""
    edges = table.by_tail.row_edges(False)
    counts = table.by_tail.offsets.diff()
    needed = torch.zeros(table.nodes, dtype=torch.bool)
    needed[wanted] = True
    found: list[Rows] = []
    while len(found) < layers and int(counts[needed].sum()) <= MOST * table.edges:
        entities, given = (each.nonzero().squeeze(1) for each in (needed, needed[extra.targets]))
        own = edges.of(entities)
        needed.index_fill_(0, own.sources.long(), True)
        needed[extra.sources[given]] = True
        if int(counts[needed].sum()) > MOST * table.edges:
            needed[:] = True
        places = needed.cumsum(0) - 1
        found.append(
            Rows(
                entities,
                needed.nonzero().squeeze(1),
                places[entities],
                dataclasses.replace(own, sources=places.int().index_select(0, own.sources)),
                given,
                places[extra.sources[given]],
                torch.searchsorted(entities, extra.targets[given]),
            )
        )
    return [*all_rows(table, extra, layers - len(found)), *found[::-1]]


@torch.no_grad()
def propagate(table: EdgeTable, stream: Stream, begin: Reached, rows: Sequence[Rows]) -> Tensor:
    """States (n, Q, W) of the entities of the last rows after the last layer, those of Q heads side by side."""
    x: Reached | Tensor = begin  # a tensor has the states of `rows.before`
    for (layer, w, new), here in zip(stream.layers, rows, strict=True):
        over = new[stream.edges.kinds] * stream.edges.constants  # (m, T, W)
        if isinstance(x, Reached):
            begins, ends = (table.by_head.offsets[x.rows + step].numpy() for step in (0, 1))
            count = int((ends - begins).sum())
            if PUSH * count <= len(here.edges.sources):
                at, owners = (torch.from_numpy(each) for each in spans(begins, ends))
                x = _push(table, layer, w, over, stream.edges, x, at, owners)
                continue
            if count <= REACHED * table.edges:
                some = here.from_reached(x.rows, table.nodes)
                x = Reached(some.entities, _pull(layer, w, over, x.states, some))
                continue
            x = states_at(x, here.before, table.nodes)
        x = _pull(layer, w, over, x, here)
    return states_at(x, rows[-1].entities, table.nodes) if isinstance(x, Reached) else x


def _push(
    table: EdgeTable,
    layer: Layer,
    w: Tensor,
    over: Tensor,
    extra: ReferenceEdges,
    x: Reached,
    at: Tensor,
    owners: Tensor,
) -> Reached:
    """A layer along the edges `at` (e,) of the reached entities `owners` (e,)."""
    order = table.by_head
    places = places_of(x.rows, table.nodes)
    given = places[extra.sources]
    inside = given >= 0
    targets = torch.cat([order.first[at].long(), extra.targets[inside]])
    fans = constants(order, at, w.shape[2], Norms.FOUR)[:, None]
    weights = torch.cat([w[order.second[at]] * fans, over[inside]])
    owners = torch.cat([owners, given[inside]])
    reached = torch.zeros(table.nodes, dtype=torch.bool)
    reached[x.rows] = reached[targets] = True
    rows = reached.nonzero().squeeze(1)
    places[rows] = torch.arange(len(rows))
    states = x.states.new_zeros(len(rows), *x.states.shape[1:])
    states[places[x.rows]] = x.states
    sums = torch.zeros_like(states).index_add_(0, places[targets], x.states[owners] * weights)
    return Reached(rows, layer.updated(states, sums))


def _pull(layer: Layer, w: Tensor, over: Tensor, x: Tensor, rows: Rows) -> Tensor:
    """A layer along the edges into `rows`, given the states (m, Q, W) of the entities before it."""
    messages = x[rows.sources] * over[rows.given]
    moved = x.new_empty(len(rows.own), *x.shape[1:])
    for part, sums in row_sums(rows.edges, x, w, Norms.FOUR):
        inside = (rows.targets >= part.start) & (rows.targets < part.stop)
        sums.index_add_(0, rows.targets[inside] - part.start, messages[inside])
        moved[part] = layer.updated(at_places(x, rows.own[part]), sums)
    return moved


def states_at(x: Reached, entities: Tensor, nodes: int) -> Tensor:
    """The states (n, Q, W) of entities (n,)."""
    return at_places(x.states, places_of(x.rows, nodes)[entities])


def places_of(entities: Tensor, nodes: int) -> Tensor:
    """The place of each of so many entities among some (n,), or -1: (nodes,)."""
    places = torch.full((nodes,), -1)
    places[entities] = torch.arange(len(entities))
    return places


def at_places(states: Tensor, places: Tensor) -> Tensor:
    """The states (n, …) at places (n,), zeros at -1."""
    inside = places >= 0
    if bool(inside.all()):
        return states[places]
    found = states.new_zeros(len(places), *states.shape[1:])
    found[inside] = states[places[inside]]
    return found
