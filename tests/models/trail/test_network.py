"""The network equals its equations taken literally, gradients included; and what follows from them."""

from __future__ import annotations

import dataclasses
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
    read_graph,
    tasks_of,
)
from tests.models.trail.literal import LiteralGraph, LiteralNetwork, LiteralTask, literal_cosines
from torch import Tensor

from fewlink.graph import Graph
from fewlink.models.trail.features import SAMPLE, ReadGraph, TaskReferences, distinct_pairs, read_references, read_walks
from fewlink.models.trail.network import (
    HEAD,
    REFERENCES,
    RELATION_FEATURES,
    TASK_FEATURES,
    Shape,
    Tasks,
    TrailNetwork,
    relation_features,
)
from fewlink.models.trail.propagate import MessageEdges, head_places, marked, propagate

some_seeds = pytest.mark.parametrize("seed", range(3))
some_sizes = pytest.mark.parametrize("relations", [1, 3])


@functools.cache
def example(seed: int, relations: int = 3) -> tuple[ReadGraph, list[TaskCase], Tasks]:
    """With three relations the last two are those of names, and entities have vectors."""
    graph, cases = random_graph(seed, relations), random_cases(seed, relations)
    vectors = torch.nn.functional.normalize(torch.randn(ENTITIES, 5, generator=torch.Generator().manual_seed(seed)))
    vectors[2] = 0
    read = read_graph(graph, named=relations > 1, vectors=vectors if relations > 1 else None)
    return read, cases, tasks_of(cases, read)


def literal_tasks(read: ReadGraph, cases: list[TaskCase]) -> list[LiteralTask]:
    known = LiteralGraph(read.graph, named=2 if read.reads_names else 0)
    return [LiteralTask(known, case.references, case.hidden) for case in cases]


def literal_scores(twin: LiteralNetwork, read: ReadGraph, task: LiteralTask, case: TaskCase, head: int) -> Tensor:
    cosines = None
    if read.vectors is not None:
        vectors = dict(enumerate(read.vectors.double().tolist()))
        rows = [literal_cosines(vectors, case.references, head, candidate) for candidate in case.candidates]
        cosines = torch.tensor(rows, dtype=torch.float64)
    return twin.scores(task, head, case.candidates, cosines)


