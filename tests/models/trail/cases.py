"""Small graphs, tasks and networks that the tests of TRAIL share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tests.conftest import id_graph
from torch import Tensor, nn

from fewlink.graph import Graph
from fewlink.models.trail.features import ReadGraph, read_references, stacked
from fewlink.models.trail.network import Shape, Tasks, TrailNetwork

LONELY = 0  # the entity without edges in every random graph; also what padding refers to
ENTITIES = 9
SMALL = Shape(width=8, layers=3, relation_layers=2)
Pair = tuple[int, int]


@dataclass(frozen=True)
class TaskCase:
    """One task as lists; all tasks of a case have as many queries and candidates."""

    references: Sequence[Pair]
    hidden: Sequence[int]
    heads: Sequence[int]
    candidates: Sequence[int]


def random_graph(seed: int, relations: int = 3, triples: int = 22, entities: int = ENTITIES) -> Graph:
    """A graph with self-loops; entity LONELY has no edges."""
    draw = np.random.default_rng(seed)
    rows = np.stack([draw.integers(1, entities, triples), draw.integers(0, relations, triples)], 1)
    rows = np.column_stack([rows, draw.integers(1, entities, triples)])
    rows[:2, 2] = rows[:2, 0]
    return id_graph([(h, r, t) for h, r, t in rows.tolist()], entities, relations)


def random_cases(seed: int, relations: int = 3, entities: int = ENTITIES) -> list[TaskCase]:
    """Two tasks: three references, two of which share ends, and a hidden relation; one reference, nothing hidden."""
    draw = np.random.default_rng([seed, 1])

    def some(count: int) -> list[int]:
        return [int(e) for e in draw.integers(1, entities, count)]

    a, b, c, d = (int(e) for e in 1 + draw.permutation(entities - 1)[:4])
    hidden = int(draw.integers(relations))
    every = draw.permutation(entities)[:6].tolist()
    return [
        TaskCase([(a, b), (a, c), (d, b)], [hidden, hidden + relations], [LONELY, *some(1)], every),
        TaskCase([(b, d)], [], some(2), draw.permutation(entities)[:6].tolist()),
    ]


def read_graph(graph: Graph, *, named: bool = False, vectors: Tensor | None = None) -> ReadGraph:
    """A graph as TRAIL reads it; if `named`, its last two relations are `same` and `contain`."""
    read = ReadGraph.of(graph)
    flags = read.flags.unflatten(0, (2, -1)).clone()
    if named:
        flags[:, -2:] = torch.eye(2)
    return ReadGraph(read.graph, read.sizes, read.together, flags.flatten(0, 1), vectors)


def tasks_of(cases: Sequence[TaskCase], graph: ReadGraph, size: int = 4) -> Tasks:
    """Cases as one batch, references padded to `size`."""
    references = []
    for case in cases:
        visible = np.ones(graph.relations)
        visible[list(case.hidden)] = 0
        pairs = np.array(case.references, np.int64)
        references.append(read_references(graph, pairs, visible=visible, size=size, sample=4))
    columns = [torch.tensor([list(getattr(case, name)) for case in cases]) for name in ("heads", "candidates")]
    return Tasks(stacked(references), *columns)


def network_of(shape: Shape = SMALL, seed: int = 0) -> TrailNetwork:
    """A network with every parameter drawn anew."""
    network, draw = TrailNetwork(shape), torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        scale = 2 * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.5
        parameter.data = torch.randn(parameter.shape, generator=draw) * scale
    return network


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradient by each parameter, 0 where there is none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
        for name, p in module.named_parameters()
    }


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest expected number."""
    mine, other = found.detach().double(), expected.detach().double()
    return float((mine - other).abs().max() / other.abs().max().clamp(min=1e-12))
