"""Long work in parts that any worker can do: this process, processes of this machine, or a Dask cluster.

`work` maps a part, a sequence of items, to its result, and depends on nothing else; so it does not matter which worker
does a part, or how often. It is pickled once. Arrays that are memory-mapped stay out of the pickle: workers map them
from the same path.

Every worker has one thread. Workers take the next part when they are done with one, so a slow worker does fewer. If a
worker ends before its part is done, because it was killed or out of memory, the part goes to another worker.
"""

from __future__ import annotations

import collections
import contextlib
import io
import math
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, InputError, describe
from fewlink.core.storage import MANIFEST, sha256_file
from fewlink.core.threads import torch_threads

MAX_LOSSES = 3  # workers that may end in one part
MIN_SECONDS = 20.0  # of one worker; a process takes some seconds to start, so shorter work stays in this process
SAMPLE_ITEMS = 4  # in the first sample
SAMPLE_SECONDS = 1.0  # that a sample takes, unless it has as many items as a part or a twentieth of all
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

Part = Sequence[Any]
Work = Callable[[Any], Any]
Name = Callable[[int], str]
Results = Generator[tuple[int, Any], None, None]


def part_name(number: int) -> str:
    """The name of a part in errors."""
    return f"part {number}"


class Engine(ABC):
    """Runs parts of work. `on_estimate` is called before the start with the expected seconds and number of workers."""

    def __init__(self, workers: int, on_estimate: Callable[[float, int], None] | None = None) -> None:
        self.workers, self.on_estimate = workers, on_estimate

    def run(self, work: Work, parts: Sequence[Part], name: Name = part_name) -> Results:
        """Yield the number and the result of each part, in the order in which they are done."""
        if self.on_estimate is not None and len(parts) > 1:
            self.on_estimate(estimate(work, parts, self.workers), self.workers)
        yield from self._run(work, parts, name)

    @abstractmethod
    def _run(self, work: Work, parts: Sequence[Part], name: Name) -> Results: ...


class ThisProcess(Engine):
    """One worker: this process, with all its threads."""

    def __init__(self, on_estimate: Callable[[float, int], None] | None = None) -> None:
        super().__init__(1, on_estimate)

    def _run(self, work: Work, parts: Sequence[Part], name: Name) -> Results:
        for number, part in enumerate(parts):
            yield number, work(part)


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

    def run(self, work: Work, parts: Sequence[Part], name: Name = part_name) -> Results:
        if len(parts) > 1:
            seconds = estimate(work, parts, self.workers)
            if seconds * min(self.workers, len(parts)) >= self.min_seconds:
                if self.on_estimate is not None:
                    self.on_estimate(seconds, self.workers)
                return self._run(work, parts, name)
        return ThisProcess().run(work, parts, name)

    def _run(self, work: Work, parts: Sequence[Part], name: Name) -> Results:
        waiting, losses = collections.deque(range(len(parts))), collections.Counter[int]()
        pickled = packed(work)
        processes = [WorkerProcess(pickled) for _ in range(min(self.workers, len(parts)))]
        try:
            while True:
                for process in processes:
                    if process.part is None and waiting:
                        process.begin(waiting.popleft(), parts)
                busy = {process.connection: process for process in processes if process.part is not None}
                if not busy:
                    return
                for connection in multiprocessing.connection.wait(list(busy)):
                    process = busy[connection]  # type: ignore[index]
                    number = process.part
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
    """A process that does one part after another; `part` is the number of the current one."""

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self._start()

    def _start(self) -> None:
        self.part: int | None = None
        spawn = multiprocessing.get_context("spawn")
        self.connection, far_end = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(far_end, self.pickled), daemon=True)
        with _environment(ONE_THREAD):
            self.process.start()
        far_end.close()  # so that the connection ends with the process

    def begin(self, number: int, parts: Sequence[Part]) -> None:
        self.part = number
        with contextlib.suppress(OSError):  # the process has ended: `result` will say so
            self.connection.send(parts[number])

    def result(self) -> Any:
        """The result of the part, or its error. Raises EOFError or OSError if the process ended."""
        succeeded, value = self.connection.recv()
        self.part = None
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
    """Do the parts that arrive, in a process of its own, until it is killed or its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work: Work | None = None
    while True:
        part = connection.recv()
        try:
            work = work or unpacked(pickled)
            answer = True, work(part)
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


def portable(error: Exception) -> Exception:
    """The error with its traceback as a note, or a description of it if it cannot be pickled."""
    if not isinstance(error, FewlinkError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return RuntimeError(f"{describe(error)}\n{traceback.format_exc()}")
    return error


def lost(part: str) -> FewlinkError:
    """The error for a part that ended its workers."""
    return FewlinkError(
        f"{MAX_LOSSES} workers were killed while they worked on {part}, perhaps because memory ran out: use fewer "
        "workers, or workers with more memory; what is done is kept"
    )


def estimate(work: Work, parts: Sequence[Part], workers: int) -> float:
    """The expected seconds of all parts on so many workers, by the pace of a sample of evenly spaced items.

    The first sample fills caches and is not timed. The next ones grow until one takes long enough.
    """
    items, size = [item for part in parts for item in part], max(map(len, parts))
    most = min(size, max(SAMPLE_ITEMS, len(items) // 20))
    count = min(SAMPLE_ITEMS, most)
    with torch_threads(1) if workers > 1 else contextlib.nullcontext():
        work(_evenly_spaced(items, count))
        while True:
            start = time.monotonic()
            work(_evenly_spaced(items, count))
            seconds = time.monotonic() - start
            if seconds >= SAMPLE_SECONDS or count == most:
                break
            count = min(2 * count, most)
    of_busiest = min(len(items), size * math.ceil(len(parts) / workers))
    return seconds / count * of_busiest


def _evenly_spaced(items: Sequence[Any], count: int) -> Sequence[Any]:
    return [items[number * len(items) // count] for number in range(count)]


def packed(work: Work) -> bytes:
    """The work as a pickle without the arrays that are memory-mapped; workers open those from their path."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(work)
    return buffer.getvalue()


