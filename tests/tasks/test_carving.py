from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.conftest import graph_of, id_graph, id_triples, named

from fewlink.core.errors import FewlinkError
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.tasks import SPLITS, Benchmark, CarveReport, CarveSettings, carve

BACKGROUND = [f"p{i} in city{i % 2}" for i in range(12)]  # 12 triples: too large for a task of at most 6
TASKS = {
    "likes": [f"p{i} likes p{i + 1}" for i in range(5)],
    "calls": [f"p{i} calls p{i + 2}" for i in range(4)],
    "visits": [f"p{i} visits city{1 - i % 2}" for i in range(4)],
    "helps": [f"p{i} helps p{11 - i}" for i in range(3)],
}
SMALL = CarveSettings(smallest=3, largest=6)
GRAPH = graph_of(*BACKGROUND, *itertools.chain(*TASKS.values()))


def task_triples(benchmark: Benchmark) -> set[tuple[str, str, str]]:
    entities = benchmark.graph.entities
    return {(entities[h], t.name, entities[o]) for s in SPLITS for t in benchmark.tasks[s] for h, o in t.pairs.tolist()}


def test_relations_of_medium_size_become_tasks_and_leave_the_background() -> None:
    benchmark, report = carve(GRAPH, "mine", SMALL)
    assert benchmark.name == "mine"
    assert sorted(t.name for s in SPLITS for t in benchmark.tasks[s]) == sorted(TASKS)
    assert list(benchmark.graph.relations) == ["in"]
    assert {" ".join(t) for t in named(benchmark.graph)} == set(BACKGROUND)
    assert {" ".join(t) for t in task_triples(benchmark)} == set(itertools.chain(*TASKS.values()))
    assert report.remarks() == []


def test_known_answers_and_ranges_are_those_of_the_task() -> None:
    benchmark, _ = carve(GRAPH, "mine", SMALL)
    visits = benchmark.task("visits")
    assert sorted(visits.pairs.tolist()) == visits.known.tolist()
    assert [benchmark.graph.entities[e] for e in visits.range] == ["city0", "city1"]


def test_the_pairs_of_a_task_are_shuffled_by_the_seed() -> None:
    """The first ones are the references: those of a file, often sorted by head, would be alike."""
    carved = [carve(GRAPH, "mine", dataclasses.replace(SMALL, seed=seed))[0].task("likes") for seed in range(8)]
    orders = [task.pairs.tolist() for task in carved]
    assert {tuple(map(tuple, sorted(order))) for order in orders} == {tuple(map(tuple, sorted(orders[0])))}
    assert len({str(order) for order in orders}) > 4
    assert carve(GRAPH, "mine", SMALL)[0].task("likes").pairs.tolist() == orders[0]


def test_exact_inverses_and_duplicates_of_a_task_leave_with_it() -> None:
    twins = [row.replace("likes", "adores") for row in TASKS["likes"]]
    twins += [" ".join([t, "calledby", h]) for h, _, t in (row.split() for row in TASKS["calls"])]
    near = [row.replace("visits", "nearly") for row in TASKS["visits"]] + ["p9 nearly city0"]
    graph = graph_of(*BACKGROUND, *itertools.chain(*TASKS.values()), *twins, *near)
    benchmark, report = carve(graph, "mine", SMALL)
    assert report.twins == [("adores", "duplicate", "likes"), ("calledby", "inverse", "calls")]
    assert sorted(t.name for s in SPLITS for t in benchmark.tasks[s]) == sorted([*TASKS, "nearly"])
    assert list(benchmark.graph.relations) == ["in"]
    assert report.remarks()[0].startswith("adores is the exact duplicate of likes")


def test_pairs_without_background_entities_are_dropped_and_counted() -> None:
    graph = graph_of(*BACKGROUND, *itertools.chain(*TASKS.values()), "p1 likes ghost", "ghost helps phantom")
    benchmark, report = carve(graph, "mine", SMALL)
    assert (report.dropped_pairs, report.dropped_entities) == (2, 2)
    assert "ghost" not in benchmark.graph.entities
    assert len(benchmark.task("likes").pairs) == 5
    assert len(report.remarks()) == 2


def test_relations_with_too_few_pairs_left_or_one_possible_tail_are_dropped() -> None:
    ghosts = [f"ghost{i} haunts p{i}" for i in range(4)]
    drives = ["p0 owns car", *(f"p{i} drives car" for i in range(3))]
    graph = graph_of(*BACKGROUND, *itertools.chain(*TASKS.values()), *ghosts, *drives)
    benchmark, report = carve(graph, "mine", SMALL)
    assert sorted(report.dropped_relations) == ["drives", "haunts"]
    assert {t.name for s in SPLITS for t in benchmark.tasks[s]} == set(TASKS)
    assert "2 relations dropped" in report.remarks()[-1]


