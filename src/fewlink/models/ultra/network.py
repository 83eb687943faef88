"""ULTRA's network (Galkin et al., "Towards Foundation Models for Knowledge Graph Reasoning", ICLR 2024).

Relations and their inverses are the nodes of a second graph. Its four kinds of edges join relations that share heads,
share tails, or where the head of one is a tail of the other. Layers over this graph, with a label at the queried
relation, compute a vector of each relation; layers over the entities, with a label at the head, compute a state of each
entity.

Here the queried relation is new. It and its inverse are the last two nodes of the graph of relations, 2R and 2R + 1,
and the references are its edges. Parameters have the names and the meaning of the published weights, which were trained
with messages from tails to heads: a message along an edge has the weight of the edge's inverse relation.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.network import mlp
from fewlink.models.trail.propagate import (
    MessageEdges,
    Reached,
    Rows,
    Weights,
    head_places,
    layer_states,
    marked,
    places_among,
    propagate,
    reached_by,
)
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import ExtraEdges, Norms, relational_product

EDGE_KINDS = 4  # between relations: shared heads, shared tails, head–tail, tail–head
LAYERS_APART = 3  # after which a head's label has reached most entities


@dataclass(frozen=True)
class UltraShape:
    """`width` of states and vectors; `layers` over the entities; `relation_layers` over the relations."""

    width: int = 64
    layers: int = 6
    relation_layers: int = 6


class PublishedTasks(NamedTuple):
    """Several tasks on one graph, each with as many queries.

    Shapes: `references` (L, K, 2) heads and tails; `weights` (L, K) 1, or 0 for padding; `visible` (L, 2R) 1 or, for
    relations that the task must not see, 0; `heads` (L, Q); `candidates` (L, C).
    """

    references: Tensor
    weights: Tensor
    visible: Tensor
    heads: Tensor
    candidates: Tensor


class WithoutHead(NamedTuple):
    """What a layer over the entities computes of one task without a head, or in the first layer of any task.

    Shapes: `linear`, A [x; sums] + a, what it adds to states, and the `states` after it: (nodes, W).
    """

    linear: Tensor
    change: Tensor
    states: Tensor


class EncodedRelations(NamedTuple):
    """What layers over the entities read of relations.

    Shapes: `vectors` (L, N, W) of all relations; `queried`, the number of the queried one; the weights of messages
    along each relation, `relations` (layers, L, 2R, W), and along the new one and its inverse, `new`
    (layers, L, 2, W); and what the first layers compute without a head, if it is known.
    """

    vectors: Tensor
    queried: int
    relations: Tensor
    new: Tensor
    without_head: Sequence[WithoutHead] = ()

    @property
    def task(self) -> Tensor:
        """The vector (L, W) of the queried relation."""
        return self.vectors[:, self.queried]


class PublishedLayer(nn.Module):
    """x + ReLU(norm(A [x; sums] + a)), given the sums of messages and of the labels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * width, width)
        self.layer_norm = nn.LayerNorm(width)

    def updated(self, x: Tensor, sums: Tensor) -> Tensor:
        """States (…, W) after the layer."""
        return x + self.change(x, sums)

    def change(self, x: Tensor, sums: Tensor, instead: Tensor | None = None) -> Tensor:
        """What the layer adds to states (…, W); `instead` (…, W) takes the place of a."""
        from_state, from_sums = self.linear.weight.chunk(2, 1)
        y = linear(x, from_state, self.linear.bias if instead is None else None).flatten(0, -2)
        y = torch.addmm(y, sums.flatten(0, -2), from_sums.T).view_as(x)
        return relu(self.layer_norm(y if instead is None else y.add_(instead)), inplace=True)


class UltraRelationLayer(PublishedLayer):
    """A layer over the relations; each kind of edge has a vector."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.relation = nn.Embedding(EDGE_KINDS, width)

    def forward(self, x: Tensor, labels: Tensor, shared: Tensor, inverse: Tensor) -> Tensor:
        """Vectors (L, N, W) after the layer, given labels (L, N, W) and which relations share heads (L, N, N)."""
        heads, tails, head_tail, tail_head = self.relation.weight
        begin = shared @ x
        end = shared @ x[:, inverse]  # of relations that begin, or end, at a relation's heads
        sums = heads * begin + tails * end[:, inverse] + head_tail * end + tail_head * begin[:, inverse]
        return self.updated(x, sums + labels)


class EntityLayer(PublishedLayer):
    """A layer over the entities; the weights of messages are projected vectors of relations."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.relation_projection = mlp(width, width, width)


