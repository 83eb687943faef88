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

from fewlink.propagation.edges import EdgeTable
from fewlink.propagation.product import Norms, kernels_for, profile_product, relational_product
from fewlink.trail2.reading import RELATION_FEATURES, TASK_FEATURES, ReadGraph, TaskReading, Tasks, read_tasks

EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """`width` of states and vectors, a multiple of 4; `layers` of propagation; `relation_layers` among relations."""

    width: int = 32
    layers: int = 6
    relation_layers: int = 2
    matching: bool = False
    profile: bool = True


class Encoded(NamedTuple):
    """What the network makes of references: the weights of each relation (layers, L, 2R, W), of the new relation and
    of its inverse (layers, L, 2, W), and the vector of the task (L, W)."""

    relations: Tensor
    new: Tensor
    task: Tensor
    profile: Tensor


class TrailNetwork(nn.Module):
    """The network; `forward` gives scores (L, Q, C)."""

    def __init__(self, shape: Shape = Shape()) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        self.read_relation = mlp(RELATION_FEATURES, 2 * width, width)
        self.relation_layers = nn.ModuleList(RelationLayer(width) for _ in range(shape.relation_layers))
        self.read_task = mlp(2 * width + TASK_FEATURES, 2 * width, width)
        self.relation_weights = nn.Linear(width, shape.layers * width)
        self.new_weights = nn.Linear(width, shape.layers * 2 * width)
        self.profile_weights = nn.Linear(width, width)
        self.of_profile = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.of_degree = nn.Linear(1, 2 * width, bias=False)
        self.marks = nn.Linear(width, 3 * width)  # of the head, the references' heads and the references' tails
        self.updates = nn.ModuleList(Layer(width) for _ in range(shape.layers))
        self.score = nn.ModuleList(nn.Linear(width, 2 * width, bias=bias) for bias in (False, True, False, False))
        self.last = nn.Linear(2 * width, 1)

    def forward(self, graph: ReadGraph, tasks: Tasks, dtype: torch.dtype = torch.float32) -> Tensor:
        with torch.no_grad():
            reading = read_tasks(graph, tasks)
        encoded = self.encode(graph, tasks, reading)
        pairs = self.reference_states(graph, tasks, encoded, dtype)
        states = self.propagate(graph, tasks, encoded, dtype)
        return self.scores(graph, tasks, states, encoded, pairs)

    def encode(self, graph: ReadGraph, tasks: Tasks, reading: TaskReading) -> Encoded:
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
            self.profile_weights(vectors) * visible,
        )

    def reference_states(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, dtype: torch.dtype) -> Tensor:
        """What the references look like as answers, each asked without itself: the mean state (L, W) of their tails."""
        if not self.shape.matching:
            return torch.zeros_like(encoded.task)
        heads, tails = tasks.references.unbind(-1)
        count, most = heads.shape
        others = 1 - torch.eye(most, device=heads.device).expand(count, -1, -1)  # (L, K, Q): all but itself
        states = self.propagate(graph, tasks._replace(heads=heads), encoded, dtype, others)
        task = torch.arange(count, device=heads.device)[:, None]
        at = torch.arange(most, device=heads.device)
        own = states[tails, task, at].float() * tasks.weights[..., None]  # (L, K, W)
        return layer_norm(own.sum(1) / tasks.weights.sum(1, keepdim=True), own.shape[-1:])

    def propagate(
        self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, dtype: torch.dtype, seen: Tensor | None = None
    ) -> Tensor:
        """States (nodes, L, Q, W) of every entity after the last layer; `seen` (L, K, Q): 1 for the references that
        each query may see, by default all."""
        queries = tasks.heads.shape[1]
        weights = tasks.weights[..., None].expand(-1, -1, queries) if seen is None else tasks.weights[..., None] * seen
        x = self.first_states(graph, tasks, encoded, weights).to(dtype)
        extra = reference_edges(tasks)
        for layer, update in enumerate(self.updates):
            new = encoded.new[layer].transpose(0, 1)  # (2, L, W)
            over = (new[:, :, None, None] * weights[..., None]).flatten(0, 2).to(dtype)  # (2 · L · K, Q, W)
            x = update(x, encoded.relations[layer].to(dtype), extra, over, graph.edges)
        return x

    def first_states(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, weights: Tensor) -> Tensor:
        """Marks at the head and at the references, given their weights (L, K, Q): (nodes, L, Q, W)."""
        (count, queries), width = tasks.heads.shape, self.shape.width
        marks = self.marks(encoded.task).unflatten(-1, (3, width))  # (L, 3, W)
        x = marks.new_zeros(graph.edges.nodes * count, queries, width)
        task = torch.arange(count, device=x.device)[:, None]
        for end in (0, 1):
            mark = marks[:, None, None, 1 + end] * weights[..., None]  # (L, K, Q, W)
            rows = tasks.references[..., end] * count + task
            x = x.index_add(0, rows.flatten(), mark.flatten(0, 1))
        x = x.view(-1, width)
        rows = (tasks.heads * count + task) * queries + torch.arange(queries, device=x.device)
        x = x.index_add(0, rows.flatten(), marks[:, 0].repeat_interleave(queries, 0))
        return x.view(graph.edges.nodes, count, queries, width)

    def scores(self, graph: ReadGraph, tasks: Tasks, states: Tensor, encoded: Encoded, pairs: Tensor) -> Tensor:
        """Scores (L, Q, C) of candidates (L, C), given the mean state of references (L, W)."""
        candidates = tasks.candidates
        task = torch.arange(len(candidates), device=candidates.device)[:, None]
        of_state, of_task, of_pairs, of_match = self.score
        own = states[candidates, task].float()  # (L, C, Q, W)
        common = (of_task(encoded.task) + of_pairs(pairs))[:, None, None]
        inner = of_state(own) + common
        if self.shape.matching:
            inner = inner + of_match(own * pairs[:, None, None])
        if self.shape.profile:
            ones = encoded.profile.new_ones(graph.edges.nodes, len(candidates), 1, self.shape.width)
            sums = profile_product(ones, encoded.profile, graph.edges).squeeze(2)  # (nodes, L, W)
            of_tail, of_head = self.of_profile
            tails, heads = (layer_norm(sums[ends, task].asinh(), sums.shape[-1:]) for ends in (candidates, tasks.heads))
            inner = inner + (of_tail(tails) + self.of_degree(graph.degrees[candidates][..., None] / 8))[:, :, None]
            inner = inner + of_head(heads)[:, None]
        return self.last(relu(inner)).squeeze(-1).transpose(1, 2)


