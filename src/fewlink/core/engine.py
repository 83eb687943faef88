"""Long work in batches that any worker can do: this process, processes of this machine, or a Dask cluster.

`work` maps a batch, a sequence of items, to its result, and depends on nothing else; so it does not matter which worker
does a batch, or how often. Every worker has one thread, and takes the next batch when it is done with one. If workers
are killed, their batches are done again.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fewlink.core.errors import FewlinkError, InputError, MissingExtra, describe
from fewlink.core.files import MANIFEST, sha256_file
from fewlink.core.machine import keep_freed
from fewlink.core.threads import torch_threads

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
SECONDS_HERE = 5.0  # processes take some seconds to start, so the first batches are done in this process
MAX_LOSSES = 3  # times in a row that workers may be killed before any of them finishes a batch
CONNECT_SECONDS = 10  # to wait for a Dask scheduler
WAKE_SECONDS = 1.0  # the system may hand Ctrl-C to a thread of the pool: the main thread sees it when it wakes

Batch = Sequence[Any]
Work = Callable[[Any], Any]
Name = Callable[[int], str]
Submit = Callable[[Batch], "Future[Any]"]


class Engine:
    """The workers that an address names: `processes`, one for each core, `processes:N`, or `tcp://HOST:PORT`."""

    def __init__(
        self,
        address: str = "processes:1",
        *,
        seconds_here: float = SECONDS_HERE,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self.address = address
        self.seconds_here = seconds_here
        self.connect_seconds = connect_seconds
        kind, _, number = address.partition(":")
        self.is_cluster = kind in ("tcp", "tls")
        if self.is_cluster:
            with self._client() as client:
                self.workers = len(client.nthreads())
            if not self.workers:
                raise FewlinkError(f"the cluster at {address} has no workers: start some with dask worker {address}")
        elif kind == "processes":
            count = number or str(_cores())
            if not (count.isascii() and count.isdigit() and int(count)):
                raise FewlinkError(f"engine {address}: the number of processes must be at least 1, such as processes:4")
            self.workers = int(count)
        else:
            known = "processes, processes:N, or a Dask cluster, tcp://HOST:PORT"
            raise FewlinkError(f"unknown engine '{address}': use {known}")

    def run(self, work: Work, batches: Sequence[Batch], name: Name = str) -> Generator[tuple[int, Any], None, None]:
        """Yield the number and the result of each batch, in the order in which they are done.

        `name` names a batch in errors. Short work stays in this process.
        """
        waiting = deque(range(len(batches)))
        end = time.monotonic() + self.seconds_here
        while waiting and not self.is_cluster and (self.workers == 1 or time.monotonic() < end):
            number = waiting.popleft()
            yield number, work(batches[number])
        pickled = _packed(work) if waiting else b""
        losses = 0
        while waiting:
            running: dict[Future[Any], int] = {}
            try:
                with self._cluster(pickled) if self.is_cluster else self._processes(pickled) as submit:
                    while waiting or running:
                        while waiting and len(running) <= self.workers:  # one more, so that no worker waits for it
                            running[submit(batches[waiting[0]])] = waiting[0]
                            waiting.popleft()
                        done, _ = wait(running, WAKE_SECONDS, FIRST_COMPLETED)
                        for future in done:
                            result = future.result()
                            yield running.pop(future), result
                            losses = 0
            except (BrokenExecutor, CancelledError, MemoryError) as error:
                losses += 1
                if losses == MAX_LOSSES or isinstance(error, MemoryError):
                    names = ", ".join(map(name, running.values()))
                    raise FewlinkError(
                        f"one worker after another was killed while it worked on {names}, perhaps because memory ran "
                        "out: use fewer workers, or workers with more memory; the same command then continues"
                    ) from None
                waiting.extendleft(sorted(running.values(), reverse=True))

    def in_order(
        self,
        work: Work,
        batches: Sequence[Batch],
        name: Name = str,
        on_items: Callable[[int], None] = lambda done: None,
    ) -> Generator[Any, None, None]:
        """Yield the results of all batches in their order. `on_items` is called with the number of items done."""
        found = dict[int, Any]()
        done = 0
        with contextlib.closing(self.run(work, batches, name)) as results:
            for following in range(len(batches)):
                while following not in found:
                    number, found[number] = next(results)
                    done += len(batches[number])
                    on_items(done)
                yield found.pop(following)

    @contextlib.contextmanager
    def _processes(self, pickled: bytes) -> Iterator[Submit]:
        spawn = multiprocessing.get_context("spawn")
        far_end, own_end = spawn.Pipe(duplex=False)
        pool = ProcessPoolExecutor(self.workers, spawn, _begin, (far_end, pickled))
        try:
            yield lambda batch: pool.submit(_do_begun, batch)
        finally:
            own_end.close()  # which ends the processes, even in the middle of a batch
            pool.shutdown(cancel_futures=True)

    @contextlib.contextmanager
    def _cluster(self, pickled: bytes) -> Iterator[Submit]:
        from distributed import KilledWorker

        with self._client() as client:
            try:
                shared = client.scatter(pickled, broadcast=True, hash=False)
                executor = client.get_executor(pure=False)
                yield lambda batch: executor.submit(_do, shared, batch)
            except KilledWorker:  # the scheduler has given a batch to several workers already
                raise MemoryError from None

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            from distributed import Client
        except ImportError:
            raise MissingExtra("a Dask cluster", "cluster") from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # our own errors say what happened
        try:
            client = Client(self.address, timeout=self.connect_seconds, set_as_default=False)
        except (OSError, ValueError) as error:
            raise FewlinkError(
                f"no Dask scheduler answers at {self.address} ({error}): check the address, or start it again; the "
                "same command then continues"
            ) from None
        with client:
            yield client


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_one_at_a_time = threading.Lock()  # a Dask worker may have several threads
_pickled = b""  # the work of this process, if `_processes` started it


def _begin(far_end: Connection, pickled: bytes) -> None:
    """Prepare a process that `_processes` started."""
    global _pickled
    _pickled = pickled
    os.environ.update(ONE_THREAD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    keep_freed()
    threading.Thread(target=_end_with, args=(far_end,), daemon=True).start()


def _end_with(far_end: Connection) -> None:
    """End this process when the other end of a pipe is closed, or its process has ended."""
    with contextlib.suppress(EOFError, OSError):
        far_end.recv()
    os._exit(1)


def _do_begun(batch: Batch) -> Any:
    return _do(_pickled, batch)


def _do(pickled: bytes, batch: Batch) -> Any:
    """Do a batch in a worker."""
    with _one_at_a_time, torch_threads(1):
        return _unpacked(pickled)(batch)


@functools.lru_cache(maxsize=1)
def _unpacked(pickled: bytes) -> Work:
    work: Work = pickle.loads(pickled)  # noqa: S301 (from the process that this worker serves)
    return work


def _packed(work: Work) -> bytes:
    """The work as a pickle, in which memory-mapped arrays are places in files."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FewlinkError(f"the model cannot be sent to workers ({describe(error)}): use processes:1") from None
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(getattr(value, "base", None), mmap.mmap) or not getattr(value, "filename", None):
            return NotImplemented
        path = Path(value.filename)
        order = "C" if value.flags.c_contiguous else "F"
        return _mapped, (str(path), value.dtype.str, value.shape, value.offset, order, _version(path))


def _mapped(path: str, dtype: str, shape: tuple[int, ...], offset: int, order: Any, version: str) -> Any:
    """Map an array of a file of this machine. Raise unless its folder has this version."""
    import numpy as np

    file = Path(path)
    if not file.is_file():
        raise InputError(file, "is not on every worker: share its folder, or copy it to the same path")
    if _version(file) != version:
        raise InputError(file, "differs between workers, or was replaced: copy the same folder to all, and start again")
    return np.memmap(file, dtype, "r", offset, shape, order)


def _version(file: Path) -> str:
    """The sha256 of the manifest beside a file, which lists the checksums of all files; without one, the file's."""
    manifest = file.parent / MANIFEST
    return sha256_file(manifest if manifest.is_file() else file)
