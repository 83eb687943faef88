"""Training triples and the known graph: no query of a dev or test relation is in either of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of, id_graph, task_of

from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.tasks import Benchmark, Task, open_benchmark
from fewlink.tasks.benchmark import training_triples

UMLS = open_benchmark("umls")
COUNT = 30


def task_at(distance: int, name: str) -> Task:
    """A task of pairs at this distance."""
    return task_of([(h, (h + distance) % COUNT) for h in range(24)], range(COUNT), name=name)


SMALL = benchmark_of(
    id_graph([(h, 0, (h + 1) % COUNT) for h in range(COUNT)], COUNT),
    train=[task_at(2, "two apart"), task_at(4, "four apart")],
    dev=[task_at(6, "six apart")],
    test=[task_at(8, "eight apart")],
)


def triples_of(graph: Graph) -> set[tuple[int, str, int]]:
    return {(h, graph.relations[r], t) for h, r, t in graph.triples().tolist()}


@pytest.mark.parametrize("benchmark", [UMLS, SMALL], ids=["umls", "small"])
def test_the_known_graph_is_the_background_with_the_train_relations(benchmark: Benchmark) -> None:
    graph, train = benchmark.known_graph, benchmark.split("train")
    pairs = {(h, task.name, t) for task in train for h, t in task.pairs.tolist()}
    assert triples_of(graph) == triples_of(benchmark.graph) | pairs
    assert list(graph.relations) == [*benchmark.graph.relations, *(task.name for task in train)]
    assert np.array_equal(graph.triples()[: benchmark.graph.triple_count], benchmark.graph.triples())
    assert benchmark.known_graph is graph


def test_pairs_of_dev_and_test_relations_are_not_in_the_known_graph() -> None:
    graph = SMALL.known_graph
    edges = set(zip(graph.head_ids.tolist(), graph.tail_ids.tolist(), strict=True))
    for task in (*SMALL.split("dev"), *SMALL.split("test")):
        assert not edges & set(map(tuple, task.known.tolist()))


def test_entities_types_and_readable_names_are_those_of_the_benchmark() -> None:
    types = TypeTable.of([b"even", b"odd"], np.arange(COUNT), np.arange(COUNT) % 2, COUNT)
    labels = Vocabulary.of([*(f"the {n}" for n in SMALL.graph.entities), "next"])
    described = dataclasses.replace(SMALL, graph=dataclasses.replace(SMALL.graph, types=types, labels=labels))
    graph = described.known_graph
    assert list(graph.entities) == list(SMALL.graph.entities) and graph.types is types
    assert [graph.name(e) for e in (0, COUNT - 1)] == ["the e0", f"the e{COUNT - 1}"]
    assert [graph.relation_name(r) for r in range(3)] == ["next", "two apart", "four apart"]


def pairs_of_relation(triples: np.ndarray, relation: int) -> set[tuple[int, int]]:
    return {(h, t) for h, r, t in triples.tolist() if r == relation}


def test_by_default_the_training_triples_are_the_background() -> None:
    data = training_triples(UMLS)
    assert np.array_equal(data.triples, UMLS.graph.triples())
    assert data.relations == list(UMLS.graph.relations)
    assert data.background.all()


def test_all_pairs_of_train_tasks_follow_the_background() -> None:
    data = training_triples(UMLS, with_train_tasks=True)
    names = [t.name for t in UMLS.tasks["train"]]
    assert data.relations[len(UMLS.graph.relations) :] == names
    first = UMLS.tasks["train"][0]
    assert pairs_of_relation(data.triples, data.relations.index(first.name)) == set(map(tuple, first.pairs.tolist()))
    assert data.background.sum() == UMLS.graph.triple_count


@pytest.mark.parametrize("draw", [0, 2])
def test_only_the_references_of_dev_and_test_relations_are_included(draw: int) -> None:
    data = training_triples(UMLS, with_train_tasks=True, shots=3, draw=draw, seed=1)
    for split in ("dev", "test"):
        for task in UMLS.tasks[split]:
            references, queries = task.split(3, draw, 1)
            included = pairs_of_relation(data.triples, data.relations.index(task.name))
            assert included == set(map(tuple, references.tolist()))
            assert not included & set(map(tuple, queries.tolist()))


def test_without_train_relations_the_known_graph_is_the_background_itself() -> None:
    """So a fitted run is served from its mapped file: nothing is sorted or copied."""
    benchmark = benchmark_of(graph_of("a r b", "b r c"))
    assert benchmark.known_graph is benchmark.graph
