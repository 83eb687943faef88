"""TRIX's network (Zhang et al., "TRIX: A More Expressive Model for Zero-shot Domain Transfer in Knowledge Graphs", LoG
2024), for the prediction of entities.

Relations and their inverses are the nodes of a second graph, as in ULTRA, but its edges are labelled with the entities
that two relations have in common, and vectors of relations and states of entities are computed in turn. H(e) and T(e)
are the relations that entity e is a head of, and a tail of. A layer over the relations has four parts, one for each
kind of edge, with weights p(e) of the entities between them:

    hh  m_r = y_r + Σ over e with r in H(e), s in H(e), s ≠ r  of p(e) ⊙ z_s
    ht  m_r = y_r + Σ over e with r in H(e), s in T(e)         of p(e) ⊙ z_s
    th  m_r = y_r + Σ over e with r in T(e), s in H(e)         of p(e) ⊙ z_s
    tt  m_r = y_r + Σ over e with r in T(e), s in T(e), s ≠ r  of p(e) ⊙ z_s

    z_r ← z_r + Σ over the parts of ReLU(norm(A [z_r; m_r] + a)),   p(e) = P₂ ReLU(P₁ n_e + c₁) + c₂

z begins as the labels y: ones at the queried relation q, and zero elsewhere. In the first layer n_e = 1. Then the
layers of the first model of entities, which are those of ULTRA, compute states x of the entities with a label at the
head, and n_e = N [x_e; z_q] + b in the other layers over the relations. The second model of entities reads their result
and scores its states, as ULTRA does. All but the first layer over the relations depend on the head.

The sums over pairs of relations are not computed pair by pair. With S_e and U_e, the sums of z over H(e) and over T(e),

    hh  m_r = y_r + Σ over e with r in H(e) of p(e) ⊙ S_e − z_r ⊙ Σ over e with r in H(e) of p(e)

and so on, which takes time in proportion to the pairs of an entity and one of its relations.

The new relation and its inverse are the last two relations, 2R and 2R + 1, and the references are their edges.
Parameters have the names and the meaning of the published weights; see `fewlink.models.ultra.network`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.propagate import MessageEdges, Rows, every_row
from fewlink.models.trix.ends import Ends
from fewlink.models.ultra.network import (
    EncodedRelations,
    EntityLayer,
    EntityModel,
    PublishedNetwork,
    PublishedTasks,
    layers_in,
    width_of,
)


@dataclass(frozen=True)
class TrixShape:
    """`width` of states and vectors; `layers` and `first_layers` over the entities, of the model that scores them and
    of the first one; `relation_layers` over the relations."""

    width: int = 32
    layers: int = 4
    first_layers: int = 2
    relation_layers: int = 3


class TrixRelationModel(nn.Module):
    """The layers over the graph of relations, in four parts each; `node_mlp` makes n_e."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.node_mlp = nn.Linear(2 * width, width)
        for kind in ("hh", "ht", "th", "tt"):
            self.add_module(f"layers_{kind}", nn.ModuleList(EntityLayer(width) for _ in range(layers)))

    def part(self, kind: str, number: int) -> EntityLayer:
        layer: EntityLayer = self.get_submodule(f"layers_{kind}.{number}")  # type: ignore[assignment]
        return layer

    def forward(self, number: int, z: Tensor, labels: Tensor, entities: Tensor, ends: Ends) -> Tensor:
        """Vectors (L, N, W) of the relations after a layer, given n (nodes, L, W) of the entities."""
        inverse = ends.inverse
        of_tails, of_heads = ends.at_entities(torch.cat([z, z[:, inverse]], -1)).chunk(2, -1)  # U and S
        moved = z
        for kind in ("hh", "ht", "th", "tt"):
            layer = self.part(kind, number)
            p = layer.relation_projection(entities)
            messages = p * (of_heads if kind[1] == "h" else of_tails)
            if kind[0] == kind[1]:
                sums, own = ends.at_relations(torch.cat([messages, p], -1)).chunk(2, -1)
                sums = sums - own * (z if kind == "tt" else z[:, inverse])
            else:
                sums = ends.at_relations(messages)
            moved = moved + layer.change(z, labels + (sums if kind[0] == "t" else sums[:, inverse]))
        return moved


