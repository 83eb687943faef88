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
    assert results["problems"] == [] and results["starts"] == 2 and results["lost decisions"] == 0
    assert results["statuses"]["200"] > 10 and set(results["statuses"]) <= {"200", "503", "504", "404", "422"}


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
