"""Batches of work on several workers: nothing is lost when one ends, and mapped arrays are opened from their path."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewlink.core.engine import Engine, Processes, ThisProcess, engine_of
from fewlink.core.engine.base import MAX_LOSSES, expected_seconds
from fewlink.core.engine.packing import packed, unpacked
from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import write_bytes

BATCHES = [[1, 2], [3, 4], [5, 6], [7]]


class Doubling:
    """Doubles numbers. The first process that reaches `fatal` ends there; in `folder`, each process leaves a file."""

    def __init__(self, folder: Path, fatal: int | None = None, deaths: int = 1) -> None:
        self.folder, self.fatal, self.deaths, self.driver = folder, fatal, deaths, os.getpid()

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        if os.getpid() != self.driver:
            (self.folder / f"process-{os.getpid()}-{os.environ['OMP_NUM_THREADS']}").touch()
            if self.fatal in numbers and len(list(self.folder.glob("death-*"))) < self.deaths:
                (self.folder / f"death-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if -1 in numbers:
                raise InputError("numbers.txt", "has a negative number", 3)
            if -2 in numbers:
                raise FileNotFoundError("numbers.txt")
        return [2 * number for number in numbers]


def results(engine: Engine, work: object, batches: Sequence[Sequence[int]] = BATCHES) -> list[Any]:
    found = dict(engine.run(work, batches))  # type: ignore[arg-type]
    return [found[number] for number in range(len(batches))]


@pytest.mark.slow
def test_the_batch_of_a_killed_process_goes_to_another(tmp_path: Path) -> None:
    assert results(Processes(3, min_seconds=0), Doubling(tmp_path, fatal=3)) == results(
        ThisProcess(), Doubling(tmp_path)
    )
    assert len(list(tmp_path.glob("death-*"))) == 1
    assert {file.name.rpartition("-")[2] for file in tmp_path.glob("process-*")} == {"1"}  # thread of each


def page_faults(sizes: Sequence[int]) -> int:
    """The pages that the system gives this process for arrays of so many bytes, when others of the kind were freed."""
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [bytearray(size) for size in sizes]
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        del arrays
    return faults


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
@pytest.mark.parametrize("kind", ["processes", "cluster"])
def test_workers_keep_freed_memory_for_the_next_arrays(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        engine: Engine = Processes(2, min_seconds=0)
        if kind == "cluster":
            distributed = pytest.importorskip("distributed")
            from fewlink.core.engine.cluster import DaskCluster

            workers = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
            engine = DaskCluster(stack.enter_context(workers).scheduler_address)
        found = results(engine, page_faults, [[8 << 20] * 4] * 2)
    assert all(faults < 1_000 for faults in found), found  # 8,192 if freed memory goes back to the system


@pytest.mark.slow
def test_a_batch_that_ends_its_workers_is_named(tmp_path: Path) -> None:
    work = Doubling(tmp_path, fatal=7, deaths=9)
    done = []
    with pytest.raises(FewlinkError, match="the batch with 7"):
        for number, _ in Processes(1, min_seconds=0).run(
            work, BATCHES, lambda number: f"the batch with {BATCHES[number][0]}"
        ):
            done.append(number)
    assert done == [0, 1, 2] and len(list(tmp_path.glob("death-*"))) == MAX_LOSSES


@pytest.mark.slow
def test_an_error_of_a_worker_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        list(Processes(2, min_seconds=0).run(Doubling(tmp_path), [[1], [-1]]))
    assert (raised.value.path, raised.value.line) == (Path("numbers.txt"), 3)
    with pytest.raises(FileNotFoundError):
        list(Processes(2, min_seconds=0).run(Doubling(tmp_path), [[1], [-2]]))


def test_short_work_stays_in_this_process(tmp_path: Path) -> None:
    assert results(Processes(2), Doubling(tmp_path)) == [[2, 4], [6, 8], [10, 12], [14]]
    assert not list(tmp_path.iterdir())


def test_the_next_batch_is_expected_to_go_to_the_first_idle_worker() -> None:
    weights = [8, 8, 8, 8, 4]
    assert expected_seconds(weights, [2.0]) == 18
    assert expected_seconds(weights, [2.0, 2.0]) == 10
    assert expected_seconds(weights, [2.0, 1.0]) == 16  # both are idle after 8 seconds, and the slower one takes 8
    assert expected_seconds(weights, [2.0] * 9) == 4


def test_the_estimate_is_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = [0.0], list[int]()
    monkeypatch.setattr("fewlink.core.engine.base.time.monotonic", lambda: clock[0])

    def work(items: Sequence[int]) -> None:
        done.extend(items)
        clock[0] += sum(0.5 if item in done[:-1] else 3.0 for item in items)  # caches are filled the first time

    told = list[tuple[float, int, int]]()
    batches = [range(begin, begin + 8) for begin in range(0, 800, 8)]
    engine = ThisProcess(lambda seconds, workers: told.append((seconds, workers, len(set(done)))))
    assert len(list(engine.run(work, batches, weight=lambda item: 2.0))) == 100
    assert len(told) == 1 and told[0][1] == 1 and told[0][2] <= 800 // 40
    assert 0.5 * 800 <= told[0][0] <= 0.7 * 800


@pytest.mark.slow
def test_the_estimate_is_made_by_the_workers(tmp_path: Path) -> None:
    told = list[tuple[float, int]]()
    engine = Processes(2, lambda *facts: told.append(facts), min_seconds=0)
    assert results(engine, Doubling(tmp_path, fatal=5)) == results(ThisProcess(), Doubling(tmp_path))
    assert [workers for _, workers in told] == [2] and told[0][0] > 0


def test_mapped_arrays_are_opened_from_their_path(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.arange(100_000).reshape(1000, 100))
    mapped = np.load(path, mmap_mode="r")
    pickled = packed({"mapped": mapped, "rows": mapped[3:5]})  # type: ignore[arg-type]
    assert len(pickled) < 10_000
    found = unpacked(pickled)
    assert isinstance(found["mapped"], np.memmap) and (found["mapped"] == mapped).all()  # type: ignore[index]
    assert (found["rows"] == mapped[3:5]).all()  # type: ignore[index]
    write_bytes(path, path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"array\.npy"):
        unpacked(pickled)
    path.unlink()
    with pytest.raises(InputError, match=r"array\.npy"):
        unpacked(pickled)


def test_engines_by_name() -> None:
    assert isinstance(engine_of("processes:1"), ThisProcess)
    assert engine_of("processes:3").workers == 3
    assert engine_of("processes").workers >= 1
    for wrong in ("processes:0", "processes:x", "threads", ""):
        with pytest.raises(FewlinkError, match=f"engine '?{wrong}"):
            engine_of(wrong)


SLOW = """
import os, sys, time
from pathlib import Path

from fewlink.core.engine import Processes


class Slow:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self, batch):
        (self.folder / str(os.getpid())).touch()
        time.sleep(60)


if __name__ == "__main__":
    list(Processes(2, min_seconds=0).run(Slow(Path(sys.argv[1])), [[1], [2]]))
"""


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    folder = tmp_path / "processes"
    folder.mkdir()
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py"), str(folder)], env={**os.environ, **path}, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not (workers := [int(path.name) for path in folder.iterdir()]):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 5
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, workers))
