"""The network equals its equations taken literally, gradients included; and what follows from them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import (
    ENTITIES,
    LONELY,
    SMALL,
    TaskCase,
    error,
    gradients,
    network_of,
    random_cases,
    random_graph,
    tasks_of,
)
from tests.models.trail.literal import LiteralGraph, LiteralNetwork, LiteralTask
from torch import Tensor

from fewlink.graph import Graph
from fewlink.models.trail.network import Shape, TrailNetwork
from fewlink.models.trail.reading import RELATION_FEATURES, TASK_FEATURES, ReadGraph, TaskReading, Tasks, read_tasks
from fewlink.propagation.edges import EdgeTable

some_seeds = pytest.mark.parametrize("seed", range(3))
some_sizes = pytest.mark.parametrize("relations", [1, 3])


@functools.cache
def example(seed: int, relations: int = 3) -> tuple[Graph, list[TaskCase], Tasks]:
    cases = random_cases(seed, relations)
    return random_graph(seed, relations), cases, tasks_of(cases, relations)


def literal_tasks(graph: Graph, cases: list[TaskCase]) -> list[LiteralTask]:
    known = LiteralGraph(graph)
    return [LiteralTask(known, case.references, case.hidden) for case in cases]


@functools.cache
def literal(seed: int, relations: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores (L, Q, C) and the gradients of Σ scores · (1, 2, 3, …) by each parameter, by loops."""
    graph, cases, _ = example(seed, relations)
    twin = LiteralNetwork(dict(network_of(seed=seed).named_parameters()), SMALL.width, SMALL.layers, 2)
    scores = torch.stack(
        [
            torch.stack([twin.scores(task, head, case.candidates) for head in case.heads])
            for task, case in zip(literal_tasks(graph, cases), cases, strict=True)
        ]
    )
    (scores * ramp(scores)).sum().backward()
    zero = {name: torch.zeros_like(p) for name, p in twin.p.items()}
    return scores.detach(), {name: zero[name] if p.grad is None else p.grad for name, p in twin.p.items()}


def ramp(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.numel() + 1, dtype=scores.dtype).view_as(scores)


def reading_of(graph: Graph, cases: list[TaskCase]) -> TaskReading:
    """What references say, by loops, in double precision."""
    tasks = literal_tasks(graph, cases)
    relations = range(2 * len(graph.relations))
    features = [task.features() for task in tasks]
    return TaskReading(
        torch.tensor([[own[r] for r in relations] for own in features], dtype=torch.float64),
        torch.tensor([task.task_features() for task in tasks], dtype=torch.float64),
        torch.tensor([[[t.share(r, end) for r in relations] for end in (0, 1)] for t in tasks], dtype=torch.float64),
    )


@some_sizes
@some_seeds
def test_features_are_those_of_the_walks(seed: int, relations: int) -> None:
    graph, cases, tasks = example(seed, relations)
    found, expected = read_tasks(ReadGraph.of(graph), tasks), reading_of(graph, cases)
    assert found.relations.shape[-1] == RELATION_FEATURES == 26 and found.task.shape[-1] == TASK_FEATURES == 8
    for mine, literal_one in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.double(), literal_one, rtol=1e-5, atol=1e-6)


