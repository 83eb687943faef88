"""TRAIL's network: vectors of relations from the references, propagation over the graph, and the scores of candidates.

Nothing depends on which entity or relation it is, only on how the graph joins them, so one set of weights reads any
graph. A state is exactly zero where no path of the layers' length reaches from the head or a reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

from fewlink.models.trail.reading import RELATION_FEATURES, TASK_FEATURES, ReadGraph, TaskReading, Tasks, read_tasks
from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, asinh, kernels_for, relational_product

EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """`width` of states and vectors, a multiple of 8; `layers` of propagation; `relation_layers` among relations."""

    width: int = 32
    layers: int = 6
    relation_layers: int = 2


class Encoded(NamedTuple):
    """What the network makes of references: the weights of each relation (layers, L, 2R, W), of the new relation and
    of its inverse (layers, L, 2, W), and the vector of the task (L, W)."""

    relations: Tensor
    new: Tensor
    task: Tensor


class TrailNetwork(nn.Module):
    """The network; `forward` gives scores (L, Q, C)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self.read_relation = mlp(RELATION_FEATURES, 2 * width, width)
        self.relation_layers = nn.ModuleList(RelationLayer(width) for _ in range(shape.relation_layers))
        self.read_task = mlp(2 * width + TASK_FEATURES, 2 * width, width)
        self.relation_weights = nn.Linear(width, shape.layers * width)
        self.new_weights = nn.Linear(width, shape.layers * 2 * width)
        self.marks = nn.Linear(width, 3 * width)  # of the head, the references' heads and the references' tails
        self.layers = nn.ModuleList(Layer(width) for _ in range(shape.layers))
        self.of_state, self.of_task = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width)
        self.last = nn.Linear(2 * width, 1)

    def forward(self, graph: ReadGraph, tasks: Tasks, dtype: torch.dtype = torch.float32) -> Tensor:
        with torch.no_grad():
            reading = read_tasks(graph, tasks)
        encoded = self.encode(graph, tasks, reading)
        states = self.propagate(graph, tasks, encoded, dtype)
        return self.scores(states, encoded, tasks.candidates)

    def encode(self, graph: ReadGraph, tasks: Tasks, reading: TaskReading) -> Encoded:
        """What the network makes of the references of L tasks, given what was read of them."""
        visible = tasks.visible.unsqueeze(-1)
        vectors = self.read_relation(reading.relations) * visible
        for layer in self.relation_layers:
            vectors = layer(vectors, graph.together, graph.inverse) * visible
        around = reading.around @ vectors / reading.around.sum(-1, keepdim=True).clamp(min=1e-6)  # (L, 2, W)
        task = self.read_task(torch.cat([around.flatten(1), reading.task], -1))
        count, width = self.shape.layers, self.shape.width
        relations = self.relation_weights(vectors) * visible  # (L, 2R, layers · W)
        new = self.new_weights(task)
        return Encoded(
            relations.unflatten(-1, (count, width)).permute(2, 0, 1, 3),
            new.unflatten(-1, (count, 2, width)).transpose(0, 1),
            task,
        )

    def propagate(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, dtype: torch.dtype) -> Tensor:
        """States (nodes, L, Q, W) of every entity after the last layer."""
        x = self.first_states(graph, tasks, encoded).to(dtype)
        extra = reference_edges(tasks)
        for layer, update in enumerate(self.layers):
            new = encoded.new[layer].transpose(0, 1)  # (2, L, W)
            over = (new[:, :, None] * tasks.weights[..., None]).flatten(0, 2).to(dtype)  # (2 · L · K, W)
            x = update(x, encoded.relations[layer].to(dtype), extra, over, graph.edges)
        return x

    def first_states(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded) -> Tensor:
        """Marks at the head and at the references: (nodes, L, Q, W)."""
        (count, queries), width = tasks.heads.shape, self.shape.width
        marks = self.marks(encoded.task).unflatten(-1, (3, width))  # (L, 3, W)
        x = marks.new_zeros(graph.edges.nodes * count, queries, width)
        task = torch.arange(count, device=x.device)[:, None]
        for end in (0, 1):
            mark = marks[:, None, 1 + end] * tasks.weights[..., None]  # (L, K, W)
            rows = tasks.references[..., end] * count + task
            x = x.index_add(0, rows.flatten(), mark.flatten(0, 1)[:, None].expand(-1, queries, -1))
        x = x.view(-1, width)
        rows = (tasks.heads * count + task) * queries + torch.arange(queries, device=x.device)
        x = x.index_add(0, rows.flatten(), marks[:, 0].repeat_interleave(queries, 0))
        states: Tensor = x.view(graph.edges.nodes, count, queries, width)
        return states

    def scores(self, states: Tensor, encoded: Encoded, candidates: Tensor) -> Tensor:
        """Scores (L, Q, C) of candidates (L, C)."""
        task = torch.arange(len(candidates), device=candidates.device)[:, None]
        return self.score(states[candidates, task].to(encoded.task.dtype), encoded.task[:, None, None]).transpose(1, 2)

    def score(self, states: Tensor, task: Tensor) -> Tensor:
        """Scores (…) of states (…, W), given the vector of their task (…, W)."""
        scores: Tensor = self.last(relu(self.of_state(states) + self.of_task(task))).squeeze(-1)
        return scores


class RelationLayer(nn.Module):
    """A step over the graph of relations: those that share heads, share tails, or follow each other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(5 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, together: Tensor, inverse: Tensor) -> Tensor:
        """Vectors (L, 2R, W) after the step, given how often relations are together (2R, 2R)."""
        begin, end = together @ vectors, together @ vectors[:, inverse]  # of relations that begin, or end, at r's heads
        at_tails = torch.cat([end, begin], -1)[:, inverse]
        parts = torch.cat([vectors, begin, end, at_tails], -1)
        return vectors + relu(self.norm(self.linear(parts)))


class Layer(nn.Module):
    """x + ReLU(gain ⊙ norm(x · A + asinh(sums) · B)) with the sums of incoming messages; zero where x and sums are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_state = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.from_sums = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, w: Tensor, extra: tuple[Tensor, Tensor], weights: Tensor, edges: EdgeTable) -> Tensor:
        """States after the layer, given weights of relations w (L, 2R, W) and of the `extra` edges (n, W)."""
        if (kernels := kernels_for(x)) is not None:
            own = self.from_state, self.from_sums, self.gain
            return kernels.Layer.apply(x, w, extra, weights, *own, edges, Norms.FOUR.value)  # type: ignore[no-any-return]
        sources, targets = extra
        sums = relational_product(x, w, edges, Norms.FOUR).flatten(0, 1)
        sums = sums.index_add(0, targets, x.flatten(0, 1)[sources] * weights[:, None]).view_as(x)
        return self.updated(x, sums)

    def updated(self, x: Tensor, sums: Tensor) -> Tensor:
        """States (…, W) after the layer, given those before it and the sums of their messages."""
        y = x @ self.from_state.to(x.dtype) + asinh(sums) @ self.from_sums.to(x.dtype)
        return x + relu(layer_norm(y, y.shape[-1:], self.gain.to(x.dtype), eps=EPS))


def reference_edges(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """The references as edges of the new relation and of its inverse: their sources and targets (2 · L · K,), as rows
    of states (nodes · L, Q, W)."""
    count = len(tasks.references)
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    heads, tails = rows.unbind(-1)
    return torch.stack([heads, tails]).flatten(), torch.stack([tails, heads]).flatten()


def mlp(wide: int, inner: int, out: int) -> nn.Sequential:
    """Two linear layers with ReLU between them."""
    return nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))