def test_the_seed_decides_the_split_and_the_order_of_the_pairs() -> None:
    prints = {carve(GRAPH, "mine", CarveSettings(3, 6, seed=s))[0].fingerprint for s in (0, 0, 1, 2, 3)}
    assert len(prints) == 4


def test_types_and_readable_names_follow_their_entities() -> None:
    graph = graph_of("ghost likes p0", *(" ".join(t) for t in named(GRAPH)))  # entity 0 and relation 0 are dropped
    count = len(graph.entities)
    types = TypeTable.of([b"other", b"city"], np.arange(count), np.array(["city" in n for n in graph.entities]), count)
    labels = Vocabulary.of([*(f"the {n}" for n in graph.entities), *(f"to {n}" for n in graph.relations)])
    described = dataclasses.replace(graph, types=types, labels=labels)
    background = carve(described, "mine", SMALL)[0].graph
    assert background.types is not None
    for entity, name in enumerate(background.entities):
        assert background.name(entity) == f"the {name}"
        assert background.types.of_entities(np.array([entity])).tolist() == [int("city" in name)]
    assert background.relation_name(0) == "to in"


def test_too_few_tasks_or_no_background_is_an_error() -> None:
    with pytest.raises(FewlinkError, match="mine: 0 relations of 50 to 500"):
        carve(GRAPH, "mine")
    with pytest.raises(FewlinkError, match="0 background triples"):
        carve(GRAPH, "mine", CarveSettings(2, 100))


@pytest.mark.parametrize(
    "wrong",
    [
        {"smallest": 1},
        {"smallest": 9, "largest": 8},
        {"dev_share": 0.0},
        {"dev_share": 0.5, "test_share": 0.5},
        {"dev_share": float("nan")},
        {"test_share": float("nan")},
    ],
)
def test_invalid_settings_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(FewlinkError):
        CarveSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dev", "test"), [(0.01, 0.01), (0.4, 0.5), (0.5, 0.49), (0.98, 0.01)])
def test_no_split_is_empty(dev: float, test: float) -> None:
    benchmark, _ = carve(GRAPH, "mine", CarveSettings(3, 6, dev, test))
    assert all(len(benchmark.tasks[split]) for split in SPLITS)


EXTRA = [(h, 3 + k, (h + k) % 8) for k in range(1, 5) for h in range(0, 8, 1 + k % 2)]  # four relations more
carved = st.builds(
    lambda triples, seed: (graph := id_graph([*triples, *EXTRA], relations=8), carve_or_none(graph, seed)),
    id_triples.filter(lambda triples: len(triples) > 8),
    st.integers(0, 3),
)


def carve_or_none(graph: Graph, seed: int) -> tuple[Benchmark, CarveReport] | None:
    try:
        return carve(graph, "mine", CarveSettings(2, 8, seed=seed))
    except FewlinkError:
        return None


@given(carved)
def test_no_triple_of_a_task_is_in_the_background(pair: tuple[Graph, tuple[Benchmark, CarveReport] | None]) -> None:
    graph, result = pair
    assume(result)
    benchmark, report = result
    tasks = [t.name for s in SPLITS for t in benchmark.tasks[s]]
    assert len(set(tasks)) == len(tasks)
    gone = {*tasks, *report.dropped_relations, *(r for r, _, _ in report.twins)}
    assert set(named(benchmark.graph)) == {t for t in named(graph) if t[1] not in gone}
    assert task_triples(benchmark) <= set(named(graph))
    assert (benchmark.graph.degrees > 0).all()


@given(carved)
def test_no_background_relation_repeats_a_task(pair: tuple[Graph, tuple[Benchmark, CarveReport] | None]) -> None:
    graph, result = pair
    assume(result)
    pairs: dict[str, set[tuple[str, str]]] = {name: set() for name in graph.relations}
    for head, relation, tail in named(graph):
        pairs[relation].add((head, tail))
    for other in result[0].graph.relations:
        for task in (t for s in SPLITS for t in result[0].tasks[s]):
            assert pairs[other] != pairs[task.name]
            assert {(t, h) for h, t in pairs[other]} != pairs[task.name]


def test_tasks_that_become_copies_when_pairs_are_dropped_are_not_both_kept() -> None:
    copy = [row.replace("likes", "adores") for row in TASKS["likes"]]
    graph = graph_of(*BACKGROUND, *itertools.chain(*TASKS.values()), *copy, "p0 adores ghost")
    benchmark, _ = carve(graph, "mine", SMALL)
    assert "adores" not in {t.name for s in SPLITS for t in benchmark.tasks[s]}


@given(st.integers(0, 5))
def test_the_same_seed_gives_the_same_benchmark(seed: int) -> None:
    one, two = (carve(GRAPH, "mine", CarveSettings(3, 6, seed=seed))[0].fingerprint for _ in range(2))
    assert one == two