class RelationLayer(nn.Module):
    """A step over the graph of relations: those that share heads, share tails, or follow each other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(5 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, together: Tensor, inverse: Tensor) -> Tensor:
        """Vectors (L, 2R, W) after the step, given how often relations are together (2R, 2R)."""
        turned = vectors[:, inverse]
        heads, follow = together @ vectors, together @ turned  # r's head is s's head, r's head is s's tail
        parts = torch.cat([vectors, heads, follow, follow_back(together, inverse, vectors, turned)], -1)
        return vectors + relu(self.norm(self.linear(parts)))


def follow_back(together: Tensor, inverse: Tensor, vectors: Tensor, turned: Tensor) -> Tensor:
    """r's tail is s's tail, and r's tail is s's head: (L, 2R, 2W)."""
    return torch.cat([together @ turned, together @ vectors], -1)[:, inverse]


class Layer(nn.Module):
    """x + ReLU(gain ⊙ norm(x · A + asinh(sums) · B)) with the sums of incoming messages; zero where x and sums are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_state = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.from_sums = nn.Parameter(torch.randn(width, width) / (2 * width) ** 0.5)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(
        self, x: Tensor, w: Tensor, extra: tuple[Tensor, Tensor], weights: Tensor, edges: EdgeTable
    ) -> Tensor:
        """States after the layer, given weights of relations w (L, 2R, W) and of the `extra` edges (n, Q, W)."""
        if (kernels := kernels_for(x)) is not None:
            own = self.from_state, self.from_sums, self.gain
            return kernels.Layer.apply(x, w, extra, weights, *own, edges, Norms.FOUR.value)  # type: ignore[no-any-return]
        sources, targets = extra
        sums = relational_product(x, w, edges, Norms.FOUR).flatten(0, 1)
        sums = sums.index_add(0, targets, x.flatten(0, 1)[sources] * weights).view_as(x)
        y = x @ self.from_state.to(x.dtype) + sums.asinh() @ self.from_sums.to(x.dtype)
        return x + relu(layer_norm(y, y.shape[-1:], eps=EPS) * self.gain.to(x.dtype))


def reference_edges(tasks: Tasks) -> tuple[Tensor, Tensor]:
    """The references as edges of the new relation and of its inverse: their sources and targets (2 · L · K,), as rows
    of states (nodes · L, Q, W)."""
    count = len(tasks.references)
    rows = tasks.references * count + torch.arange(count, device=tasks.references.device)[:, None, None]
    heads, tails = rows.unbind(-1)
    both = torch.stack([heads, tails]).flatten(), torch.stack([tails, heads]).flatten()
    return both


def mlp(wide: int, inner: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(wide, inner), nn.ReLU(), nn.Linear(inner, out))
