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
    Sample,
    Tell,
    ThisProcess,
    Work,
    lost,
    portable,
    sample_seconds,
)
from fewlink.core.engine.packing import packed, unpacked
from fewlink.core.memory import keep_freed

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

    @property
    def samples(self) -> bool:
        return super().samples or self.min_seconds > 0

    def _run(self, work: Work, batches: Sequence[Batch], name: Name, sample: Sample | None, tell: Tell) -> Results:
        if len(batches) < 2 or (sample is not None and self._is_short(batches, sample)):
            yield from ThisProcess()._run(work, batches, name, sample, tell)
            return
        waiting = collections.deque(range(len(batches)))
        losses = collections.Counter[int]()
        pickled = packed(work)
        processes = [WorkerProcess(pickled) for _ in range(min(self.workers, len(batches)))]
        try:
            if sample is not None and self.on_estimate is not None:
                tell(_sample_seconds(processes, sample))
            while True:
                for process in processes:
                    if process.batch is None and waiting:
                        process.batch = waiting.popleft()
                        process.send(batches[process.batch])
                busy = {process.connection: process for process in processes if process.batch is not None}
                if not busy:
                    return
                for connection in multiprocessing.connection.wait(list(busy)):
                    process = busy[connection]  # type: ignore[index]
                    number = process.batch
                    process.batch = None
                    assert number is not None
                    try:
                        result = process.result()
                    except WorkerEnded:
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

    def _is_short(self, batches: Sequence[Batch], sample: Sample) -> bool:
        return sample.seconds / len(sample.items) * sum(map(len, batches)) < self.min_seconds


def _sample_seconds(processes: Sequence[WorkerProcess], sample: Sample) -> list[float]:
    """The seconds that the sample takes each process while the others do it, too."""
    for process in processes:
        process.send(sample)
    seconds = []
    for process in processes:
        try:
            seconds.append(process.result())
        except WorkerEnded:
            process.restart()
            seconds.append(sample.seconds)
    return seconds


class WorkerEnded(Exception):
    """A process ended before its batch was done."""


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

    def send(self, batch: Batch | Sample) -> None:
        """Send a batch to do, or a sample to time."""
        with contextlib.suppress(OSError):  # the process has ended: `result` will say so
            self.connection.send(batch)

    def result(self) -> Any:
        """The result of the batch, or its error. Raises `WorkerEnded` if the process ended."""
        try:
            succeeded, value = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerEnded from None
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
    keep_freed()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work: Work | None = None
    while True:
        batch = connection.recv()
        try:
            work = work or unpacked(pickled)
            answer = True, sample_seconds(work, batch.items) if isinstance(batch, Sample) else work(batch)
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