class TrixNetwork(PublishedNetwork):
    """TRIX's network."""

    title = "TRIX"
    heads_on_gpu = 8  # each has vectors of relations of its own

    def __init__(self, shape: TrixShape) -> None:
        super().__init__()
        self.shape = shape
        self.relation_model = TrixRelationModel(shape.width, shape.relation_layers)
        self.entity_model_mini = EntityModel(shape.width, shape.first_layers)  # its `mlp` is published and not used
        self.entity_model = EntityModel(shape.width, shape.layers)

    @staticmethod
    def shape_of(weights: Mapping[str, Tensor]) -> TrixShape:
        return TrixShape(
            width_of(weights, "relation_model.node_mlp.bias") or TrixShape.width,
            layers_in(weights, "entity_model.layers") or TrixShape.layers,
            layers_in(weights, "entity_model_mini.layers") or TrixShape.first_layers,
            layers_in(weights, "relation_model.layers_hh") or TrixShape.relation_layers,
        )

    def encode(self, graph: ReadGraph, tasks: PublishedTasks) -> EncodedRelations:
        return self._encode(graph, tasks, graph.relations)

    def encode_relation(self, graph: ReadGraph, queried: int) -> EncodedRelations:
        nothing = torch.zeros(1, 0, device=graph.device)
        visible = torch.ones(1, graph.relations, device=graph.device)
        ids = nothing.long()
        return self._encode(graph, PublishedTasks(ids.view(1, 0, 2), nothing, visible, ids, ids), queried)

    def _encode(self, graph: ReadGraph, tasks: PublishedTasks, queried: int) -> EncodedRelations:
        """The first layer over the relations."""
        ends = Ends(graph, tasks)
        labels = self._labels(graph, tasks, queried)
        entities = labels.new_ones(1, 1, self.shape.width).expand(graph.edges.nodes, len(tasks.visible), -1)
        vectors = self.relation_model(0, labels, labels, entities, ends)
        return self.entity_model_mini.encode(vectors, ends.inverse, tasks.visible, queried)

    def _labels(self, graph: ReadGraph, tasks: PublishedTasks, queried: int) -> Tensor:
        """Ones (L, 2R + 2, W) at the queried relation or, as the published weights expect, at what it inverts."""
        labels = tasks.visible.new_zeros(len(tasks.visible), graph.relations + 2, self.shape.width)
        labels[:, queried if queried >= graph.relations else queried % (graph.relations // 2)] = 1
        return labels

    def encode_heads(
        self, graph: ReadGraph, tasks: PublishedTasks, first: EncodedRelations, states: Tensor
    ) -> EncodedRelations:
        """What the second model reads of relations, given tasks of one head each, what `encode` returned for them, and
        the first model's states (nodes, L, W)."""
        ends = Ends(graph, tasks)
        labels = self._labels(graph, tasks, first.queried)
        of_state, of_task = self.relation_model.node_mlp.weight.chunk(2, 1)
        by_task = nn.functional.linear(first.task, of_task, self.relation_model.node_mlp.bias)
        entities = nn.functional.linear(states, of_state) + by_task
        z = first.vectors
        for number in range(1, self.shape.relation_layers):
            z = self.relation_model(number, z, labels, entities, ends)
        return self.entity_model.encode(z, ends.inverse, tasks.visible, first.queried)

    @property
    def first_model(self) -> EntityModel:
        return self.entity_model_mini

    def scores(
        self, graph: ReadGraph, tasks: PublishedTasks, encoded: EncodedRelations, rows: Sequence[Rows] | None = None
    ) -> Tensor:
        everywhere = None if rows is None else [every_row(MessageEdges(graph.edges))] * self.shape.first_layers
        states = self.entity_model_mini.propagate(graph, tasks, encoded, everywhere)
        count, queries = tasks.heads.shape
        own = torch.arange(count, device=tasks.heads.device).repeat_interleave(queries)
        each = PublishedTasks(*(values[own] for values in tasks))._replace(heads=tasks.heads.view(-1, 1))
        first = encoded._replace(vectors=encoded.vectors[own])
        second = self.encode_heads(graph, each, first, states.flatten(1, 2))
        states = self.entity_model.propagate(graph, each, second, rows)
        return self.entity_model.scores(states, second, each.candidates, rows).view(count, queries, -1)
