"""Propagation: the states of entities, layer by layer, along the edges of a graph and along the references.

`propagate` serves training, answers and explanations alike. Several tasks and several queries of each are axes of the
states. With `rows`, a layer computes only what the wanted states depend on, along edges from entities whose state is
not zero. With `without`, each query leaves out some edges, and a layer computes only the states that this changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

from fewlink.graph.groups import spans
from fewlink.propagation.edges import EdgeOrder, EdgeTable, RowEdges
from fewlink.propagation.product import ExtraEdges, Norms, asinh, constants, kernels_for, relational_product, row_sums

EPS = 1e-5  # of the variance that a norm divides by
PUSH = 12  # edges that can be read into their targets in the time in which one is followed from its source
MOST = 0.95  # share of all edges from which a layer computes every entity
REACHED = 0.7  # share of all edges at reached entities above which a layer reads all edges
ROUNDING = 1e-6  # by which a state may differ and still count as unchanged


@dataclass(frozen=True, eq=False)
class MessageEdges:
    """The edges along which messages pass: those of a graph, and the references of T tasks as `extra` edges.

    The `table` of a part that is read once may be its edges by target alone.
    """

    table: EdgeTable | RowEdges
    extra: ExtraEdges | None = None

    @property
    def into(self) -> RowEdges:
        """All edges by their targets."""
        return self.table if isinstance(self.table, RowEdges) else self.table.by_tail.row_edges(False)

    @property
    def out(self) -> EdgeOrder | None:
        """All edges by their sources, if they are sorted so."""
        return None if isinstance(self.table, RowEdges) else self.table.by_head

    @property
    def nodes(self) -> int:
        return len(self.into.pairs) - 1

    def own(self, tasks: int) -> Own:
        """The extra edges, given the number of tasks."""
        if self.extra is None:
            nothing = torch.zeros(0, dtype=torch.int64)
            return Own(nothing, nothing, nothing)
        nodes = self.extra.rows // tasks
        column = self.extra.rows % tasks
        return Own(nodes[self.extra.sources], nodes[self.extra.targets], column[self.extra.sources])


class Layer(nn.Module):
    """Equations 4 and 5; a state is zero where it and the sum of its messages were."""

    norms = Norms.FOUR

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_state = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.from_sums = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, w: Tensor, extra: ExtraEdges, weights: Tensor, edges: EdgeTable) -> Tensor:
        """States after the layer, given weights of relations w (L, 2R, W) and of the `extra` edges (n, W)."""
        if (kernels := kernels_for(x)) is not None:
            own = self.from_state, self.from_sums, self.gain
            return kernels.PropagationLayer.apply(x, w, weights, *own, extra, edges, self.norms.value)  # type: ignore[no-any-return]
        return self.updated(x, extra.added(relational_product(x, w, edges, self.norms), x, weights))

    def updated(self, x: Tensor, sums: Tensor, nodes: Tensor | None = None) -> Tensor:
        """States (…, W) after the layer, given those before it and the sums of their messages, of any nodes."""
        y = x @ self.from_state.to(x.dtype) + asinh(sums) @ self.from_sums.to(x.dtype)
        return x + relu(layer_norm(y, y.shape[-1:], self.gain.to(x.dtype), eps=EPS))


class MessageLayer(Protocol):
    """A layer that `propagate` can apply: it moves zeros to zeros where there are no messages, or computes all nodes.

    norms  the constants that messages are multiplied with
    """

    norms: Norms

    def __call__(self, x: Tensor, w: Tensor, extra: ExtraEdges, weights: Tensor, edges: EdgeTable, /) -> Tensor:
        """States (nodes, T, Q, W) after the layer, given weights w of relations (T, 2R, W) and of `extra` edges."""

    def updated(self, x: Tensor, sums: Tensor, nodes: Tensor) -> Tensor:
        """States (n, T, Q, W) of nodes (n,), sorted, after the layer, given those before it and sums of messages."""


class Own(NamedTuple):
    """Edges that one task has: `sources`, `targets` (m,) as nodes, and the `tasks` (m,)."""

    sources: Tensor
    targets: Tensor
    tasks: Tensor


class Weights(NamedTuple):
    """One layer, with what messages are multiplied with: `relations` (T, 2R, W), and `extra` edges (m, W)."""

    layer: MessageLayer
    relations: Tensor
    extra: Tensor

    def relation_columns(self, queries: int) -> Tensor:
        """The weights of relations (2R, T · Q, W), or (2R, 1, W) if all columns have the same."""
        weights = self.relations.transpose(0, 1)
        return weights if weights.shape[1] == 1 else weights.repeat_interleave(queries, 1)


class Reached(NamedTuple):
    """Nodes `rows` (r,), sorted, and their states (r, T, Q, W); all others have states of zeros."""

    rows: Tensor
    states: Tensor

    def at(self, nodes: Tensor, count: int) -> Tensor:
        """The states (n, T, Q, W) of some of `count` nodes."""
        return at_places(self.states, places_of(self.rows, count)[nodes])


class Rows(NamedTuple):
    """The entities whose states a layer computes, and what it reads for them.

    Shapes: `entities` (n,), sorted; `before` (m,) the entities whose states are read, sorted; `own` (n,) the places of
    the computed ones among them, or -1 for a state of zeros; `edges` of the n rows, whose sources are such places.
    """

    entities: Tensor
    before: Tensor
    own: Tensor
    edges: RowEdges

    def from_reached(self, reached: Tensor, own: Own, nodes: int) -> Rows:
        """The rows whose states can be other than zeros if only the `reached` entities (m,) have such states before."""
        places = places_of(reached, nodes)
        before = places[self.before]
        sources = before.int().index_select(0, self.edges.sources)
        edges = self.edges.only(sources >= 0, sources)
        at = before[self.own].where(self.own >= 0, -1)
        changed = (at >= 0) | (edges.pairs.diff() > 0)
        targets = places_among(self.entities, own.targets[places[own.sources] >= 0])
        changed[targets[targets >= 0]] = True
        pairs = torch.cat([edges.pairs[:-1][changed], edges.pairs[-1:]])
        return Rows(self.entities[changed], reached, at[changed], dataclasses.replace(edges, pairs=pairs))


@dataclass(frozen=True, eq=False)
class Without:
    """Which edges each of Q queries leaves out, and the states with all edges.

    Shapes: `places` (u,) of edges that some query leaves out, those of the graph by target first and then the extra
    ones; `kept` (u, Q), 0 where a query leaves it out. `states`: before the first layer and after each.
    """

    places: Tensor
    kept: Tensor
    states: Sequence[Reached]


def head_places(heads: Tensor) -> Tensor:
    """The places (T · Q,) of heads (T, Q) among states (nodes, T, Q)."""
    columns = torch.arange(heads.numel(), device=heads.device)
    return heads.flatten() * heads.numel() + columns


def marked(places: Tensor, marks: Tensor, nodes: int, tasks: int, queries: int) -> Tensor:
    """States (nodes, T, Q, W) with marks (m, W) at places (m,) of its first three axes, zeros elsewhere."""
    states = marks.new_zeros(nodes * tasks * queries, marks.shape[1]).index_add(0, places, marks)
    return states.view(nodes, tasks, queries, -1)


def reached_by(places: Tensor, marks: Tensor, tasks: int, queries: int) -> Reached:
    """The states that `marked` returns, of nodes with a mark only."""
    columns = tasks * queries
    rows, which = (places // columns).unique(return_inverse=True)
    return Reached(rows, marked(which * columns + places % columns, marks, len(rows), tasks, queries))


def every_row(edges: MessageEdges) -> Rows:
    """All entities, from all edges."""
    every = torch.arange(edges.nodes)
    return Rows(every, every, every, edges.into)


def rows_to(edges: MessageEdges, wanted: Tensor, layers: int, tasks: int = 1) -> list[Rows]:
    """What each layer must compute for the states of `wanted` entities after the last one; it may compute more."""
    own = edges.own(tasks)
    into = edges.into
    counts = into.edges[into.pairs.long()].diff()
    most = MOST * len(into.sources)
    needed = torch.zeros(edges.nodes, dtype=torch.bool)
    needed[wanted] = True
    found: list[Rows] = []
    while len(found) < layers and int(counts[needed].sum()) <= most:
        entities = needed.nonzero().squeeze(1)
        into_own = needed[own.targets]
        edges_of, _ = into.of(entities)
        needed.index_fill_(0, edges_of.sources.long(), True)
        needed[own.sources[into_own]] = True
        if int(counts[needed].sum()) > most:
            needed[:] = True
        places = needed.cumsum(0) - 1
        sources = places.int().index_select(0, edges_of.sources)
        before = needed.nonzero().squeeze(1)
        found.append(Rows(entities, before, places[entities], dataclasses.replace(edges_of, sources=sources)))
    return [*[every_row(edges)] * (layers - len(found)), *found[::-1]]


def propagate(
    edges: MessageEdges,
    states: Tensor | Reached,
    weights: Sequence[Weights],
    rows: Sequence[Rows] | None = None,
    without: Without | None = None,
) -> Tensor:
    """States after the last layer: of all nodes (n, T, Q, W), with gradients, or of those in the last of `rows`."""
    if rows is None:
        assert isinstance(states, Tensor) and edges.extra is not None and isinstance(edges.table, EdgeTable)
        x = states
        for step in weights:
            x = step.layer(x, step.relations.to(x.dtype), edges.extra, step.extra, edges.table)
        return x
    assert isinstance(states, Reached)
    for reached in layer_states(edges, states, weights, rows, without):
        states = reached
    return states.at(rows[-1].entities, edges.nodes)


@torch.no_grad()
def layer_states(
    edges: MessageEdges,
    states: Reached,
    weights: Sequence[Weights],
    rows: Sequence[Rows],
    without: Without | None = None,
) -> Iterator[Reached]:
    """The states after each layer, of those of its rows that are not zero or, with `without`, that are changed."""
    own = edges.own(states.states.shape[1])
    removal = None if without is None else _Removal(edges, own, without)
    for number, (step, here) in enumerate(zip(weights, rows, strict=True)):
        if removal is not None:
            states = removal.after(states, step, here, number)
        elif (at := _few_edges(edges, states, here)) is not None:
            states = _pushed(edges, own, states, step, at)
        else:
            states = _pulled(edges, own, states, step, here)
        yield states


def _few_edges(edges: MessageEdges, x: Reached, here: Rows) -> tuple[Tensor, Tensor] | None:
    """The edges from reached entities and the places of their sources, if they are few beside those of the rows."""
    if edges.out is None:
        return None
    if PUSH * len(x.rows) > len(here.edges.sources):  # an entity has an edge at least
        return None
    begins = edges.out.offsets[x.rows].numpy()
    ends = edges.out.offsets[x.rows + 1].numpy()
    if PUSH * int((ends - begins).sum()) > len(here.edges.sources):
        return None
    at, owners = spans(begins, ends)
    return torch.from_numpy(at), torch.from_numpy(owners)


def _pushed(edges: MessageEdges, own: Own, x: Reached, step: Weights, along: tuple[Tensor, Tensor]) -> Reached:
    """A layer along some edges from the reached entities at the places `owners`."""
    at, owners = along
    order = edges.out
    assert order is not None
    places = places_of(x.rows, edges.nodes)
    given = places[own.sources]
    inside = given >= 0
    targets = order.first[at].long()
    reached = torch.zeros(edges.nodes, dtype=torch.bool)
    reached[x.rows] = True
    reached[targets] = True
    reached[own.targets[inside]] = True
    rows = reached.nonzero().squeeze(1)
    places[rows] = torch.arange(len(rows))
    states = x.states.new_zeros(len(rows), *x.states.shape[1:])
    states[places[x.rows]] = x.states
    over = step.relations.transpose(0, 1)[order.second[at]]  # (e, T, W)
    over = over * constants(order, at, over.shape[2], step.layer.norms)[:, None]
    sums = torch.zeros_like(states).index_add_(0, places[targets], x.states[owners] * over[:, :, None])
    _add_own(sums, x.states, own.tasks[inside], step.extra[inside], given[inside], places[own.targets[inside]])
    return Reached(rows, step.layer.updated(states, sums, rows))


def _pulled(edges: MessageEdges, own: Own, x: Reached, step: Weights, here: Rows) -> Reached:
    """A layer along the edges into its rows."""
    states = x.states
    if torch.equal(x.rows, here.before):
        pass  # every source has a state
    elif _sparse(edges, x.rows):
        here = here.from_reached(x.rows, own, edges.nodes)
    else:
        states = x.at(here.before, edges.nodes)
    sources = places_among(here.before, own.sources)
    targets = places_among(here.entities, own.targets)
    inside = ((sources >= 0) & (targets >= 0)).nonzero().squeeze(1)
    sources = sources[inside]
    targets = targets[inside]
    tasks = own.tasks[inside]
    over = step.extra[inside]
    moved = states.new_empty(len(here.own), *states.shape[1:])
    for part, sums in row_sums(
        here.edges, states.flatten(1, 2), step.relation_columns(states.shape[2]), step.layer.norms
    ):
        of_part = sums.unflatten(1, states.shape[1:3])
        some = (targets >= part.start) & (targets < part.stop)
        _add_own(of_part, states, tasks[some], over[some], sources[some], targets[some] - part.start)
        before = states[part] if here.own is here.before else at_places(states, here.own[part])
        moved[part] = step.layer.updated(before, of_part, here.entities[part])
    return Reached(here.entities, moved)


def _sparse(edges: MessageEdges, rows: Tensor) -> bool:
    """Whether reached entities have so few of the edges that it pays to leave out the others."""
    if edges.out is None:
        return len(rows) <= REACHED * edges.nodes
    counts = edges.out.offsets.diff()
    return int(counts[rows].sum()) <= REACHED * len(edges.out.row)


def _add_own(sums: Tensor, x: Tensor, tasks: Tensor, over: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Add the messages over own edges (m,) to sums (n, T, Q, W), given places of their sources in x and of targets."""
    messages = x[sources, tasks] * over[:, None]
    sums.view(-1, *sums.shape[2:]).index_add_(0, targets * sums.shape[1] + tasks, messages)


