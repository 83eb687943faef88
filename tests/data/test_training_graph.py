"""Training triples, the known graph and masked views: dev and test relations are in none of them."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.conftest import benchmark_of, graph_of, id_graph, task_of

from fewlink.core.errors import FewlinkError
from fewlink.data import SPLITS, Benchmark, Task, carve, likely_tails, open_benchmark
from fewlink.data.benchmark import sorted_pairs
from fewlink.data.training_graph import (
    HIDDEN,
    INVERSE,
    LARGEST,
    MOST_PAIRS,
    SMALLEST,
    View,
    known_graph,
    masked_views,
    training_triples,
)
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.graph import graph as graph_module

Triple = tuple[int, str, int]

UMLS = open_benchmark("umls")
COUNT = 30
CROWD = [(h, 0, t) for h in range(COUNT) for t in range(COUNT) if (h + t) % 2]  # 450: too many to hide
RING = [(h, 1, (h + 1) % COUNT) for h in range(COUNT)]
FEW = [(h, 2, (h + 5) % COUNT) for h in range(SMALLEST - 1)]


def task_at(distance: int, name: str, pairs: int = 24) -> Task:
    """A task of pairs at this distance."""
    return task_of([(h, (h + distance) % COUNT) for h in range(pairs)], range(COUNT), name=name)


SMALL = benchmark_of(
    id_graph([*CROWD, *RING, *FEW], COUNT),
    train=[task_at(2, "two apart"), task_at(4, "four apart", pairs=COUNT)],
    dev=[task_at(6, "six apart")],
    test=[task_at(8, "eight apart")],
)
every_benchmark = pytest.mark.parametrize("benchmark", [UMLS, SMALL], ids=["umls", "small"])
some_views = pytest.mark.parametrize("count", [1, 2, 4, 8])


@functools.cache
def views_of(benchmark: Benchmark, count: int) -> list[View]:
    return masked_views(benchmark, count)


@functools.cache
def triples_of(graph: Graph) -> frozenset[Triple]:
    return frozenset((h, graph.relations[r], t) for h, r, t in graph.triples().tolist())


@functools.cache
def known_triples(benchmark: Benchmark) -> frozenset[Triple]:
    """The background's triples and those of the train tasks."""
    return triples_of(benchmark.graph) | {(h, k.name, t) for k in benchmark.split("train") for h, t in k.pairs.tolist()}


def hidden_by(benchmark: Benchmark, view: View) -> set[str]:
    """The known relations without a triple in the view's graph."""
    return {r for _, r, _ in known_triples(benchmark)} - {r for _, r, _ in triples_of(view.graph)}


def train_names(benchmark: Benchmark) -> set[str]:
    return {task.name for task in benchmark.split("train")}


def sizes_of(benchmark: Benchmark) -> Counter[str]:
    return Counter(relation for _, relation, _ in known_triples(benchmark))


def pairs_of(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(h, t) for h, t in pairs.tolist()}


def same_views(some: Sequence[View], others: Sequence[View]) -> bool:
    def content(view: View) -> list[object]:
        tasks = [(k.name, k.pairs.tolist(), k.known.tolist(), k.range.tolist()) for k in view.tasks]
        return [view.graph.fingerprint, tasks]

    return [content(view) for view in some] == [content(view) for view in others]


@every_benchmark
def test_the_known_graph_is_the_background_with_the_train_relations(benchmark: Benchmark) -> None:
    graph = known_graph(benchmark)
    assert triples_of(graph) == known_triples(benchmark)
    background = list(benchmark.graph.relations)
    assert list(graph.relations) == [*background, *(task.name for task in benchmark.split("train"))]
    assert np.array_equal(graph.triples()[: benchmark.graph.triple_count], benchmark.graph.triples())


@every_benchmark
@some_views
def test_a_view_lacks_the_triples_of_its_hidden_relations_and_no_other(benchmark: Benchmark, count: int) -> None:
    views = views_of(benchmark, count)
    assert len(views) == count
    for view in views:
        hidden = hidden_by(benchmark, view)
        assert {task.name.removesuffix(INVERSE) for task in view.tasks} <= hidden
        assert triples_of(view.graph) == {t for t in known_triples(benchmark) if t[1] not in hidden}


