"""ULTRA's network (Galkin et al., "Towards Foundation Models for Knowledge Graph Reasoning", ICLR 2024), its weights.

Relations and their inverses are the nodes of a second graph. Its four kinds of edges join relations that share heads,
share tails, or where the head of one is a tail of the other. Layers over this graph, with a label at the queried
relation, compute a vector of each relation; layers over the entities, with a label at the head, compute a state of each
entity.

Here the queried relation is new. It and its inverse are the last two nodes of the graph of relations, 2R and 2R + 1,
and the references are its edges. Parameters have the names and the meaning of the published weights, which were trained
with messages from tails to heads: a message along an edge has the weight of the edge's inverse relation.

`python -m fewlink.models.ultra.network FILE.pth FILE.safetensors` converts published weights.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from fewlink.core.errors import InputError
from fewlink.core.storage import write_bytes
from fewlink.models.trail.network import mlp
from fewlink.models.trail.read_graph import ReadGraph
from fewlink.propagation.product import Norms, relation_sums, relational_product

EDGE_KINDS = 4  # between relations: shared heads, shared tails, head–tail, tail–head
MARK_COLUMNS = 16  # the minimum width of the GPU kernels


@dataclass(frozen=True)
class Shape:
    """`width` of states and vectors; `layers` over the entities; `relation_layers` over the relations."""

    width: int = 64
    layers: int = 6
    relation_layers: int = 6


class Tasks(NamedTuple):
    """Several tasks on one graph, each with as many queries.

    Shapes: `references` (L, K, 2) heads and tails; `weights` (L, K) 1, or 0 for padding; `visible` (L, 2R) 1 or, for
    relations that the task must not see, 0; `heads` (L, Q); `candidates` (L, C).
    """

    references: Tensor
    weights: Tensor
    visible: Tensor
    heads: Tensor
    candidates: Tensor


class Encoded(NamedTuple):
    """What the network makes of references: the weights of each relation (layers, L, 2R, W), of the new relation and
    of its inverse (layers, L, 2, W), and the vector of the task (L, W)."""

    relations: Tensor
    new: Tensor
    task: Tensor


class Layer(nn.Module):
    """x + ReLU(norm(A [x; sums] + a)), given the sums of messages and of the labels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * width, width)
        self.layer_norm = nn.LayerNorm(width)

    def updated(self, x: Tensor, sums: Tensor) -> Tensor:
        """States (…, W) after the layer."""
        from_state, from_sums = self.linear.weight.chunk(2, 1)
        y = linear(x, from_state, self.linear.bias).flatten(0, -2)
        y = torch.addmm(y, sums.flatten(0, -2), from_sums.T).view_as(x)
        return x + relu(self.layer_norm(y))


class RelationLayer(Layer):
    """A layer over the relations; each kind of edge has a vector."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.relation = nn.Embedding(EDGE_KINDS, width)

    def forward(self, x: Tensor, labels: Tensor, shared: Tensor, inverse: Tensor) -> Tensor:
        """Vectors (L, N, W) after the layer, given labels (L, N, W) and which relations share heads (L, N, N)."""
        heads, tails, head_tail, tail_head = self.relation.weight
        begin, end = shared @ x, shared @ x[:, inverse]  # of relations that begin, or end, at a relation's heads
        sums = heads * begin + tails * end[:, inverse] + head_tail * end + tail_head * begin[:, inverse]
        return self.updated(x, sums + labels)


class EntityLayer(Layer):
    """A layer over the entities; the weights of messages are projected vectors of relations."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.relation_projection = mlp(width, width, width)


class RelationModel(nn.Module):
    """The layers over the graph of relations."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width
        self.layers = nn.ModuleList(RelationLayer(shape.width) for _ in range(shape.relation_layers))

    def forward(self, shared: Tensor, inverse: Tensor, queried: int) -> Tensor:
        """The vectors (L, N, W) of all relations, given the queried one; other arguments as in `RelationLayer`."""
        labels = shared.new_zeros(*shared.shape[:2], self.width)
        labels[:, queried] = 1
        x = labels
        for layer in self.layers:
            x = layer(x, labels, shared, inverse)
        return x


class EntityModel(nn.Module):
    """The layers over the entities, and the network that scores their states."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EntityLayer(shape.width) for _ in range(shape.layers))
        self.mlp = mlp(2 * shape.width, 2 * shape.width, 1)


