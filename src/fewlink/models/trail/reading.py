"""What TRAIL reads of a graph and of a task before anything is learnt: sizes of relations, walks of references."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.graph import Graph
from fewlink.graph.groups import offsets_of, spans
from fewlink.propagation.edges import EdgeTable, edge_fans
from fewlink.propagation.product import Norms, relation_sums, relational_product, transposed_product

MOST_REFERENCES = 16  # of a task; more are cut to the first
HOPS = ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0))  # hops before and after an edge of walks of one to three hops
RELATION_FEATURES = 3 * len(HOPS) + 8
TASK_FEATURES = 8
PAIRS_AT_ONCE = 1 << 24


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


class TaskReading(NamedTuple):
    """What references say: of each relation (L, 2R, RELATION_FEATURES), of the task (L, TASK_FEATURES), and the share
    of references whose head (whose tail) has each relation (L, 2, 2R)."""

    relations: Tensor
    task: Tensor
    around: Tensor


class ReadGraph:
    """A graph, or a part of one, as TRAIL reads it.

    Shapes: `sizes` (2R, 5) of each relation; `together` (2R, 2R), the share of the entities with one relation that
    have the other, rows adding up to 1; `degrees` (nodes,) the logarithm of each entity's number of edges. `edges` are
    sorted when they are first used.
    """

    def __init__(self, source: Graph | EdgeTable, sizes: Tensor, together: Tensor, degrees: Tensor) -> None:
        self._source, self.sizes, self.together, self.degrees = source, sizes, together, degrees

    @classmethod
    def of(cls, graph: Graph) -> ReadGraph:
        """The whole of a graph, on the CPU."""
        degrees = torch.from_numpy(np.log1p(np.asarray(graph.degrees, np.float32)))
        return cls(graph, _sizes(graph), _together(graph), degrees)

    def part(self, edges: EdgeTable, nodes: np.ndarray) -> ReadGraph:
        """The same graph with some of its entities and edges only."""
        return ReadGraph(edges, self.sizes, self.together, self.degrees[torch.from_numpy(nodes)])

    @functools.cached_property
    def edges(self) -> EdgeTable:
        table = self._source if isinstance(self._source, EdgeTable) else EdgeTable.of(self._source)
        return table.to(self.device)

    @property
    def device(self) -> torch.device:
        return self.sizes.device

    @property
    def relations(self) -> int:
        """The number of relations, inverse ones included."""
        return len(self.sizes)

    def to(self, device: str | torch.device) -> ReadGraph:
        tensors = (part.to(device) for part in (self.sizes, self.together, self.degrees))
        return ReadGraph(self._source, *tensors)

    @functools.cached_property
    def inverse(self) -> Tensor:
        """The inverse of each relation."""
        return torch.arange(self.relations, device=self.device).roll(self.relations // 2)


def read_tasks(graph: ReadGraph, tasks: Tasks) -> TaskReading:
    """What the references of each task say."""
    edges, (count, most) = graph.edges, tasks.weights.shape
    heads, tails = tasks.references.unbind(-1)
    total = tasks.weights.sum(1)  # (L,)
    visible = tasks.visible.unsqueeze(-1).expand(-1, -1, 2 * most).contiguous()
    task = torch.arange(count, device=heads.device)[:, None].expand(-1, most)
    columns = torch.arange(most, device=heads.device).expand(count, -1)

    def marks(ends: Tensor) -> Tensor:
        x = tasks.weights.new_zeros(edges.nodes, count, 1, 2 * most)
        for shift in (0, most):
            x[ends, task, 0, columns + shift] = tasks.weights
        return x

    before, after = [marks(heads)], [marks(tails)]
    for _ in range(2):
        before.append(relational_product(before[-1], visible, edges, Norms.TWO))
        after.append(transposed_product(after[-1], visible, edges, Norms.TWO))
    parts, joined = [], []
    for first, last in HOPS:
        chances = relation_sums(before[first], after[last], edges, Norms.TWO) * visible  # (L, 2R, 2K)
        forward, back = chances.split(most, -1)
        share = (forward > 0).float() * tasks.weights[:, None]
        parts += [_chance(forward).sum(-1), _chance(back).sum(-1), share.sum(-1)]
        joined.append(share.amax(1).sum(-1) / total)
    ones = torch.ones_like(before[0])
    has_head = relation_sums(before[0], ones, edges, Norms.TWO)[..., :most].sum(-1) * tasks.visible
    has_tail = relation_sums(ones, after[0], edges, Norms.TWO)[..., most:].sum(-1) * tasks.visible
    around = torch.stack([has_head, has_tail[:, graph.inverse]], 1) / total[:, None, None]
    walks = torch.stack(parts, -1) / total[:, None, None]
    shots = (total.log() / 2)[:, None, None].expand(-1, edges.relations, 1)
    sizes = graph.sizes.expand(count, -1, -1)
    relations = torch.cat([walks, around.transpose(1, 2), sizes, shots], -1)
    same = [_distinct(ends, tasks.weights) for ends in (heads, tails)]
    degrees = [(graph.degrees[ends] * tasks.weights).sum(1) / total / 8 for ends in (heads, tails)]
    hops = [joined[0], torch.maximum(joined[1], joined[2]), joined[4]]
    return TaskReading(relations, torch.stack([total.log() / 2, *hops, *same, *degrees], -1), around)


def _chance(value: Tensor) -> Tensor:
    """A chance on a logarithmic scale, from 0 to about 1."""
    return torch.log1p(1000 * value) / math.log(1001)


def _distinct(ends: Tensor, weights: Tensor) -> Tensor:
    """The share of distinct entities among those with weight 1: (L,)."""
    same = (ends[:, :, None] == ends[:, None, :]) * weights[:, None, :]
    return (weights / same.sum(-1).clamp(min=1)).sum(1) / weights.sum(1)


def _sizes(graph: Graph) -> Tensor:
    """Of each relation: triples, entities at its head and at its tail, and mean fan-out and fan-in, on log scales."""
    relations, most = np.asarray(graph.relation_ids), 2 * len(graph.relations)
    count = np.bincount(relations, minlength=most)
    ends = [np.bincount(relations, fans, minlength=most) for fans in edge_fans(graph)]  # distinct heads and tails
    fans = [np.log1p(count / np.maximum(each, 1)) / 4 for each in ends]
    return torch.from_numpy(np.stack([*(np.log1p(each) / 10 for each in (count, *ends)), *fans], -1).astype(np.float32))


def _together(graph: Graph) -> Tensor:
    """How often an entity with one relation has another: (2R, 2R), rows adding up to 1."""
    count, first = 2 * len(graph.relations), graph.slot_starts
    owners, relations = graph.head_ids[first], graph.relation_ids[first].astype(np.int64)
    offsets = offsets_of(owners, len(graph.entities))
    both = np.zeros(count * count)
    step = max(1, PAIRS_AT_ONCE // max(1, int(np.diff(offsets).max(initial=1))))
    for at in range(0, len(relations), step):
        part = slice(at, at + step)
        others, which = spans(offsets[owners[part]], offsets[owners[part] + 1])
        both += np.bincount(relations[part][which] * count + relations[others], minlength=count * count)
    matrix = both.reshape(count, count)
    return torch.from_numpy((matrix / np.maximum(matrix.sum(1, keepdims=True), 1)).astype(np.float32))
