"""The scripts that put load on a server, for seconds."""

from __future__ import annotations

import argparse
import asyncio
import threading
from pathlib import Path

import pytest

import soak
import stall


@pytest.mark.long
def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    options = argparse.Namespace(graph="umls", minutes=0.25, clients=6, kills=1)
    results = asyncio.run(soak.soak(options, tmp_path / "project"))
    assert results["problems"] == [] and results["starts"] == 2 and results["decisions"] > 0
    assert [row for row in results["checks"] if not row["kept"] and "memory" not in row["check"]] == []
    assert results["statuses"]["200"] > 10 and set(results["statuses"]) <= {"200", "503", "504", "404", "422"}


def test_growth_is_that_of_a_line_through_all_samples() -> None:
    samples = [{"seconds": 5.0 * n, "MiB": 100.0 + n, "threads": 8.0 + (n > 15)} for n in range(21)]
    assert soak.growth_of(samples) == pytest.approx(20 / 110)
    steady = [{**one, "MiB": 100.0 + 3 * (place % 2)} for place, one in enumerate(samples)]
    assert soak.growth_of(steady) == pytest.approx(0, abs=0.01)
    assert soak.growth_of(samples[:2]) == 0
    assert soak.more_of(samples, "threads") == 1 and soak.more_of(samples[:17], "threads") == 0
    assert soak.more_of([], "threads") == 0


def test_a_check_is_kept_up_to_what_is_allowed() -> None:
    assert [soak.check("memory", 0.05, measured)["kept"] for measured in (-0.1, 0.05, 0.06)] == [True, True, False]


@pytest.mark.long
def test_small_requests_beside_a_costly_one_and_slow_sockets() -> None:
    costly, used, _ = stall.questions("umls", 50)
    assert len(costly["references"]) > 100 and len(costly["heads"]) == 50
    ready, stop = threading.Event(), threading.Event()
    with stall.server("umls") as (process, port):
        large = stall.Costly(port, costly)
        large.start()
        slow = threading.Thread(target=stall.slow_sockets, args=(port, 40, ready, stop))
        slow.start()
        assert ready.wait(20)
        row = stall.measured(port, used, 2.0)
        large.halt.set()
        stop.set()
        slow.join(20)
        assert row["small not 200"] == row["health not 200"] == 0
        assert row["small p50 s"] < 5 and stall.resident(process) > 50
