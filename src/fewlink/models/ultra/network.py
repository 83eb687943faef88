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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.network import mlp
from fewlink.propagation.product import Norms, relation_sums, relational_product

EDGE_KINDS = 4  # between relations: shared heads, shared tails, head–tail, tail–head
MARK_COLUMNS = 16  # the minimum width of the GPU kernels


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


class EncodedRelations(NamedTuple):
    """What layers over the entities read of relations.

    Shapes: `vectors` (L, N, W) of all relations; `queried`, the number of the queried one; the weights of messages
    along each relation, `relations` (layers, L, 2R, W), and along the new one and its inverse, `new`
    (layers, L, 2, W).
    """

    vectors: Tensor
    queried: int
    relations: Tensor
    new: Tensor

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

    def change(self, x: Tensor, sums: Tensor) -> Tensor:
        """What the layer adds to states (…, W)."""
        from_state, from_sums = self.linear.weight.chunk(2, 1)
        y = linear(x, from_state, self.linear.bias).flatten(0, -2)
        y = torch.addmm(y, sums.flatten(0, -2), from_sums.T).view_as(x)
        return relu(self.layer_norm(y))


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

    def propagate(self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations) -> Tensor:
        """States (nodes, L, Q, W) of every entity after the last layer."""
        count, queries = tasks.heads.shape
        task, query = (torch.arange(n, device=tasks.heads.device) for n in (count, queries))
        labelled = ((tasks.heads * count + task[:, None]) * queries + query).flatten()
        labels = encoded.task.repeat_interleave(queries, 0)  # (L · Q, W)
        x = labels.new_zeros(graph.edges.nodes * count * queries, self.width).index_add(0, labelled, labels)
        x = x.view(graph.edges.nodes, count, queries, self.width)
        sources, targets = reference_edges(tasks)
        for layer, relations, new in zip(self.entity_layers, encoded.relations, encoded.new, strict=True):
            over = (new.transpose(0, 1)[:, :, None] * tasks.weights[..., None]).flatten(0, 2)  # (2 · L · K, W)
            sums = relational_product(x, relations, graph.edges, Norms.ONE)
            sums.flatten(0, 1).index_add_(0, targets, x.flatten(0, 1)[sources] * over[:, None])
            sums.flatten(0, 2).index_add_(0, labelled, labels)
            x = layer.updated(x, sums)
        return x

    def scores(self, states: Tensor, encoded: EncodedRelations, candidates: Tensor) -> Tensor:
        """Scores (L, Q, C) of candidates (L, C)."""
        task = torch.arange(len(candidates), device=candidates.device)[:, None]
        return self.score(states[candidates, task], encoded.task[:, None, None]).transpose(1, 2)

    def score(self, states: Tensor, relation: Tensor) -> Tensor:
        """Scores (…) of states (…, W), given the vector of the queried relation (…, W)."""
        first = self.mlp[0]
        last = self.mlp[2]
        of_state, of_relation = first.weight.chunk(2, 1)  # type: ignore[operator, union-attr]
        inner = relu(linear(states, of_state) + linear(relation, of_relation, first.bias))  # type: ignore[arg-type]
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

    @abstractmethod
    def scores(self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations) -> Tensor:
        """Scores (L, Q, C) of the tasks' candidates, given what `encode` returned."""


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

    def scores(self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations) -> Tensor:
        states = self.entity_model.propagate(graph, tasks, encoded)
        return self.entity_model.scores(states, encoded, tasks.candidates)


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


def reference_edges(tasks: PublishedTasks) -> tuple[Tensor, Tensor]:
    """The references as edges of the new relation and of its inverse: their sources and targets (2 · L · K,), as rows
    of states (nodes · L, Q, W)."""
    count = len(tasks.references)
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    heads, tails = rows.unbind(-1)
    return torch.stack([heads, tails]).flatten(), torch.stack([tails, heads]).flatten()


def shared_heads(graph: ReadGraph, tasks: PublishedTasks) -> Tensor:
    """Whether two relations, including the new one and its inverse, share a head: (L, 2R + 2, 2R + 2), 0 or 1."""
    visible = tasks.visible
    known = (graph.together > 0) * visible[:, :, None] * visible[:, None]
    at_ends = (_relations_at_references(graph, tasks) > 0) * visible[:, None]  # (L, 2, 2R)
    nothing = tasks.weights.new_zeros(len(tasks.weights), graph.edges.nodes)
    is_head, is_tail = (nothing.scatter_reduce(1, ends, tasks.weights, "amax") for ends in tasks.references.unbind(-1))
    turned = (is_head * is_tail).amax(1)  # an entity is both head and tail
    same = tasks.weights.amax(1)
    corner = torch.stack([torch.stack([same, turned], 1), torch.stack([turned, same], 1)], 1)  # (L, 2, 2)
    return torch.cat([torch.cat([known, at_ends.transpose(1, 2)], 2), torch.cat([at_ends, corner], 2)], 1)


def _relations_at_references(graph: ReadGraph, tasks: PublishedTasks) -> Tensor:
    """The number of edges of each relation that start at the references' heads, and at their tails: (L, 2, 2R)."""
    count, shots = tasks.weights.shape
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    marks = tasks.weights.new_zeros(count * shots, 2, MARK_COLUMNS)
    marks[:, 0, 0] = marks[:, 1, 1] = tasks.weights.flatten()
    x = tasks.weights.new_zeros(graph.edges.nodes * count, MARK_COLUMNS).index_add(
        0, rows.flatten(), marks.flatten(0, 1)
    )
    x = x.view(graph.edges.nodes, count, 1, MARK_COLUMNS)
    return relation_sums(x, torch.ones_like(x), graph.edges, Norms.ONE)[..., :2].transpose(1, 2)