def unpacked(pickled: bytes) -> Work:
    """The work that was `packed`, perhaps on another machine."""
    work: Work = pickle.loads(pickled)  # noqa: S301
    return work


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.memmap) or not isinstance(value.base, mmap.mmap) or value.filename is None:
            return NotImplemented
        path = Path(value.filename)
        order = "C" if value.flags.c_contiguous else "F"
        return map_array, (str(path), value.dtype.str, value.shape, value.offset, order, folder_checksum(path))


def map_array(path: str, dtype: str, shape: tuple[int, ...], offset: int, order: Any, checksum: str) -> np.ndarray:
    """Map an array of a file of this machine. Raises unless it belongs to the same version of the same folder."""
    file = Path(path)
    if not file.is_file():
        raise InputError(file, "is not on every worker: share its folder, or copy it to the same path")
    if folder_checksum(file) != checksum:
        raise InputError(file, "differs between workers, or was replaced: copy the same folder to all, and start again")
    array: np.ndarray = np.memmap(file, dtype, "r", offset, shape, order)
    return array


def folder_checksum(file: Path) -> str:
    """The sha256 of the manifest beside a file, which lists the checksums of all files; without one, the file's."""
    manifest = file.parent / MANIFEST
    return sha256_file(manifest if manifest.is_file() else file)


def engine_of(address: str, on_estimate: Callable[[float, int], None] | None = None) -> Engine:
    """The engine that an option names: `processes`, one for each core, `processes:N`, or `tcp://HOST:PORT`."""
    kind, _, number = address.partition(":")
    if kind == "processes":
        count = number or str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
        if not (count.isascii() and count.isdigit() and int(count)):
            raise FewlinkError(f"engine {address}: the number of processes must be at least 1, such as processes:4")
        return ThisProcess(on_estimate) if int(count) == 1 else Processes(int(count), on_estimate)
    if kind in ("tcp", "tls"):
        from fewlink.core.cluster import DaskCluster

        return DaskCluster(address, on_estimate)
    raise FewlinkError(f"unknown engine '{address}': use processes, processes:N, or a Dask cluster, tcp://HOST:PORT")