@every_benchmark
@some_views
def test_no_edge_of_a_hidden_relation_is_in_its_view_in_either_direction(benchmark: Benchmark, count: int) -> None:
    for view in views_of(benchmark, count):
        names = list(view.graph.relations)
        for task in view.tasks:
            relation = names.index(task.name.removesuffix(INVERSE))
            both = [relation, relation + len(names)]
            assert not np.isin(view.graph.relation_ids, both).any()


@every_benchmark
@some_views
def test_each_train_relation_is_hidden_in_exactly_one_view(benchmark: Benchmark, count: int) -> None:
    hidden = Counter(name for view in views_of(benchmark, count) for name in hidden_by(benchmark, view))
    assert set(hidden) >= train_names(benchmark)
    assert set(hidden.values()) == {1}


@every_benchmark
@some_views
def test_only_background_relations_of_medium_size_are_hidden(benchmark: Benchmark, count: int) -> None:
    sizes = sizes_of(benchmark)
    for view in views_of(benchmark, count):
        for name in hidden_by(benchmark, view) - train_names(benchmark):
            assert SMALLEST <= sizes[name] <= LARGEST


@every_benchmark
@some_views
def test_dev_and_test_relations_are_in_no_view(benchmark: Benchmark, count: int) -> None:
    queried = {task.name for split in ("dev", "test") for task in benchmark.split(split)}
    views = views_of(benchmark, count)
    for graph in (known_graph(benchmark), *(view.graph for view in views)):
        assert not queried & set(graph.relations)
        assert triples_of(graph) <= known_triples(benchmark)
    assert not queried & {task.name.removesuffix(INVERSE) for view in views for task in view.tasks}


@some_views
def test_pairs_of_dev_and_test_relations_are_in_no_graph_and_no_task(count: int) -> None:
    queried = {pair for split in ("dev", "test") for task in SMALL.split(split) for pair in pairs_of(task.known)}
    assert len(queried) == 2 * 24
    views = views_of(SMALL, count)
    for graph in (known_graph(SMALL), *(view.graph for view in views)):
        edges = set(zip(graph.head_ids.tolist(), graph.tail_ids.tolist(), strict=True))
        assert not queried & edges
    for task in (task for view in views for task in view.tasks):
        assert not queried & (pairs_of(task.pairs) | pairs_of(task.known))


@every_benchmark
def test_views_do_not_depend_on_dev_and_test_tasks(benchmark: Benchmark) -> None:
    without = dataclasses.replace(benchmark, tasks={**benchmark.tasks, "dev": [], "test": []})
    assert same_views(masked_views(without, 3), views_of(benchmark, 3))
    assert known_graph(without).fingerprint == known_graph(benchmark).fingerprint


@every_benchmark
@some_views
def test_tasks_come_in_both_directions(benchmark: Benchmark, count: int) -> None:
    for view in views_of(benchmark, count):
        tasks = {task.name: task for task in view.tasks}
        assert len(tasks) == len(view.tasks)
        forward = [name for name in tasks if not name.endswith(INVERSE)]
        assert sorted(tasks) == sorted([*forward, *(name + INVERSE for name in forward)])
        for name in forward:
            assert np.array_equal(tasks[name + INVERSE].pairs, tasks[name].pairs[:, ::-1])
            assert np.array_equal(tasks[name + INVERSE].known, sorted_pairs(tasks[name].known[:, ::-1]))


@every_benchmark
@some_views
def test_known_answers_are_those_of_the_whole_relation(benchmark: Benchmark, count: int) -> None:
    known = known_triples(benchmark)
    for view in views_of(benchmark, count):
        for task in view.tasks:
            name = task.name.removesuffix(INVERSE)
            whole = {(h, t) for h, r, t in known if r == name}
            assert pairs_of(task.known) == ({(t, h) for h, t in whole} if task.name != name else whole)
            assert np.array_equal(task.known, sorted_pairs(task.known))
            assert pairs_of(task.pairs) <= pairs_of(task.known)
            assert SMALLEST <= len(task.pairs) == len(pairs_of(task.pairs)) <= MOST_PAIRS
            assert {array.dtype for array in (task.pairs, task.known, task.range)} == {np.dtype(np.int32)}