@dataclass(frozen=True)
class LabelledLayer:
    """A layer over the entities in which each of `heads` (T · Q,) has a label (T · Q, W).

    With `base`, states are differences from those without a head: zeros wherever no path leads from the head.
    """

    layer: EntityLayer
    heads: Tensor
    labels: Tensor
    base: WithoutHead | None = None
    norms = Norms.ONE

    def __call__(self, x: Tensor, w: Tensor, extra: ExtraEdges, weights: Tensor, edges: EdgeTable) -> Tensor:
        sums = extra.added(relational_product(x, w, edges, self.norms), x, weights)
        return self.updated(x, sums, torch.arange(len(x), device=x.device))

    def updated(self, x: Tensor, sums: Tensor, nodes: Tensor) -> Tensor:
        """States (n, T, Q, W) of nodes (n,), sorted, after the layer, given those before it and sums of messages."""
        at = torch.searchsorted(nodes, self.heads).clamp(max=len(nodes) - 1)
        labels = self.labels * (nodes[at] == self.heads)[:, None]
        at = at * len(self.heads) + torch.arange(len(self.heads), device=x.device)
        sums = sums.flatten(0, 2).index_add_(0, at, labels).view_as(x)
        if self.base is None:
            return self.layer.updated(x, sums)
        of_base = (self.base.linear, self.base.change)
        linear, change = (values.index_select(0, nodes)[:, None, None] for values in of_base)
        return self.layer.change(x, sums, linear).add_(x).sub_(change)


class UltraRelationModel(nn.Module):
    """The layers over the graph of relations."""

    def __init__(self, shape: UltraShape) -> None:
        super().__init__()
        self.width = shape.width
        self.layers = nn.ModuleList(UltraRelationLayer(shape.width) for _ in range(shape.relation_layers))

    def forward(self, shared: Tensor, inverse: Tensor, queried: int) -> Tensor:
        """The vectors (L, N, W) of all relations, given the queried one; other arguments as in `UltraRelationLayer`."""
        labels = shared.new_zeros(*shared.shape[:2], self.width)
        labels[:, queried] = 1
        x = labels
        for layer in self.layers:
            x = layer(x, labels, shared, inverse)
        return x


