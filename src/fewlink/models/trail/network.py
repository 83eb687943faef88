"""TRAIL's network: vectors of relations from the references, two streams of propagation, and the scores of candidates.

Nothing depends on which entity or relation it is, only on how the graph joins them, so one set of weights reads any
graph. The asked relation is a relation like the others: its references are its edges, and it is a node of the graph of
relations. One stream begins at the references and is the same for every head; the other begins at the head.

With L tasks, 2R relations of the graph, the new one and its inverse last, and width W:

    z_r = MLP(features of r),  then for each relation layer
    z_r ← z_r + ReLU(norm(A [z_r; Σ C(r,s) z_s; Σ C(r,s) z_{s⁻¹}; Σ C(r⁻¹,s) z_{s⁻¹}; Σ C(r⁻¹,s) z_s] + a))         (1)
    q   = MLP([mean of z around the references' heads; around their tails; facts; joined; z_new; z_new⁻¹])           (2)
    w_r = U z_r + u,  and for the new relation and its inverse  U z_r + u + U' q + u'                                (3)
    x   = marks of q at the references' heads and tails (one stream), or at the head (the other)
    s_t = Σ c(h, r, t) ⊙ w_r ⊙ x_h over all edges (h, r, t), references included                                    (4)
    x_t ← x_t + ReLU(gain ⊙ norm(x_t A + asinh(s_t) B))                                                              (5)
    score of t = v · ReLU(P [x_t; x'_t] + P' q + P'' cosines + p) + v₀                                               (6)

c are 1 / fan-out, 1 / fan-in, the root of both, and 1, in equal blocks of the width; the fans of references are counted
among the references. A state is exactly zero where no path of the layers' length reaches from a mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from fewlink.models.trail.features import FACTS, WALK_FEATURES, ReadGraph, TaskReferences, Walks, read_walks
from fewlink.models.trail.names import COSINES, FLAGS, name_cosines
from fewlink.models.trail.propagate import Layer, MessageEdges, Weights, head_places, marked, propagate
from fewlink.propagation.product import Norms, widened

RELATION_FEATURES = WALK_FEATURES + 2 + 5 + 1 + FLAGS + 1  # walks, around, sizes, shots, flags of names, is new
TASK_FEATURES = FACTS + 3
HEAD = 0
REFERENCES = 1  # the streams


@dataclass(frozen=True)
class Shape:
    """`width` of states and vectors, a multiple of 8; `layers` of propagation; `relation_layers` among relations."""

    width: int = 32
    layers: int = 6
    relation_layers: int = 2


class Tasks(NamedTuple):
    """Several tasks on one graph: `references` of L tasks, `heads` (L, Q) and `candidates` (L, C)."""

    references: TaskReferences
    heads: Tensor
    candidates: Tensor


class Encoded(NamedTuple):
    """What the network makes of references: for each stream the weights of every relation (2, layers, L, 2R, W), of the
    new relation and its inverse (2, layers, L, 2, W), and the vector of the task (L, W)."""

    relations: Tensor
    new: Tensor
    task: Tensor


class TrailNetwork(nn.Module):
    """The network; `forward` gives scores (L, Q, C)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.read_relation = mlp(RELATION_FEATURES, 2 * width, width)
        self.relation_layers = nn.ModuleList(RelationLayer(width) for _ in range(shape.relation_layers))
        self.read_task = mlp(4 * width + TASK_FEATURES, 2 * width, width)
        self.relation_weights = nn.Linear(width, 2 * shape.layers * width)
        self.new_weights = nn.Linear(width, 2 * shape.layers * 2 * width)
        self.marks = nn.Linear(width, 3 * width)  # of the head, the references' heads and the references' tails
        self.layers = nn.ModuleList(nn.ModuleList(Layer(width) for _ in range(shape.layers)) for _ in range(2))
        self.of_state = nn.Linear(2 * width, 2 * width, bias=False)
        self.of_task = nn.Linear(width, 2 * width)
        self.of_names = nn.Linear(COSINES, 2 * width, bias=False)
        nn.init.normal_(self.of_names.weight, std=0.05)
        self.last = nn.Linear(2 * width, 1)

    def layers_of(self, stream: int) -> list[Layer]:
        """The layers of a stream."""
        return [*self.layers[stream]]  # type: ignore[misc, list-item]

    def forward(self, graph: ReadGraph, tasks: Tasks, dtype: torch.dtype = torch.float32) -> Tensor:
        references = tasks.references
        encoded = self.encode(graph, references, read_walks(graph, references, dtype))
        extra = references.edges()
        edges = MessageEdges(graph.edges, extra)
        count, queries = tasks.heads.shape
        marks = self.reference_marks(references, encoded)
        begin = marked(extra.rows, marks, graph.edges.nodes, count, 1).to(dtype)
        from_references = propagate(edges, begin, self.weights(references, encoded, REFERENCES))
        marks = self.head_marks(encoded, queries)
        begin = marked(head_places(tasks.heads), marks, graph.edges.nodes, count, queries).to(dtype)
        from_heads = propagate(edges, begin, self.weights(references, encoded, HEAD))
        task = torch.arange(len(tasks.candidates), device=graph.device)[:, None]
        of_heads = from_heads[tasks.candidates, task].transpose(1, 2)  # (L, Q, C, W)
        of_references = from_references[tasks.candidates, task].transpose(1, 2)  # (L, 1, C, W)
        cosines = self.cosines(graph, references, tasks.heads, tasks.candidates)
        return self.score(of_heads, of_references, encoded.task[:, None, None], cosines)

    def encode(self, graph: ReadGraph, references: TaskReferences, walks: Walks) -> Encoded:
        """What the network makes of references: equations 1 to 3."""
        count = len(references.ends)
        known = graph.relations
        visible = torch.cat([references.visible, references.visible.new_ones(count, 2)], 1)[..., None]
        vectors = self.read_relation(relation_features(graph, references, walks)) * visible  # (L, 2R + 2, W)
        share = references.around / references.around.sum(-1, keepdim=True).clamp(min=1e-6)  # (L, 2, 2R)
        cover = references.cover.transpose(1, 2)
        seen = (references.visible @ graph.together.T).clamp(min=1e-6)[..., None]  # C adds up to 1 over what is visible

        def together(vectors: Tensor) -> Tensor:
            """Σ C(r, s) z_s."""
            old = vectors[:, :known]
            new = vectors[:, known:]
            return torch.cat([graph.together @ old / seen + cover @ new, share @ old + references.turned @ new], 1)

        inverse = torch.cat([graph.inverse, torch.arange(known + 1, known - 1, -1, device=graph.device)])
        for layer in self.relation_layers:
            vectors = layer(vectors, together, inverse) * visible
        around = share @ vectors[:, :known]
        new = vectors[:, known:]
        task = self.read_task(torch.cat([around.flatten(1), references.facts, walks.joined, new.flatten(1)], -1))
        weights = self.relation_weights(vectors).unflatten(-1, (2, self.shape.layers, -1)).permute(2, 3, 0, 1, 4)
        of_task = self.new_weights(task).unflatten(-1, (2, self.shape.layers, 2, -1)).permute(1, 2, 0, 3, 4)
        return Encoded(weights[..., :known, :] * visible[:, :known], weights[..., known:, :] + of_task, task)

    def reference_marks(self, references: TaskReferences, encoded: Encoded) -> Tensor:
        """The marks (L · E, W) of the references' ends, with which their stream begins."""
        marks = self.marks(encoded.task).unflatten(-1, (3, -1))[:, 1:]  # (L, 2, W)
        of_ends: Tensor = references.marks.transpose(1, 2) @ marks
        return of_ends.flatten(0, 1)

    def head_marks(self, encoded: Encoded, queries: int) -> Tensor:
        """The marks (L · Q, W) of heads, with which their streams begin."""
        marks: Tensor = self.marks(encoded.task)[:, : self.shape.width]
        return marks.repeat_interleave(queries, 0)

    def weights(self, references: TaskReferences, encoded: Encoded, stream: int) -> list[Weights]:
        """What each layer of a stream multiplies messages with: equation 3."""
        scales = references.constants(self.shape.width, Norms.FOUR)  # (2, L, P, W)
        of_layers = zip(self.layers_of(stream), encoded.relations[stream], encoded.new[stream], strict=True)
        return [
            Weights(layer, relations, (new.transpose(0, 1)[:, :, None] * scales).flatten(0, 2))
            for layer, relations, new in of_layers
        ]

    def weights_of_relations(self, encoded: Encoded, stream: int) -> list[Weights]:
        """The same for one task whose references are edges of relation 2R and its inverse in the graph itself."""
        of_layers = zip(self.layers_of(stream), encoded.relations[stream], encoded.new[stream], strict=True)
        nothing = encoded.task.new_zeros(0, self.shape.width)
        return [Weights(layer, torch.cat([relations, new], 1), nothing) for layer, relations, new in of_layers]

    def cosines(self, graph: ReadGraph, references: TaskReferences, heads: Tensor, candidates: Tensor) -> Tensor | None:
        """What names say of heads (L, Q) and candidates (L, C), in ids of the whole graph: (L, Q, C, COSINES)."""
        if graph.vectors is None:
            return None
        vectors = graph.vectors
        ends = references.sampled_entities
        found = name_cosines(vectors[ends], references.sampled, vectors[heads], vectors[candidates])
        return found * references.named[:, None, None, None]

    def score(self, from_head: Tensor, from_references: Tensor, task: Tensor, cosines: Tensor | None = None) -> Tensor:
        """Scores (…) of states (…, W) of both streams, given the vector of their task (…, W): equation 6."""
        of_head, of_references = self.of_state.weight.chunk(2, 1)
        hidden = widened(from_head) @ of_head.T + widened(from_references) @ of_references.T + self.of_task(task)
        if cosines is not None:
            hidden = hidden + self.of_names(cosines)
        scores: Tensor = self.last(relu(hidden)).squeeze(-1)
        return scores