def test_features_of_a_graph_worked_out_by_hand() -> None:
    """a –r0→ b and a –r0→ c, b –r1→ d: the reference (a, d) is joined by the walk r0 r1 alone."""
    graph = id_graph([(0, 0, 1), (0, 0, 2), (1, 1, 3)], 4, 2)
    tasks = tasks_of([TaskCase([(0, 3)], [], [0], [3])], 2)
    reading = read_tasks(ReadGraph.of(graph), tasks)
    relations, task = reading.relations[0], reading.task[0]
    half = np.log(501) / np.log(1001)
    first, second = relations[0, 3:6], relations[1, 6:9]  # r0 at the first place of two, r1 at the second
    torch.testing.assert_close(first, torch.tensor([half, 1, 1], dtype=torch.float32))
    torch.testing.assert_close(second, torch.tensor([half, 1, 1], dtype=torch.float32))
    assert relations[:, :3].abs().sum() == 0 and relations[2:, 3:9].abs().sum() == 0
    assert reading.around[0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    expected = [0, 0, 1, 0, 1, 1, np.log(3) / 8, np.log(2) / 8]
    torch.testing.assert_close(task, torch.tensor(expected, dtype=torch.float32))


def test_walks_of_three_hops_may_turn_back() -> None:
    graph = id_graph([(0, 0, 1)], 2, 1)
    reading = read_tasks(ReadGraph.of(graph), tasks_of([TaskCase([(0, 1)], [], [0], [1])], 1))
    assert reading.task[0, 1:4].tolist() == [1, 0, 1]


@some_sizes
@some_seeds
def test_scores_and_gradients_are_those_of_the_equations(seed: int, relations: int) -> None:
    graph, _, tasks = example(seed, relations)
    network = network_of(seed=seed)
    scores = network(ReadGraph.of(graph), tasks)
    expected, slopes = literal(seed, relations)
    assert error(scores, expected) < 1e-5
    (scores * ramp(scores)).sum().backward()
    found = gradients(network)
    assert found.keys() == slopes.keys() and all(slope.abs().max() > 0 for slope in slopes.values())
    for name, slope in slopes.items():
        assert error(found[name], slope) < 1e-5, name


@some_seeds
def test_in_double_precision_only_the_features_are_rounded(seed: int) -> None:
    graph, cases, tasks = example(seed)
    edges, read = EdgeTable.of(graph), ReadGraph.of(graph)
    read = ReadGraph(edges, *(part.double() for part in (read.sizes, read.together, read.degrees)))
    network = network_of(seed=seed).double()
    tasks = tasks._replace(weights=tasks.weights.double(), visible=tasks.visible.double())
    encoded = network.encode(read, tasks, reading_of(graph, cases))
    states = network.propagate(read, tasks, encoded, torch.float64)
    scores = network.scores(states, encoded, tasks.candidates)
    expected, slopes = literal(seed, 3)
    assert error(scores, expected) < 1e-10
    (scores * ramp(scores)).sum().backward()
    for name, slope in slopes.items():
        assert error(gradients(network)[name], slope) < 1e-6, name


@some_seeds
def test_states_are_those_of_the_equations(seed: int) -> None:
    graph, cases, tasks = example(seed)
    network, read = network_of(seed=seed), ReadGraph.of(graph)
    twin = LiteralNetwork(dict(network.named_parameters()), SMALL.width, SMALL.layers, 2)
    encoded = network.encode(read, tasks, read_tasks(read, tasks))
    states = network.propagate(read, tasks, encoded, torch.float32)
    for i, (task, case) in enumerate(zip(literal_tasks(graph, cases), cases, strict=True)):
        for j, head in enumerate(case.heads):
            expected, q = twin.states(task, head)
            assert error(states[:, i, j], torch.stack(expected)) < 1e-5 and error(encoded.task[i], q) < 1e-5


# What follows


def scores_of(network: TrailNetwork, graph: Graph, *cases: TaskCase, size: int = 4) -> Tensor:
    with torch.no_grad():
        return network(ReadGraph.of(graph), tasks_of(cases, len(graph.relations), size))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_states_are_zero_where_no_path_reaches(layers: int) -> None:
    """A chain 0 – 1 – … – 11 with the head 0 and the reference (8, 0): 0 is joined to 8 by the reference."""
    graph = id_graph([(e, 0, e + 1) for e in range(11)], 13, 1)
    network, read = network_of(Shape(8, layers, 1)), ReadGraph.of(graph)
    tasks = tasks_of([TaskCase([(8, 0)], [], [0], [0])], 1)
    with torch.no_grad():
        encoded = network.encode(read, tasks, read_tasks(read, tasks))
        states = network.propagate(read, tasks, encoded, torch.float32)[:, 0, 0]
    reached = {e for e in range(12) if e <= layers or abs(e - 8) <= layers}
    assert set(states.abs().sum(1).nonzero().flatten().tolist()) == reached


@some_seeds
def test_scores_follow_entities_and_relations_that_get_other_numbers(seed: int) -> None:
    graph, cases, _ = example(seed)
    draw, relations = np.random.default_rng([seed, 2]), len(graph.relations)
    to, kind = draw.permutation(ENTITIES), draw.permutation(relations)
    moved = id_graph([(to[h], kind[r], to[t]) for h, r, t in graph.triples()], ENTITIES, relations)
    others = [
        TaskCase(
            [(int(to[a]), int(to[b])) for a, b in case.references],
            [int(kind[r % relations]) + r // relations * relations for r in case.hidden],
            to[list(case.heads)].tolist(),
            to[list(case.candidates)].tolist(),
        )
        for case in cases
    ]
    network = network_of(seed=seed)
    assert error(scores_of(network, moved, *others), scores_of(network, graph, *cases)) < 1e-5


@some_seeds
def test_a_relation_read_backwards_is_the_same_graph(seed: int) -> None:
    graph, (_, case), _ = example(seed)
    turned = id_graph([(t, r, h) if r == 1 else (h, r, t) for h, r, t in graph.triples()], ENTITIES, 3)
    network = network_of(seed=seed)
    assert error(scores_of(network, turned, case), scores_of(network, graph, case)) < 1e-5


@some_seeds
def test_the_order_of_references_and_candidates_does_not_matter(seed: int) -> None:
    graph, (case, _), _ = example(seed)
    network, draw = network_of(seed=seed), np.random.default_rng([seed, 3])
    order, columns = draw.permutation(3), draw.permutation(6)
    other = TaskCase(
        [case.references[i] for i in order], case.hidden, case.heads, [case.candidates[i] for i in columns]
    )
    assert error(scores_of(network, graph, other), scores_of(network, graph, case)[:, :, columns]) < 1e-5


@some_seeds
def test_padding_other_tasks_heads_and_candidates_do_not_matter(seed: int) -> None:
    graph, cases, _ = example(seed)
    network = network_of(seed=seed)
    together = scores_of(network, graph, *cases, size=8)
    for i, case in enumerate(cases):
        for j, head in enumerate(case.heads):
            for k, candidate in enumerate(case.candidates):
                alone = TaskCase(case.references, case.hidden, [head], [candidate])
                score = scores_of(network, graph, alone, size=len(case.references))
                assert abs(float(score) - float(together[i, j, k])) < 1e-5 * float(together.abs().max())


@some_seeds
def test_a_part_that_is_not_joined_changes_nothing(seed: int) -> None:
    graph, cases, _ = example(seed)
    network = network_of(seed=seed)
    more = [(ENTITIES + h, 3 + r, ENTITIES + t) for h, r, t in random_graph(seed + 9, 2).triples()]
    larger = id_graph([*graph.triples().tolist(), *more], 2 * ENTITIES, 5)
    moved = [
        TaskCase(c.references, [r if r < 3 else r + 2 for r in c.hidden], c.heads, c.candidates) for c in cases
    ]  # relation r + R is the inverse of r
    assert error(scores_of(network, larger, *moved), scores_of(network, graph, *cases)) < 1e-5


@some_seeds
def test_hidden_edges_reach_nothing(seed: int) -> None:
    """States and walks do not change when the edges of a hidden relation lead elsewhere, with as many at each end."""
    graph, (case, _), _ = example(seed)
    hidden = case.hidden[0]
    tails = [t for _, r, t in graph.triples() if r == hidden]
    swapped = iter([*tails[1:], *tails[:1]])
    turned = id_graph([(h, r, next(swapped) if r == hidden else t) for h, r, t in graph.triples()], ENTITIES, 3)
    if turned.triple_count == graph.triple_count:
        network = network_of(seed=seed)
        assert error(scores_of(network, turned, case), scores_of(network, graph, case)) < 1e-5


def test_repeated_references_count_twice_and_a_lonely_head_is_scored() -> None:
    graph, _, _ = example(0)
    network = network_of()
    once, twice = (
        scores_of(network, graph, TaskCase([(1, 2)] * count, [], [LONELY], [LONELY, 2, 5])) for count in (1, 2)
    )
    assert torch.isfinite(once).all() and error(once, twice) > 1e-3


def test_a_graph_without_edges_is_read() -> None:
    graph = id_graph([], 3, 1)
    scores = scores_of(network_of(), graph, TaskCase([(0, 1)], [], [2], [0, 1, 2]))
    assert torch.isfinite(scores).all()


def test_the_network_has_few_parameters() -> None:
    assert sum(p.numel() for p in TrailNetwork(Shape()).parameters()) < 100_000
