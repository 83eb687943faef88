"""Processes of this machine as workers."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fewlink.core.engine.base import (
    MAX_LOSSES,
    Batch,
    Engine,
    Name,
    Results,
    ThisProcess,
    Work,
    batch_name,
    estimate,
    lost,
    portable,
)
from fewlink.core.engine.packing import packed, unpacked

MIN_SECONDS = 20.0  # of one worker; a process takes some seconds to start, so shorter work stays in this process
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Processes(Engine):
    """Processes of this machine. Work of less than `min_seconds` for one worker stays in this process."""

    def __init__(
        self,
        workers: int,
        on_estimate: Callable[[float, int], None] | None = None,
        min_seconds: float = MIN_SECONDS,
    ) -> None:
        super().__init__(workers, on_estimate)
        self.min_seconds = min_seconds

    def run(self, work: Work, batches: Sequence[Batch], name: Name = batch_name) -> Results:
        if len(batches) > 1:
            needed = self.on_estimate is not None or self.min_seconds > 0
            seconds = estimate(work, batches, self.workers) if needed else 0.0
            if seconds * min(self.workers, len(batches)) >= self.min_seconds:
                if self.on_estimate is not None:
                    self.on_estimate(seconds, self.workers)
                return self._run(work, batches, name)
        return ThisProcess().run(work, batches, name)

    def _run(self, work: Work, batches: Sequence[Batch], name: Name) -> Results:
        waiting, losses = collections.deque(range(len(batches))), collections.Counter[int]()
        pickled = packed(work)
        processes = [WorkerProcess(pickled) for _ in range(min(self.workers, len(batches)))]
        try:
            while True:
                for process in processes:
                    if process.batch is None and waiting:
                        process.begin(waiting.popleft(), batches)
                busy = {process.connection: process for process in processes if process.batch is not None}
                if not busy:
                    return
                for connection in multiprocessing.connection.wait(list(busy)):
                    process = busy[connection]  # type: ignore[index]
                    number = process.batch
                    assert number is not None
                    try:
                        result = process.result()
                    except (EOFError, OSError):
                        losses[number] += 1
                        if losses[number] == MAX_LOSSES:
                            raise lost(name(number)) from None
                        waiting.appendleft(number)
                        process.restart()
                    else:
                        yield number, result
        finally:
            for process in processes:
                process.end()


class WorkerProcess:
    """A process that does one batch after another; `batch` is the number of the current one."""

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self._start()

    def _start(self) -> None:
        self.batch: int | None = None
        spawn = multiprocessing.get_context("spawn")
        self.connection, far_end = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(far_end, self.pickled), daemon=True)
        with _environment(ONE_THREAD):
            self.process.start()
        far_end.close()  # so that the connection ends with the process

    def begin(self, number: int, batches: Sequence[Batch]) -> None:
        self.batch = number
        with contextlib.suppress(OSError):  # the process has ended: `result` will say so
            self.connection.send(batches[number])

    def result(self) -> Any:
        """The result of the batch, or its error. Raises EOFError or OSError if the process ended."""
        succeeded, value = self.connection.recv()
        self.batch = None
        if not succeeded:
            raise value
        return value

    def restart(self) -> None:
        self.end()
        self._start()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(connection: multiprocessing.connection.Connection, pickled: bytes) -> None:
    """Do the batches that arrive, in a process of its own, until it is killed or its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work: Work | None = None
    while True:
        batch = connection.recv()
        try:
            work = work or unpacked(pickled)
            answer = True, work(batch)
        except MemoryError:
            os._exit(1)
        except Exception as error:
            answer = False, portable(error)
        connection.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