@functools.cache
def literal(seed: int, relations: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores (L, Q, C) and the gradients of Σ scores · (1, 2, 3, …) by each parameter, by loops."""
    read, cases, _ = example(seed, relations)
    twin = LiteralNetwork(dict(network_of(seed=seed).named_parameters()), SMALL)
    scores = torch.stack(
        [
            torch.stack([literal_scores(twin, read, task, case, head) for head in case.heads])
            for task, case in zip(literal_tasks(read, cases), cases, strict=True)
        ]
    )
    (scores * ramp(scores)).sum().backward()
    zero = {name: torch.zeros_like(p) for name, p in twin.p.items()}
    return scores.detach(), {name: zero[name] if p.grad is None else p.grad for name, p in twin.p.items()}


def ramp(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.numel() + 1, dtype=scores.dtype).view_as(scores)


def doubled(read: ReadGraph) -> ReadGraph:
    """The graph with numbers in double precision."""
    assert read.vectors is not None
    return ReadGraph(
        read.graph, read.sizes.double(), read.together.double(), read.flags.double(), read.vectors.double()
    )


@some_sizes
@some_seeds
def test_features_are_those_of_the_walks(seed: int, relations: int) -> None:
    read, cases, tasks = example(seed, relations)
    walks = read_walks(read, tasks.references, torch.float32)
    found = relation_features(read, tasks.references, walks)
    facts = torch.cat([tasks.references.facts, walks.joined], -1)
    assert found.shape[-1] == RELATION_FEATURES == 29 and facts.shape[-1] == TASK_FEATURES == 12
    for i, task in enumerate(literal_tasks(read, cases)):
        expected = torch.tensor(list(task.features().values()))
        visible = torch.cat([tasks.references.visible[i], torch.ones(2)])[:, None]
        torch.testing.assert_close(found[i] * visible, expected * visible, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(facts[i], torch.tensor(task.facts()), rtol=1e-5, atol=1e-6)


def test_features_of_a_graph_worked_out_by_hand() -> None:
    """a –r0→ b and a –r0→ c, b –r1→ d: the reference (a, d) is joined by the walk r0 r1 alone."""
    read = read_graph(id_graph([(0, 0, 1), (0, 0, 2), (1, 1, 3)], 4, 2))
    references = tasks_of([TaskCase([(0, 3)], [], [0], [3])], read).references
    walks = read_walks(read, references, torch.float32)
    half = np.log(501) / np.log(1001)
    first, second = walks.features[0, 0, 3:6], walks.features[0, 1, 6:9]  # r0 first of two, r1 second
    torch.testing.assert_close(first, torch.tensor([half, 1, 1], dtype=torch.float32))
    torch.testing.assert_close(second, torch.tensor([half, 1, 1], dtype=torch.float32))
    assert walks.features[0, :, :3].abs().sum() == 0 and walks.features[0, 2:, 3:9].abs().sum() == 0
    assert references.around[0].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    expected = [0, 1, 1, np.log(3) / 8, np.log(2) / 8, 1, 1, 0, 0]
    torch.testing.assert_close(references.facts[0], torch.tensor(expected, dtype=torch.float32))
    assert walks.joined[0].tolist() == [0, 1, 0]


def test_a_walk_goes_through_other_references_but_not_through_its_own() -> None:
    """(0, 1), (2, 1), (2, 3) join 0 and 3 by three hops; without (0, 3) nothing else joins them."""
    read = read_graph(id_graph([], 4, 1))
    walks = read_walks(read, tasks_of([TaskCase([(0, 3)], [], [0], [1])], read).references, torch.float32)
    assert walks.joined[0].tolist() == [0, 0, 0]
    four = TaskCase([(0, 3), (0, 1), (2, 1), (2, 3)], [], [0], [1])
    walks = read_walks(read, tasks_of([four], read).references, torch.float32)
    assert walks.joined[0].tolist() == [0, 0, 1]
    assert walks.features[0, 2:].abs().sum() > 0 and walks.features[0, :2].abs().sum() == 0


def test_ends_and_fans_are_counted_among_the_references() -> None:
    read = read_graph(id_graph([(0, 0, 1)], 5, 1))
    references = read_references(read, np.array([[0, 1], [0, 2], [3, 1]]))
    assert references.ends.tolist() == [[0, 1, 2, 3]]
    assert references.marks.tolist() == [[[1, 0, 0, 1], [0, 1, 1, 0]]]
    assert references.fans.tolist() == [[[0.5, 0.5], [0.5, 1], [1, 0.5]]]
    assert references.around[0].tolist() == pytest.approx(np.array([[2 / 3, 0], [0, 2 / 3]]))
    assert references.cover.tolist() == [[[1, 0], [0, 1]]]
    assert references.turned[0].tolist() == pytest.approx(np.array([[2 / 3, 0], [0, 2 / 3]]))


def test_of_many_references_all_are_counted_and_some_are_walked() -> None:
    read = read_graph(random_graph(0, entities=60, triples=100))
    draw = np.random.default_rng(0)
    pairs = distinct_pairs(draw.integers(0, 60, (200, 2)))
    references = read_references(read, pairs)
    assert len(set(references.sample[0].tolist())) == SAMPLE and references.pairs.shape == (1, len(pairs), 2)
    assert torch.equal(references.entities[0], torch.from_numpy(pairs))
    padded = read_references(read, pairs, size=256)
    network = network_of()
    heads, candidates = torch.arange(4)[None], torch.arange(60)[None]
    with torch.no_grad():
        one, other = (network(read, Tasks(each, heads, candidates)) for each in (references, padded))
    assert error(one, other) < 1e-5


def test_a_sample_depends_on_no_order_and_one_more_reference_hardly_changes_it() -> None:
    read = read_graph(random_graph(0, entities=60, triples=100))
    draw = np.random.default_rng(0)
    pairs = distinct_pairs(draw.integers(0, 60, (200, 2)))

    def sampled(pairs: np.ndarray) -> set[tuple[int, int]]:
        return {(head, tail) for head, tail in read_references(read, pairs).sampled_entities[0].tolist()}

    assert sampled(pairs) == sampled(draw.permutation(pairs))
    changes = [len(sampled(pairs[:count]) - sampled(pairs[: count + 1])) for count in range(100, 150)]
    assert max(changes) == 1 and np.mean(changes) < 0.5


@some_sizes
@some_seeds
def test_scores_and_gradients_are_those_of_the_equations(seed: int, relations: int) -> None:
    read, _, tasks = example(seed, relations)
    network = network_of(seed=seed)
    scores = network(read, tasks)
    expected, slopes = literal(seed, relations)
    assert error(scores, expected) < 1e-5
    (scores * ramp(scores)).sum().backward()
    found = gradients(network)
    assert found.keys() == slopes.keys()
    assert all(slope.abs().max() > 0 for name, slope in slopes.items() if relations > 1 or name != "of_names.weight")
    for name, slope in slopes.items():
        assert error(found[name], slope) < 1e-4, name


@some_seeds
def test_in_double_precision_only_what_is_counted_is_rounded(seed: int) -> None:
    read, _, tasks = example(seed)
    network = network_of(seed=seed).double()
    numbers = (each.double() if each.is_floating_point() else each for each in tasks.references)
    scores = network(doubled(read), tasks._replace(references=TaskReferences(*numbers)), torch.float64)
    expected, slopes = literal(seed, 3)
    assert error(scores, expected) < 1e-6
    (scores * ramp(scores)).sum().backward()
    for name, slope in slopes.items():
        assert error(gradients(network)[name], slope) < 1e-5, name


# What follows


def scores_of(network: TrailNetwork, graph: Graph, *cases: TaskCase, size: int = 4) -> Tensor:
    with torch.no_grad():
        read = read_graph(graph)
        return network(read, tasks_of(cases, read, size))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_states_are_zero_where_no_path_reaches(layers: int) -> None:
    """A chain 0 – 1 – … – 11 with the head 0 and the reference (8, 0): 0 is joined to 8 by the reference."""
    read = read_graph(id_graph([(e, 0, e + 1) for e in range(11)], 13, 1))
    network, tasks = network_of(Shape(8, layers, 1)), tasks_of([TaskCase([(8, 0)], [], [0], [0])], read)
    with torch.no_grad():
        encoded = network.encode(read, tasks.references, read_walks(read, tasks.references, torch.float32))
        edges = MessageEdges(read.edges, tasks.references.edges())
        found = []
        for stream, places, marks in (
            (HEAD, head_places(tasks.heads), network.head_marks(encoded, 1)),
            (REFERENCES, edges.extra.rows, network.reference_marks(tasks.references, encoded)),
        ):
            weights = network.weights(tasks.references, encoded, stream)
            found.append(propagate(edges, marked(places, marks, 13, 1, 1), weights)[:, 0, 0])
        of_head, of_references = found
    from_references = {e for e in range(12) if e <= layers or abs(e - 8) <= layers}
    from_head = {e for e in range(12) if e <= layers or abs(e - 8) <= layers - 1}
    for states, reached in ((of_head, from_head), (of_references, from_references)):
        assert set(states.abs().sum(1).nonzero().flatten().tolist()) == reached


@some_seeds
def test_scores_follow_entities_and_relations_that_get_other_numbers(seed: int) -> None:
    graph, cases = random_graph(seed), random_cases(seed)
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
    graph, (_, case) = random_graph(seed), random_cases(seed)
    turned = id_graph([(t, r, h) if r == 1 else (h, r, t) for h, r, t in graph.triples()], ENTITIES, 3)
    network = network_of(seed=seed)
    assert error(scores_of(network, turned, case), scores_of(network, graph, case)) < 1e-5


@some_seeds
def test_the_order_of_references_and_candidates_does_not_matter(seed: int) -> None:
    graph, (case, _) = random_graph(seed), random_cases(seed)
    network, draw = network_of(seed=seed), np.random.default_rng([seed, 3])
    order, columns = draw.permutation(3), draw.permutation(6)
    other = TaskCase(
        [case.references[i] for i in order], case.hidden, case.heads, [case.candidates[i] for i in columns]
    )
    assert error(scores_of(network, graph, other), scores_of(network, graph, case)[:, :, columns]) < 1e-5


@some_seeds
def test_padding_other_tasks_heads_and_candidates_do_not_matter(seed: int) -> None:
    graph, cases = random_graph(seed), random_cases(seed)
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
    graph, cases = random_graph(seed), random_cases(seed)
    network = network_of(seed=seed)
    more = [(ENTITIES + h, 3 + r, ENTITIES + t) for h, r, t in random_graph(seed + 9, 2).triples()]
    larger = id_graph([*graph.triples().tolist(), *more], 2 * ENTITIES, 5)
    moved = [
        TaskCase(c.references, [r if r < 3 else r + 2 for r in c.hidden], c.heads, c.candidates) for c in cases
    ]  # relation r + R is the inverse of r
    assert error(scores_of(network, larger, *moved), scores_of(network, graph, *cases)) < 1e-5


@some_seeds
def test_a_hidden_relation_is_read_as_if_it_were_not_there(seed: int) -> None:
    graph, (case, _) = random_graph(seed), random_cases(seed)
    network, hidden = network_of(seed=seed), case.hidden[0]
    shown = dataclasses.replace(case, hidden=[])
    assert error(scores_of(network, graph.without(np.array([hidden])), shown), scores_of(network, graph, case)) < 1e-5


def test_a_lonely_head_is_scored() -> None:
    scores = scores_of(network_of(), random_graph(0), TaskCase([(1, 2)], [], [LONELY], [LONELY, 2, 5]))
    assert torch.isfinite(scores).all()


def test_a_graph_without_edges_is_read() -> None:
    graph = id_graph([], 3, 1)
    scores = scores_of(network_of(), graph, TaskCase([(0, 1)], [], [2], [0, 1, 2]))
    assert torch.isfinite(scores).all()


def test_the_network_has_few_parameters() -> None:
    assert sum(p.numel() for p in TrailNetwork(Shape()).parameters()) < 100_000
