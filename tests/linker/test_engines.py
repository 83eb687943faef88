"""Missing links found by several workers, one of which is killed: the file is that of one process, byte for byte."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import benchmark_of
from tests.linker.graphs import people

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker

pytestmark = pytest.mark.slow


@functools.cache
def linker() -> Linker:
    return Linker.shipped(benchmark_of(people("country0 speaks lang0")))


def completed(out: Path, engine: Engine | None = None, on_first: Callable[[], None] = lambda: None) -> bytes:
    """The file of missing links. `on_first` is called when the first batch is done."""
    reports = list[int]()

    def report(done: int, count: int) -> None:
        reports.append(done)
        if len(reports) == 2:
            on_first()

    linker().complete(relation="speaks", top=300, k=3, out=out, engine=engine, on_heads=report)
    assert reports[0] == 0 and len(reports) >= 5
    return out.read_bytes()


def test_one_of_two_processes_is_killed(tmp_path: Path) -> None:
    def kill() -> None:
        children = multiprocessing.active_children()
        assert len(children) == 2
        os.kill(children[-1].pid or 0, signal.SIGKILL)

    found = completed(tmp_path / "two.tsv", Engine("processes:2", seconds_here=0), kill)
    assert found == completed(tmp_path / "one.tsv") and not multiprocessing.active_children()


def test_one_of_two_workers_of_a_cluster_is_killed(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
    ) as cluster:
        engine = Engine(cluster.scheduler_address)
        assert engine.workers == 2
        killed = next(iter(cluster.workers.values())).pid
        found = completed(tmp_path / "two.tsv", engine, lambda: os.kill(killed, signal.SIGKILL))
    assert found == completed(tmp_path / "one.tsv")


@pytest.mark.parametrize("options", [{}, {"across_heads": True, "constraints": "inverse-functional"}])
def test_answers_about_many_heads_are_those_of_one_process(options: dict[str, Any]) -> None:
    people = [f"person{country}x{number}" for country in range(6) for number in range(20)]
    query = linker().resolve([("person0x1", "hobby1"), ("person1x2", "hobby2")], people, 3, **options)
    done = list[int]()
    several = linker().answer(query, Engine("processes:2", seconds_here=0), done.append)
    assert several == linker().answer(query) and len(several) and done[-1] == len(people)
    trust = linker().trust(query)
    at_once = linker().settle(query, linker().rank(query, trust, query.heads), trust)
    assert [row.score for row in several] == at_once.scores.tolist()


def test_an_address_where_nothing_answers() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(FewlinkError, match=r"tcp://127\.0\.0\.1:9"):
        Engine("tcp://127.0.0.1:9", connect_seconds=1)
