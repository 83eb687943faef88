"""Batches of work on several workers: nothing is lost when one ends, and mapped arrays are opened from their path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, InputError

BATCHES = [[1, 2], [3, 4], [5, 6], [7]]
DOUBLED = [[2, 4], [6, 8], [10, 12], [14]]


class Doubling:
    """Doubles numbers. The first processes that reach `fatal` end there; in `folder`, each process leaves a file."""

    def __init__(self, folder: Path, fatal: int | None = None, deaths: int = 1) -> None:
        self.folder = folder
        self.fatal = fatal
        self.deaths = deaths
        self.driver = os.getpid()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        if os.getpid() != self.driver:
            (self.folder / f"process-{os.getpid()}").touch()
            if self.fatal in numbers and len(list(self.folder.glob("death-*"))) < self.deaths:
                (self.folder / f"death-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if -1 in numbers:
                raise InputError("numbers.txt", "has a negative number", 3)
            if -2 in numbers:
                raise FileNotFoundError("numbers.txt")
        return [2 * number for number in numbers]


class Table:
    """Sums rows of an array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __call__(self, rows: Sequence[int]) -> tuple[bool, int]:
        return isinstance(self.array, np.memmap), int(self.array[rows].sum())


def processes(count: int) -> Engine:
    return Engine(f"processes:{count}", seconds_here=0)


def results(engine: Engine, work: Callable[[Any], Any], batches: Sequence[Sequence[int]] = BATCHES) -> list[Any]:
    return list(engine.in_order(work, batches))


@pytest.fixture(params=["processes", "cluster"])
def two_workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "processes":
        yield processes(2)
        return
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
    ) as cluster:
        yield Engine(cluster.scheduler_address)


@pytest.mark.slow
def test_the_batch_of_a_killed_worker_goes_to_another(two_workers: Engine, tmp_path: Path) -> None:
    assert results(two_workers, Doubling(tmp_path, fatal=3)) == DOUBLED
    assert len(list(tmp_path.glob("death-*"))) == 1 and len(list(tmp_path.glob("process-*"))) > 1


@pytest.mark.slow
def test_a_batch_that_ends_its_workers_is_named(two_workers: Engine, tmp_path: Path) -> None:
    work = Doubling(tmp_path, fatal=7, deaths=99)
    with pytest.raises(FewlinkError, match="the batch with 7"):
        list(two_workers.run(work, BATCHES, lambda number: f"the batch with {BATCHES[number][0]}"))


@pytest.mark.slow
def test_an_error_of_a_worker_is_raised_here(two_workers: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        results(two_workers, Doubling(tmp_path), [[1], [-1]])
    assert (raised.value.path, raised.value.line) == (Path("numbers.txt"), 3)
    with pytest.raises(FileNotFoundError):
        results(two_workers, Doubling(tmp_path), [[1], [-2]])


@pytest.mark.slow
def test_mapped_arrays_are_opened_from_their_path(two_workers: Engine, tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.arange(100_000).reshape(1000, 100))
    work = Table(np.load(path, mmap_mode="r"))
    assert results(two_workers, work) == [(True, int(work.array[rows].sum())) for rows in BATCHES]
    path.unlink()
    with pytest.raises(InputError, match=r"array\.npy"):
        results(two_workers, work)


def test_short_work_stays_in_this_process(tmp_path: Path) -> None:
    assert results(Engine("processes:2"), Doubling(tmp_path)) == DOUBLED
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["processes:0", "processes:x", "threads", ""])
def test_an_unknown_engine_is_an_error(wrong: str) -> None:
    with pytest.raises(FewlinkError, match=f"engine '?{wrong}"):
        Engine(wrong)


SCHEDULER = """
import sys, time
from distributed import LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, scheduler_port=int(sys.argv[1]))
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
"""


def slowly(numbers: Sequence[int]) -> Sequence[int]:
    time.sleep(0.2)
    return numbers


@pytest.mark.slow
def test_a_killed_scheduler_is_told(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "cluster.py").write_text(SCHEDULER)
    command = [sys.executable, str(tmp_path / "cluster.py"), "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        found = Engine(address, connect_seconds=3).run(slowly, [[number] for number in range(50)])
        with pytest.raises(FewlinkError, match=f"{address}.*the same command") as raised:
            for _ in found:
                cluster.kill()
    assert "\n" not in str(raised.value)


SLOW = """
import os, sys, time
from pathlib import Path

from fewlink.core.engine import Engine


class Slow:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, batch):
        (self.folder / str(os.getpid())).touch()
        time.sleep(600)


if __name__ == "__main__":
    list(Engine("processes:2", seconds_here=0).run(Slow(Path(sys.argv[1])), [[1], [2]]))
"""


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, end: int) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    folder = tmp_path / "processes"
    folder.mkdir()
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(folder)], env={**os.environ, **path}, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while len(workers := [int(path.name) for path in folder.iterdir()]) < 2:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(end)
    process.communicate(timeout=60)
    until = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, workers))