class EntityModel(nn.Module):
    """Layers over the entities, and the network that scores their states."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(EntityLayer(width) for _ in range(layers))
        self.mlp = mlp(2 * width, 2 * width, 1)

    @property
    def entity_layers(self) -> list[EntityLayer]:
        return [*self.layers]  # type: ignore[list-item]

    def encode(self, vectors: Tensor, inverse: Tensor, visible: Tensor, queried: int) -> EncodedRelations:
        """What the layers read of relations with vectors (L, N, W), given which are `visible` (L, 2R)."""
        turned = vectors[:, inverse]
        known = visible.shape[1]
        weights = torch.stack([layer.relation_projection(turned) for layer in self.entity_layers])
        return EncodedRelations(vectors, queried, weights[:, :, :known] * visible.unsqueeze(-1), weights[:, :, known:])

    def propagate(
        self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations, rows: Sequence[Rows] | None = None
    ) -> Tensor:
        """States (n, L, Q, W) after the last layer: of every entity, with gradients, or of those in the last of `rows`.

        With `rows`, the first layers compute only what a head changes, and the others what the wanted states need.
        """
        labels = encoded.task.repeat_interleave(tasks.heads.shape[1], 0)  # (L · Q, W)
        places = head_places(tasks.heads)
        edges = MessageEdges(graph.edges, reference_edges(tasks))
        heads = tasks.heads.flatten()
        bases = [] if rows is None else encoded.without_head or self.without_head(graph, tasks, encoded, 1)
        steps = [
            Weights(LabelledLayer(layer, heads, labels, base), *messages)
            for (layer, *messages), base in zip_longest(self._steps(tasks, encoded), bases)
        ]
        if rows is None:
            return propagate(edges, marked(places, labels, edges.nodes, *tasks.heads.shape), steps)
        first = len(bases)
        begin = reached_by(places, labels, *tasks.heads.shape)
        for differences in layer_states(edges, begin, steps[:first], rows[:first]):
            begin = differences
        entities = rows[first - 1].entities
        at = places_among(entities, begin.rows)
        x = bases[-1].states.index_select(0, entities)[:, None, None].expand(-1, *tasks.heads.shape, -1).contiguous()
        states = Reached(entities, x.index_add_(0, at[at >= 0], begin.states[at >= 0]))
        for moved in layer_states(edges, states, steps[first:], rows[first:]):
            states = moved
        return states.states

    def without_head(
        self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations, layers: int = LAYERS_APART
    ) -> list[WithoutHead]:
        """What the first `layers` compute without a head, of one task or, in the first layer, of any."""
        x = encoded.vectors.new_zeros(1, self.width)
        sums = x
        found = list[WithoutHead]()
        references = reference_edges(tasks)
        for layer, relations, over in self._steps(tasks, encoded)[:layers]:
            if found:
                states = x.expand(graph.edges.nodes, -1)[:, None, None]
                product = relational_product(states, relations, graph.edges, LabelledLayer.norms)
                sums = references.added(product, states, over)[:, 0, 0]
            y = layer.linear(torch.cat([x.expand_as(sums), sums], -1))
            change = relu(layer.layer_norm(y))
            x = x + change
            found.append(WithoutHead(*(values.expand(graph.edges.nodes, -1) for values in (y, change, x))))
        return found

    def _steps(self, tasks: PublishedTasks, encoded: EncodedRelations) -> list[tuple[EntityLayer, Tensor, Tensor]]:
        """Each layer with the weights of messages along relations (L, 2R, W) and references (2 · L · K, W)."""
        over = [(new.transpose(0, 1)[:, :, None] * tasks.weights[..., None]).flatten(0, 2) for new in encoded.new]
        return [*zip(self.entity_layers, encoded.relations, over, strict=True)]

    def scores(
        self, states: Tensor, encoded: EncodedRelations, candidates: Tensor, rows: Sequence[Rows] | None = None
    ) -> Tensor:
        """Scores (L, Q, C) of candidates (L, C), given states of every entity or of those in the last of `rows`."""
        places = candidates if rows is None else torch.searchsorted(rows[-1].entities, candidates)
        count = len(candidates)
        places = places * count + torch.arange(count, device=candidates.device)[:, None]  # among states (n · L, Q, W)
        found = states.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, candidates.shape)
        return self.score(found, encoded.task[:, None, None]).transpose(1, 2)

    def score(self, states: Tensor, relation: Tensor) -> Tensor:
        """Scores (…) of states (…, W), given the vector of the queried relation (…, W)."""
        first = self.mlp[0]
        last = self.mlp[2]
        of_state, of_relation = first.weight.chunk(2, 1)  # type: ignore[operator, union-attr]
        inner = linear(states, of_state).add_(linear(relation, of_relation, first.bias)).relu_()  # type: ignore[arg-type]
        scores: Tensor = last(inner).squeeze(-1)
        return scores


class PublishedNetwork(nn.Module, ABC):
    """A network that reads a graph and references, with published weights; `forward` gives scores (L, Q, C).

    title         the name of the model
    heads_on_gpu  the number of heads that are scored at once on a GPU
    shape         what a network is made from
    """

    title: ClassVar[str]
    heads_on_gpu: ClassVar[int]
    shape: Any

    @staticmethod
    @abstractmethod
    def shape_of(weights: Mapping[str, Tensor]) -> Any:
        """The shape of a network with these weights; the published shape where they do not determine it."""

    def forward(self, graph: ReadGraph, tasks: PublishedTasks) -> Tensor:
        return self.scores(graph, tasks, self.encode(graph, tasks))

    @abstractmethod
    def encode(self, graph: ReadGraph, tasks: PublishedTasks) -> EncodedRelations:
        """What the first model of entities reads of relations, the new one included, for all heads of a task."""

    @abstractmethod
    def encode_relation(self, graph: ReadGraph, queried: int) -> EncodedRelations:
        """What `encode` returns, for a relation of the graph without a new one: ordinary link prediction.

        The published weights expect the label at the relation itself, even if its inverse is queried.
        """

    @property
    @abstractmethod
    def first_model(self) -> EntityModel:
        """The model of entities that reads what `encode` returns."""

    @abstractmethod
    def scores(
        self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations, rows: Sequence[Rows] | None = None
    ) -> Tensor:
        """Scores (L, Q, C) of the tasks' candidates, given what `encode` returned: with gradients or, with the `rows`
        that layers compute for the candidates, without."""


class UltraNetwork(PublishedNetwork):
    """ULTRA's network."""

    title = "ULTRA"
    heads_on_gpu = 16

    def __init__(self, shape: UltraShape) -> None:
        super().__init__()
        self.shape = shape
        self.relation_model = UltraRelationModel(shape)
        self.entity_model = EntityModel(shape.width, shape.layers)

    @staticmethod
    def shape_of(weights: Mapping[str, Tensor]) -> UltraShape:
        return UltraShape(
            width_of(weights, "relation_model.layers.0.linear.bias") or UltraShape.width,
            layers_in(weights, "entity_model.layers") or UltraShape.layers,
            layers_in(weights, "relation_model.layers") or UltraShape.relation_layers,
        )

    def encode(self, graph: ReadGraph, tasks: PublishedTasks) -> EncodedRelations:
        with torch.no_grad():
            shared = shared_heads(graph, tasks)
        inverse = with_new_relation(graph.inverse)
        vectors = self.relation_model(shared, inverse, queried=graph.relations)  # (L, 2R + 2, W)
        return self.entity_model.encode(vectors, inverse, tasks.visible, graph.relations)

    def encode_relation(self, graph: ReadGraph, queried: int) -> EncodedRelations:
        labelled = queried % (graph.relations // 2)
        visible = torch.ones(1, graph.relations, device=graph.device)
        vectors = self.relation_model((graph.together > 0).float()[None], graph.inverse, labelled)  # (1, 2R, W)
        return self.entity_model.encode(vectors, graph.inverse, visible, queried)

    @property
    def first_model(self) -> EntityModel:
        return self.entity_model

    def scores(
        self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations, rows: Sequence[Rows] | None = None
    ) -> Tensor:
        states = self.entity_model.propagate(graph, tasks, encoded, rows)
        return self.entity_model.scores(states, encoded, tasks.candidates, rows)


def layers_in(weights: Mapping[str, Tensor], prefix: str) -> int:
    """The number of layers below a prefix."""
    return sum(bool(re.fullmatch(rf"{re.escape(prefix)}\.\d+\.linear\.weight", name)) for name in weights)


def width_of(weights: Mapping[str, Tensor], bias: str) -> int:
    """The length of a vector of weights, or 0 if it is missing."""
    vector = weights.get(bias)
    return 0 if vector is None or vector.dim() != 1 else len(vector)


def with_new_relation(inverse: Tensor) -> Tensor:
    """The inverse of each relation (2R,), and after them of the new relation and of its inverse."""
    return torch.cat([inverse, torch.arange(2, device=inverse.device).roll(1) + len(inverse)])


def reference_edges(tasks: PublishedTasks) -> ExtraEdges:
    """The references as edges of the new relation, and then of its inverse."""
    count = len(tasks.references)
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    ends = rows.movedim(-1, 0).flatten()  # heads, then tails
    sources = torch.arange(len(ends), device=ends.device)
    return ExtraEdges(ends, sources, sources.roll(len(ends) // 2))


def shared_heads(graph: ReadGraph, tasks: PublishedTasks) -> Tensor:
    """Whether two relations, including the new one and its inverse, share a head: (L, 2R + 2, 2R + 2), 0 or 1."""
    visible = tasks.visible
    known = (graph.together > 0) * visible[:, :, None] * visible[:, None]
    nothing = tasks.weights.new_zeros(len(tasks.weights), graph.edges.nodes)
    of_tasks = [nothing.scatter_reduce(1, ends, tasks.weights, "amax") for ends in tasks.references.unbind(-1)]
    is_end = torch.stack(of_tasks, 1)  # (L, 2, nodes)
    order = graph.edges.by_head
    counts = is_end.new_zeros(*is_end.shape[:2], graph.relations)
    counts.index_add_(2, order.second, is_end.index_select(2, order.row))
    at_ends = (counts > 0) * visible[:, None]  # (L, 2, 2R)
    turned = is_end.prod(1).amax(1)  # an entity is both head and tail
    same = tasks.weights.amax(1)
    corner = torch.stack([torch.stack([same, turned], 1), torch.stack([turned, same], 1)], 1)  # (L, 2, 2)
    return torch.cat([torch.cat([known, at_ends.transpose(1, 2)], 2), torch.cat([at_ends, corner], 2)], 1)