@every_benchmark
@some_views
def test_both_ends_of_a_pair_have_edges_in_the_view(benchmark: Benchmark, count: int) -> None:
    for view in views_of(benchmark, count):
        for task in view.tasks:
            assert np.isin(task.pairs, view.graph.head_ids).all()


@every_benchmark
@some_views
def test_ranges_are_those_of_the_benchmark_or_follow_from_the_graph_of_the_view(
    benchmark: Benchmark, count: int
) -> None:
    given = {task.name: task.range for task in benchmark.split("train")}
    for view in views_of(benchmark, count):
        for task in view.tasks:
            expected = given.get(task.name, likely_tails(view.graph, task.known[:, 1]))
            assert np.array_equal(task.range, expected) and len(task.range) > 1
            assert np.isin(task.known[:, 1], task.range).all()


@every_benchmark
def test_views_are_always_the_same(benchmark: Benchmark) -> None:
    assert same_views(masked_views(benchmark, 4), views_of(benchmark, 4))


def test_entities_types_and_readable_names_are_those_of_the_benchmark() -> None:
    plain = SMALL.graph
    types = TypeTable.of([b"even", b"odd"], np.arange(COUNT), np.arange(COUNT) % 2, COUNT)
    labels = Vocabulary.of([*(f"the {n}" for n in plain.entities), *(f"to {n}" for n in plain.relations)])
    described = dataclasses.replace(SMALL, graph=dataclasses.replace(plain, types=types, labels=labels))
    for benchmark in (UMLS, SMALL, described):
        for graph in (known_graph(benchmark), *(view.graph for view in masked_views(benchmark, 2))):
            assert list(graph.entities) == list(benchmark.graph.entities)
            assert graph.types is benchmark.graph.types
    for graph in (known_graph(described), *(view.graph for view in masked_views(described, 2))):
        assert [graph.name(e) for e in (0, COUNT - 1)] == ["the e0", f"the e{COUNT - 1}"]
        assert [graph.relation_name(r) for r in range(5)] == ["to r0", "to r1", "to r2", "two apart", "four apart"]
        assert graph.relation_name(5 + 3) == f"two apart{INVERSE}"


@every_benchmark
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 20])
def test_a_view_hides_at_most_its_share_unless_its_train_relations_have_more(benchmark: Benchmark, count: int) -> None:
    sizes, train = sizes_of(benchmark), train_names(benchmark)
    share, every = HIDDEN * sum(sizes.values()), [hidden_by(benchmark, view) for view in views_of(benchmark, count)]
    for hidden in every:
        assert hidden <= train or sum(sizes[name] for name in hidden) <= share
    left = [sizes[n] for n in sizes if n not in set().union(*every) and SMALLEST <= sizes[n] <= LARGEST]
    for hidden in every if left else []:  # the smallest one left fits into none of them
        assert sum(sizes[name] for name in hidden) + min(left) > share


def test_the_smallest_background_relations_are_hidden_first() -> None:
    assert [hidden_by(SMALL, view) for view in masked_views(SMALL, 1)] == [train_names(SMALL)]  # 0.12 · 553 − 54 < 30
    hidden = set().union(*(hidden_by(SMALL, view) for view in masked_views(SMALL, 2)))
    assert hidden == {*train_names(SMALL), "r1"}
    everything = set().union(*(hidden_by(SMALL, view) for view in masked_views(SMALL, 20)))
    assert everything == {*train_names(SMALL), "r1"}  # r2 is one pair short, and r0 more than a view may hide


def test_a_relation_that_is_too_large_is_never_hidden() -> None:
    large = [(h, 0, t) for h in range(2 * COUNT) for t in range(2 * COUNT)]
    benchmark = benchmark_of(id_graph([*large, *RING], 2 * COUNT))
    assert len(large) > LARGEST
    assert set().union(*(hidden_by(benchmark, view) for view in masked_views(benchmark, 20))) == {"r1"}


def test_a_view_that_hides_nothing_is_the_known_graph() -> None:
    idle = [view for view in masked_views(SMALL, 20) if not hidden_by(SMALL, view)]
    assert len(idle) == 17
    for view in idle:
        assert not view.tasks
        assert view.graph.fingerprint == known_graph(SMALL).fingerprint