class UltraNetwork(nn.Module):
    """The network; `forward` gives scores (L, Q, C)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.relation_model, self.entity_model = shape, RelationModel(shape), EntityModel(shape)

    def forward(self, graph: ReadGraph, tasks: Tasks, dtype: torch.dtype = torch.float32) -> Tensor:
        encoded = self.encode(graph, tasks)
        return self.scores(self.propagate(graph, tasks, encoded), encoded, tasks.candidates)

    def encode(self, graph: ReadGraph, tasks: Tasks) -> Encoded:
        """The message weights of each relation, those of the new one and its inverse, and the new one's vector."""
        with torch.no_grad():
            shared = shared_heads(graph, tasks)
        inverse = torch.cat([graph.inverse, torch.arange(2, device=graph.device).roll(1) + graph.relations])
        vectors = self.relation_model(shared, inverse, queried=graph.relations)  # (L, 2R + 2, W)
        weights = self.message_weights(vectors[:, inverse])
        relations = weights[:, :, : graph.relations] * tasks.visible.unsqueeze(-1)
        return Encoded(relations, weights[:, :, graph.relations :], vectors[:, graph.relations])

    def encode_relation(self, graph: ReadGraph, queried: int) -> Encoded:
        """The same for a relation of the graph without a new one, for ordinary link prediction.

        The published weights expect the label at the relation itself, even if its inverse is queried.
        """
        labelled = queried % (graph.relations // 2)
        vectors = self.relation_model((graph.together > 0).float()[None], graph.inverse, labelled)  # (1, 2R, W)
        weights = self.message_weights(vectors[:, graph.inverse])
        return Encoded(weights, weights[:, :, :0], vectors[:, queried])

    def message_weights(self, vectors: Tensor) -> Tensor:
        """The projections (layers, L, N, W) of vectors (L, N, W) by each layer."""
        return torch.stack([layer.relation_projection(vectors) for layer in self.layers])

    @property
    def layers(self) -> list[EntityLayer]:
        return [*self.entity_model.layers]  # type: ignore[list-item]

    def propagate(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded) -> Tensor:
        """States (nodes, L, Q, W) of every entity after the last layer."""
        (count, queries), width = tasks.heads.shape, self.shape.width
        task, query = (torch.arange(n, device=tasks.heads.device) for n in (count, queries))
        labelled = ((tasks.heads * count + task[:, None]) * queries + query).flatten()
        labels = encoded.task.repeat_interleave(queries, 0)  # (L · Q, W)
        x = labels.new_zeros(graph.edges.nodes * count * queries, width).index_add(0, labelled, labels)
        x = x.view(graph.edges.nodes, count, queries, width)
        sources, targets = reference_edges(tasks)
        for layer, relations, new in zip(self.layers, encoded.relations, encoded.new, strict=True):
            over = (new.transpose(0, 1)[:, :, None] * tasks.weights[..., None]).flatten(0, 2)  # (2 · L · K, W)
            sums = relational_product(x, relations, graph.edges, Norms.ONE)
            sums.flatten(0, 1).index_add_(0, targets, x.flatten(0, 1)[sources] * over[:, None])
            sums.flatten(0, 2).index_add_(0, labelled, labels)
            x = layer.updated(x, sums)
        return x

    def scores(self, states: Tensor, encoded: Encoded, candidates: Tensor) -> Tensor:
        """Scores (L, Q, C) of candidates (L, C)."""
        task = torch.arange(len(candidates), device=candidates.device)[:, None]
        return self.score(states[candidates, task], encoded.task[:, None, None]).transpose(1, 2)

    def score(self, states: Tensor, relation: Tensor) -> Tensor:
        """Scores (…) of states (…, W), given the vector of the queried relation (…, W)."""
        first, last = self.entity_model.mlp[0], self.entity_model.mlp[2]
        of_state, of_relation = first.weight.chunk(2, 1)  # type: ignore[operator, union-attr]
        inner = relu(linear(states, of_state) + linear(relation, of_relation, first.bias))  # type: ignore[arg-type]
        scores: Tensor = last(inner).squeeze(-1)
        return scores


def reference_edges(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """The references as edges of the new relation and of its inverse: their sources and targets (2 · L · K,), as rows
    of states (nodes · L, Q, W)."""
    count = len(tasks.references)
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    heads, tails = rows.unbind(-1)
    return torch.stack([heads, tails]).flatten(), torch.stack([tails, heads]).flatten()


def shared_heads(graph: ReadGraph, tasks: Tasks) -> Tensor:
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


def _relations_at_references(graph: ReadGraph, tasks: Tasks) -> Tensor:
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


class Checkpoint(NamedTuple):
    """Weights by name, with the name and sha256 of their file in `facts`."""

    weights: dict[str, Tensor]
    facts: dict[str, Any]

    @property
    def shape(self) -> Shape:
        return shape_of(self.weights)

    def network(self) -> UltraNetwork:
        """A network with a copy of the weights."""
        network = UltraNetwork(self.shape)
        network.load_state_dict(self.weights)
        return network


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Read ULTRA's weights from a published .pth file or a .safetensors file; code in the file is never run."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror}): give a file of ULTRA's weights") from None
    found: Any
    try:
        if content[8:9] == b"{":
            found = safetensors.torch.load(content)
        else:
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # torch.load raises errors of many kinds
        raise InputError(path, "is damaged or not a file of weights: give a .pth or .safetensors file") from None
    if isinstance(found, dict) and isinstance(found.get("model"), dict):
        found = found["model"]  # a file may also have an optimizer's state
    tensors = {n: w for n, w in found.items() if isinstance(w, Tensor)} if isinstance(found, dict) else {}
    network = UltraNetwork(shape_of(tensors))
    expected = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    shapes = {name: tuple(weight.shape) for name, weight in tensors.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if shapes.get(name) != expected.get(name):
            difference = f"{name} has shape {shapes.get(name)}, expected {expected.get(name)}"
            raise InputError(path, f"does not have weights of ULTRA ({difference}): give another file")
    weights = {name: tensors[name].float() for name in expected}
    return Checkpoint(weights, {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()})


def shape_of(weights: Mapping[str, Tensor]) -> Shape:
    """The shape of a network with these weights; the published shape where they do not determine it."""
    layers, relation_layers = (
        sum(bool(re.fullmatch(rf"{model}\.layers\.\d+\.linear\.weight", name)) for name in weights)
        for model in ("entity_model", "relation_model")
    )
    bias = weights.get("relation_model.layers.0.linear.bias")
    width = Shape.width if bias is None or bias.dim() != 1 else len(bias)
    return Shape(width or Shape.width, layers or Shape.layers, relation_layers or Shape.relation_layers)


def convert(source: Path, target: Path) -> Path:
    """Convert a file of weights to safetensors."""
    write_bytes(target, safetensors.torch.save(read_checkpoint(source).weights))
    return target


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(convert(Path(sys.argv[1]), Path(sys.argv[2])))
