"""One head at a time on a CPU gives the states of the whole network, whichever way they are computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.conftest import id_graph
from tests.models.trail.cases import SMALL, TaskCase, error, network_of, random_cases, random_graph, tasks_of
from tests.models.trail.literal import LiteralGraph, LiteralNetwork, LiteralTask

from fewlink.graph import Graph
from fewlink.models.trail import scorer as answering
from fewlink.models.trail import scorer as scorer_module
from fewlink.models.trail.reading import ReadGraph, read_tasks
from fewlink.models.trail.scorer import CpuPropagation, TrailScorer
from fewlink.propagation import edges as edges_module
from fewlink.scorers import Question

WAYS = {"all edges": (0.0, 0.0), "edges of what is reached": (2.0, 2.0), "asked tails only": (0.0, 2.0)}
every_way = pytest.mark.parametrize("way", list(WAYS))


def larger_graph(seed: int = 0, entities: int = 40) -> Graph:
    draw = np.random.default_rng(seed)
    return id_graph([tuple(row) for row in draw.integers(0, [entities, 4, entities], (90, 3)).tolist()], entities, 4)


@every_way
@pytest.mark.parametrize("seed", range(3))
def test_states_are_those_of_the_network(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "SPARSE", WAYS[way][0])
    monkeypatch.setattr(answering, "SPARSE_LAST", WAYS[way][1])
    monkeypatch.setattr(edges_module, "CHUNK", 5)
    graph, network = larger_graph(seed), network_of(seed=seed)
    read, draw = ReadGraph.of(graph), np.random.default_rng(seed)
    propagation = CpuPropagation(network, read.edges)
    for _ in range(3):  # buffers are used again
        a, b, c, head = draw.integers(0, 40, 4).tolist()
        case = TaskCase([(a, b), (a, c), (b, b)], [1, 5], [head], [0])
        tasks, rows = tasks_of([case], 4), torch.from_numpy(draw.permutation(40)[:12])
        with torch.no_grad():
            encoded = network.encode(read, tasks, read_tasks(read, tasks))
            whole = network.propagate(read, tasks, encoded, torch.float32)[:, 0, 0]
        assert error(propagation.states_of(tasks, encoded, head, rows), whole[rows]) < 1e-5


@every_way
def test_scores_are_those_of_the_equations(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "SPARSE", WAYS[way][0])
    monkeypatch.setattr(answering, "SPARSE_LAST", WAYS[way][1])
    graph, network = random_graph(0), network_of()
    (case, _), twin = random_cases(0), LiteralNetwork(dict(network.named_parameters()), SMALL.width, SMALL.layers, 2)
    scorer = TrailScorer("trail", network, ReadGraph.of(graph))
    arrays = (np.array(part, np.int32) for part in (case.references, case.heads, case.candidates))
    found = scorer(Question("", *arrays))
    task = LiteralTask(LiteralGraph(graph), case.references, [])
    assert error(found, torch.stack([twin.scores(task, head, case.candidates) for head in case.heads])) < 1e-5


def test_a_part_that_holds_everything_in_reach_gives_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rounds reach further than three layers; entities outside of the part have the score of a state of zeros."""
    graph, network = larger_graph(), network_of()
    whole = TrailScorer("trail", network, ReadGraph.of(graph), graph)
    monkeypatch.setattr(scorer_module, "WHOLE", 10)
    part = TrailScorer("trail", network, ReadGraph.of(graph), graph)
    assert whole.part is None and part.part is not None and part.source is graph
    question = Question("", np.array([[1, 2], [3, 4]]), np.array([5, 6, 1]), np.arange(40))
    assert error(part(question), whole(question)) < 1e-5


def test_a_small_part_answers_with_finite_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, network = larger_graph(), network_of()
    monkeypatch.setattr(scorer_module, "WHOLE", 10)
    monkeypatch.setattr(scorer_module, "PART", 40)
    scorer = TrailScorer("trail", network, ReadGraph.of(graph), graph)
    scores = scorer(Question("", np.array([[1, 2]]), np.array([5]), np.arange(40)))
    assert scores.shape == (1, 40) and torch.isfinite(scores).all()
    assert len(scores[0].unique()) < 40  # those outside of the part are tied


def test_tasks_are_remembered_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_module, "MAX_TASKS", 2)
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(1)
        return read_tasks(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scorer_module, "read_tasks", counted)
    graph = larger_graph()
    scorer = TrailScorer("trail", network_of(), ReadGraph.of(graph), graph)

    def ask(reference: int) -> torch.Tensor:
        return scorer(Question("", np.array([[reference, 2]]), np.array([5]), np.arange(40)))

    first = ask(1)
    assert torch.equal(ask(1), first) and len(calls) == 1
    for reference, count in ((3, 2), (1, 2), (4, 3), (1, 3), (3, 4)):
        ask(reference)
        assert len(calls) == count
    assert torch.equal(ask(1), first)