def relation_features(graph: ReadGraph, references: TaskReferences, walks: Walks) -> Tensor:
    """What is read of each relation, the new one and its inverse last: (L, 2R + 2, RELATION_FEATURES)."""
    count = len(references.ends)
    around = torch.cat([references.around, references.turned], 2).transpose(1, 2)
    sizes = torch.cat([graph.sizes.expand(count, -1, -1), references.sizes], 1)
    shots = references.facts[:, :1, None].expand(-1, graph.relations + 2, -1)
    flags = graph.flags.new_zeros(graph.relations + 2, FLAGS + 1)
    flags[: graph.relations, :FLAGS] = graph.flags
    flags[graph.relations :, FLAGS] = 1
    return torch.cat([walks.features, around, sizes, shots, flags.expand(count, -1, -1)], -1)


class RelationLayer(nn.Module):
    """A step over the graph of relations: those that share heads, share tails, or follow each other; equation 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(5 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, together: Callable[[Tensor], Tensor], inverse: Tensor) -> Tensor:
        """Vectors (L, 2R + 2, W) after the step, given the mean over relations at the same heads."""
        both = torch.cat([vectors, vectors[:, inverse]], -1)
        begin, end = together(both).chunk(2, -1)  # of relations that begin, or end, at r's heads
        at_tails = torch.cat([end, begin], -1)[:, inverse]
        return vectors + relu(self.norm(self.linear(torch.cat([vectors, begin, end, at_tails], -1))))


def mlp(wide: int, inner: int, out: int) -> nn.Sequential:
    """Two linear layers with ReLU between them."""
    return nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))