def test_pairs_of_entities_without_other_edges_are_known_but_not_in_the_task() -> None:
    pairs = [*((h, (h + 2) % COUNT) for h in range(COUNT)), (0, COUNT), (COUNT + 1, 1), (COUNT, COUNT + 1)]
    graph = id_graph([*CROWD, *RING], COUNT + 2, 2)
    (view,) = masked_views(benchmark_of(graph, train=[task_of(pairs, range(COUNT + 2), name="wide")]), 1)
    forward, back = view.tasks
    assert (forward.name, back.name) == ("wide", "wide" + INVERSE)
    assert pairs_of(forward.pairs) == set(pairs[:COUNT]) and pairs_of(forward.known) == set(pairs)
    assert pairs_of(back.known) == {(t, h) for h, t in pairs}


def test_relations_with_too_few_pairs_left_or_one_possible_tail_are_hidden_but_no_tasks() -> None:
    few = task_at(2, "few", pairs=SMALLEST - 1)
    closed = task_of([(h, 0) for h in range(1, COUNT)], [0], name="closed")
    lonely = task_of([(h, COUNT + h) for h in range(COUNT)], range(2 * COUNT), name="lonely")
    graph = id_graph([*CROWD, *RING], 2 * COUNT, 2)
    (view,) = masked_views(benchmark_of(graph, train=[few, closed, lonely, task_at(4, "large enough")]), 1)
    assert not {"few", "closed", "lonely"} & {r for _, r, _ in triples_of(view.graph)}
    assert [task.name for task in view.tasks] == ["closed" + INVERSE, "large enough", "large enough" + INVERSE]


def test_the_task_of_a_large_relation_has_some_of_its_pairs_and_knows_all() -> None:
    pairs = [(h, t) for h in range(COUNT) for t in range(COUNT) if h != t]
    large = benchmark_of(id_graph([*CROWD, *RING], COUNT, 2), train=[task_of(pairs, range(COUNT), name="large")])
    (view,) = masked_views(large, 1)
    for task in view.tasks:
        assert (len(task.pairs), len(task.known)) == (MOST_PAIRS, len(pairs))


def test_known_answers_beside_the_pairs_are_known_in_a_view() -> None:
    task = task_at(2, "two apart")
    more = dataclasses.replace(task, known=sorted_pairs(np.concatenate([task.known, [[29, 5]]])))
    (view,) = masked_views(benchmark_of(SMALL.graph, train=[more]), 1)
    forward, back = (next(k for k in view.tasks if k.name == name) for name in ("two apart", "two apart" + INVERSE))
    assert (29, 5) in pairs_of(forward.known) and (5, 29) in pairs_of(back.known)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "triples",
    [
        [],
        FEW,
        CROWD,  # a view may not hide everything
        [(h, 0, t) for h in range(COUNT * 2) for t in range(COUNT * 2)],
    ],
    ids=["empty", "few", "one", "too large"],
)
def test_a_benchmark_with_nothing_to_hide_is_an_error(triples: list[tuple[int, int, int]], count: int) -> None:
    graph = id_graph(triples, 2 * COUNT)
    tasks = {split: [task_at(2, split)] for split in SPLITS if split != "train"}
    with pytest.raises(FewlinkError, match="small has nothing to learn on"):
        masked_views(benchmark_of(graph, **tasks), count)
    assert triples_of(known_graph(benchmark_of(graph, **tasks))) == triples_of(graph)


# training triples


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


# once, not again


def test_carving_the_known_graph_and_all_views_sort_edges_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sorts = known_graph(UMLS), 0
    sort = graph_module._sorted_edges

    def counted(*arguments: Any) -> Any:
        nonlocal sorts
        sorts += 1
        return sort(*arguments)

    monkeypatch.setattr(graph_module, "_sorted_edges", counted)
    benchmark, _ = carve(whole, "carved")
    for count in (2, 4):
        assert len(masked_views(benchmark, count)) == count
    assert sorts == 1
    assert known_graph(benchmark) is known_graph(benchmark) and masked_views(benchmark, 4) is masked_views(benchmark, 4)


def test_without_train_relations_the_known_graph_is_the_background_itself() -> None:
    """So a fitted run is served from its mapped file: nothing is sorted or copied."""
    benchmark = benchmark_of(graph_of("a r b", "b r c"))
    assert known_graph(benchmark) is benchmark.graph
