from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import benchmark_of, graph_of, task_of

from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.tasks import SPLITS, Benchmark
from fewlink.tasks.benchmark import sorted_pairs

GRAPH = graph_of("a r b", "b r c", "c q d")
VISITS = task_of([(0, 1), (1, 2), (0, 3), (2, 1)], range=[1, 2, 3], known=[(3, 0)], name="visits")
LIKES = task_of([(0, 2), (2, 0)], range=[0, 2], name="likes")


def test_the_first_pairs_are_the_references() -> None:
    references, queries = VISITS.split(2)
    assert references.tolist() == [[0, 1], [1, 2]]
    assert queries.tolist() == [[0, 3], [2, 1]]


@given(st.integers(1, 3), st.integers(1, 20), st.integers(0, 20))
def test_a_draw_splits_the_pairs_and_is_always_the_same(shots: int, draw: int, seed: int) -> None:
    references, queries = VISITS.split(shots, draw, seed)
    assert len(references) == shots
    assert sorted([*references.tolist(), *queries.tolist()]) == sorted(VISITS.pairs.tolist())
    again = VISITS.split(shots, draw, seed)
    assert np.array_equal(references, again[0])
    assert np.array_equal(queries, again[1])


def test_draws_differ_by_number_and_by_seed() -> None:
    task = task_of([(i, i) for i in range(50)], range=range(50))
    draws = {task.split(3, draw, seed)[0].tobytes() for draw in (1, 2, 3) for seed in (0, 1, 2)}
    assert len(draws) == 9


@pytest.mark.parametrize("shots", [-1, 0, 4, 5])
def test_no_references_and_references_that_leave_no_query_are_errors(shots: int) -> None:
    with pytest.raises(FewlinkError, match=f"visits .*{shots} references"):
        VISITS.split(shots)


def test_known_tails_are_grouped_by_head() -> None:
    assert {h: t.tolist() for h, t in VISITS.known_tails.items()} == {0: [1, 3], 1: [2], 2: [1], 3: [0]}
    assert task_of([], range=[0]).known_tails == {}


def test_pairs_are_sorted_and_distinct() -> None:
    assert sorted_pairs(np.array([[2, 1], [0, 3], [2, 1], [0, 1]])).tolist() == [[0, 1], [0, 3], [2, 1]]
    assert sorted_pairs(np.zeros((0, 2))).shape == (0, 2)


def test_splits_and_tasks_are_found_by_name() -> None:
    benchmark = benchmark_of(GRAPH, test=[VISITS], train=[LIKES])
    assert benchmark.split("test") == [VISITS]
    assert benchmark.task("likes") is LIKES
    with pytest.raises(UnknownName, match=r"split 'tset'.*'test'"):
        benchmark.split("tset")
    with pytest.raises(UnknownName, match=r"'visit'.*'visits'"):
        benchmark.task("visit")


def test_a_saved_benchmark_opens_the_same(tmp_path: Path) -> None:
    benchmark = benchmark_of(GRAPH, test=[VISITS], train=[LIKES])
    opened = Benchmark.open(benchmark.save(tmp_path / "b"))
    assert opened.name == "small"
    assert opened.graph.fingerprint == GRAPH.fingerprint
    assert [[t.name for t in opened.tasks[s]] for s in SPLITS] == [["likes"], [], ["visits"]]
    for array in ("pairs", "known", "range"):
        assert np.array_equal(getattr(opened.task("visits"), array), getattr(VISITS, array))
        assert np.array_equal(getattr(opened.task("likes"), array), getattr(LIKES, array))
    assert opened.fingerprint == benchmark.fingerprint
    del opened.__dict__["fingerprint"]
    assert opened.fingerprint == benchmark.fingerprint


def test_a_benchmark_without_tasks_can_be_saved(tmp_path: Path) -> None:
    opened = Benchmark.open(benchmark_of(GRAPH).save(tmp_path / "b"))
    assert [len(opened.tasks[s]) for s in SPLITS] == [0, 0, 0]


def test_a_task_without_pairs_can_be_saved(tmp_path: Path) -> None:
    empty = task_of([], range=[], name="empty")
    opened = Benchmark.open(benchmark_of(GRAPH, train=[LIKES, empty], test=[VISITS]).save(tmp_path / "b"))
    assert [len(t.pairs) for s in SPLITS for t in opened.tasks[s]] == [2, 0, 4]


def test_the_fingerprint_depends_on_every_part_of_a_task() -> None:
    variants = [
        benchmark_of(GRAPH, test=[VISITS]),
        benchmark_of(GRAPH, dev=[VISITS]),
        benchmark_of(graph_of("a r b", "b r c", "c q e"), test=[VISITS]),
        benchmark_of(GRAPH, test=[task_of([(1, 2), (0, 1), (0, 3), (2, 1)], [1, 2, 3], [(3, 0)], "visits")]),
        benchmark_of(GRAPH, test=[task_of([(0, 1), (1, 2), (0, 3), (2, 1)], [1, 2, 3], [(3, 1)], "visits")]),
        benchmark_of(GRAPH, test=[task_of([(0, 1), (1, 2), (0, 3), (2, 1)], [0, 1, 2, 3], [(3, 0)], "visits")]),
        benchmark_of(GRAPH, test=[task_of([(0, 1), (1, 2), (0, 3), (2, 1)], [1, 2, 3], [(3, 0)], "calls")]),
    ]
    assert len({b.fingerprint for b in variants}) == len(variants)


@pytest.mark.parametrize("file", ["pairs.npy", "range.ends.npy", "graph/tail_ids.npy", "graph/manifest.json"])
def test_a_damaged_benchmark_is_an_error(tmp_path: Path, file: str) -> None:
    path = benchmark_of(GRAPH, test=[VISITS]).save(tmp_path / "b") / file
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}"):
        Benchmark.open(tmp_path / "b")


@pytest.mark.parametrize("fact", ["tasks", "fingerprint", "name"])
def test_a_manifest_without_its_facts_is_an_error(tmp_path: Path, fact: str) -> None:
    path = benchmark_of(GRAPH, test=[VISITS]).save(tmp_path / "b") / "manifest.json"
    path.write_text(path.read_text().replace(f'"{fact}"', f'"{fact}s"', 1))
    with pytest.raises(InputError):
        Benchmark.open(tmp_path / "b")