class _Removal:
    """A layer of a graph without some edges, which computes only the states that this changes.

    Messages from unchanged states are added up once for all queries. What is left out is never subtracted from a sum,
    which is added up anew: a sum of nothing is exactly zero.
    """

    def __init__(self, edges: MessageEdges, own: Own, without: Without) -> None:
        assert isinstance(edges.table, EdgeTable)
        self.edges = edges
        self.order = edges.table.by_tail
        self.without = without
        self.queries = without.kept.shape[1]
        self.nodes = edges.nodes
        count = edges.table.edges
        of_graph = without.places < count
        self.gone = without.places[of_graph]
        self.is_gone = torch.zeros(count, dtype=torch.bool)
        self.is_gone[self.gone] = True
        of_own = without.places[~of_graph] - count
        kept_own = torch.ones(len(own.sources), self.queries)
        kept_own[of_own] = without.kept[~of_graph]
        # the edges whose messages are added one by one: those of the graph that some query leaves out, and the extra
        self.sources = torch.cat([self.order.first[self.gone].long(), own.sources])
        self.targets = torch.cat([self.order.row[self.gone].long(), own.targets])
        self.kept = torch.cat([without.kept[of_graph], kept_own])
        self.first_touched = torch.zeros(self.nodes, dtype=torch.bool)
        self.first_touched[self.targets[(self.kept == 0).any(1)]] = True

    def after(self, x: Reached, step: Weights, here: Rows, number: int) -> Reached:
        """The states (c, 1, Q, W) after a layer where they differ from those with all edges, given those before it."""
        before = self.without.states[number]
        changed_places = places_of(x.rows, self.nodes)
        base_places = places_of(before.rows, self.nodes)
        is_changed = changed_places >= 0
        rows = self._rows(x, is_changed, here)
        if not len(rows):
            return Reached(rows, x.states[:0])
        places = places_of(rows, self.nodes)
        into, at = self.edges.into.of(rows)
        sources = into.sources.long()
        shared = ~self.is_gone[at]
        moving = is_changed[sources]
        of_base = base_places.int().index_select(0, sources)
        common = into.only(shared & ~moving & (of_base >= 0), of_base)
        weights = step.relation_columns(1)
        sums = _all_sums(common, before.states.flatten(1, 2), weights).expand(-1, self.queries, -1).contiguous()
        moved = shared & moving
        if bool(moved.any()):
            of_changed = into.only(moved, changed_places.int().index_select(0, sources))
            sums += _all_sums(of_changed, x.states.flatten(1, 2), weights)

        def given(entities: Tensor) -> Tensor:
            """The states (n, Q, W) of entities before the layer."""
            found = at_places(before.states[:, 0], base_places[entities]).repeat(1, self.queries, 1)
            inside = is_changed[entities]
            found[inside] = x.states[changed_places[entities[inside]], 0]
            return found

        width = step.relations.shape[2]
        over = step.relations[0, self.order.second[self.gone]] * constants(self.order, self.gone, width, Norms.FOUR)
        inside = (places[self.targets] >= 0).nonzero().squeeze(1)
        messages = given(self.sources[inside]) * torch.cat([over, step.extra])[inside, None]
        sums.index_add_(0, places[self.targets[inside]], messages * self.kept[inside, :, None])
        return self._updated(rows, given(rows), sums, step.layer)

    def _rows(self, x: Reached, is_changed: Tensor, here: Rows) -> Tensor:
        """The rows of a layer that a change before it, or an edge that is left out, can change."""
        out = self.edges.out
        assert out is not None
        touched = self.first_touched | is_changed
        touched[out.first[out.edges_of(x.rows)].long()] = True
        touched[self.targets[is_changed[self.sources]]] = True
        return here.entities[touched[here.entities]]

    def _updated(self, rows: Tensor, before: Tensor, sums: Tensor, layer: MessageLayer) -> Reached:
        """The states of rows after a layer; queries with the state and the sums of the first one share its result."""
        differ = (sums - sums[:, :1]).abs_().amax(2) > ROUNDING
        differ |= (before - before[:, :1]).abs_().amax(2) > ROUNDING
        differ[:, 0] = True
        kept = differ[:, 1:].any(1)
        row, query = (differ & kept[:, None]).nonzero().unbind(1)
        updated = layer.updated(before[row, query], sums[row, query], rows[row])
        differ = differ[kept]
        place = differ.flatten().cumsum(0).view_as(differ) - 1
        return Reached(rows[kept], updated[torch.where(differ, place, place[:, :1])][:, None])


def _all_sums(edges: RowEdges, x: Tensor, w: Tensor) -> Tensor:
    """The sums (n, Q, W) of messages into rows."""
    sums = x.new_zeros(len(edges.pairs) - 1, *x.shape[1:])
    for part, found in row_sums(edges, x, w, Norms.FOUR):
        sums[part] = found
    return sums


def places_of(entities: Tensor, nodes: int) -> Tensor:
    """The place of each of the `nodes` among `entities` (n,), or -1: (nodes,)."""
    places = torch.full((nodes,), -1)
    places[entities] = torch.arange(len(entities))
    return places


def places_among(entities: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted entity among `entities` (n,), sorted, or -1."""
    if not len(entities):
        return torch.full_like(wanted, -1)
    places = torch.searchsorted(entities, wanted).clamp_(max=len(entities) - 1)
    return places.where(entities[places] == wanted, -1)


def at_places(states: Tensor, places: Tensor) -> Tensor:
    """The states (n, …) at places (n,), zeros at -1."""
    inside = places >= 0
    if bool(inside.all()):
        return states.index_select(0, places)
    found = states.new_zeros(len(places), *states.shape[1:])
    return found.index_copy_(0, inside.nonzero().squeeze(1), states.index_select(0, places[inside]))
