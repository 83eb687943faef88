"""A Dask cluster as an engine. Its scheduler gives the batch of a worker that ended to another one."""

from __future__ import annotations

import collections
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from fewlink.core.engine.base import (
    MAX_LOSSES,
    Batch,
    Engine,
    Name,
    Results,
    Sample,
    Tell,
    Work,
    lost,
    portable,
    sample_seconds,
)
from fewlink.core.engine.packing import packed, unpacked
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.core.memory import keep_freed
from fewlink.core.threads import torch_threads

try:
    from distributed import Client, KilledWorker, WorkerPlugin, as_completed, get_worker
except ImportError:
    raise MissingExtra("a Dask cluster", "cluster") from None

CONNECT_SECONDS = 10


class DaskCluster(Engine):
    """The workers of a Dask cluster; those that join later get batches, too. Each does one batch at a time.

    Results are kept by this process only: a worker that ends takes none with it.
    """

    def __init__(self, address: str, on_estimate: Callable[[float, int], None] | None = None) -> None:
        self.address = address
        with self._client() as client:
            workers = len(client.nthreads())
        if not workers:
            raise FewlinkError(f"the cluster at {address} has no workers: start some with dask worker {address}")
        super().__init__(workers, on_estimate)

    def _client(self) -> Client:
        try:
            return Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise FewlinkError(f"no Dask scheduler answers at {self.address} ({error}): check the address") from None

    def _run(self, work: Work, batches: Sequence[Batch], name: Name, sample: Sample | None, tell: Tell) -> Results:
        job = f"fewlink-{uuid.uuid4().hex}"
        waiting = collections.deque(range(len(batches)))
        losses = collections.Counter[int]()
        running: dict[str, int] = {}
        with self._client() as client:
            client.register_plugin(Job(packed(work)), name=job)
            done = as_completed(loop=client.loop)
            try:
                if sample is not None:
                    keys = [f"{job}-sample-{number}" for number in range(len(client.nthreads()))]
                    samples = [client.submit(do_batch, job, sample, key=key, pure=False) for key in keys]
                    tell(client.gather(samples))
                while True:
                    while waiting and len(running) < max(1, len(client.nthreads())):
                        number = waiting.popleft()
                        key = f"{job}-{number}-{losses[number]}"
                        running[key] = number
                        done.add(client.submit(do_batch, job, batches[number], key=key, pure=False))
                    if not running:
                        return
                    future = next(done)
                    number = running.pop(future.key)
                    try:
                        result = future.result()
                    except KilledWorker:
                        raise lost(name(number)) from None
                    except MemoryError:
                        losses[number] += 1
                        if losses[number] == MAX_LOSSES:
                            raise lost(name(number)) from None
                        waiting.appendleft(number)
                    else:
                        future.release()
                        yield number, result
            finally:
                client.unregister_worker_plugin(job)


class Job(WorkerPlugin):  # type: ignore[misc]
    """The work on each worker, also on those that start later. It is opened when the first batch arrives."""

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self.work: Work | None = None

    def setup(self, worker: Any) -> None:
        keep_freed()
        self.lock = threading.Lock()

    def do(self, batch: Batch | Sample) -> Any:
        with self.lock, torch_threads(1):
            self.work = self.work or unpacked(self.pickled)
            return sample_seconds(self.work, batch.items) if isinstance(batch, Sample) else self.work(batch)


def do_batch(job: str, batch: Batch | Sample) -> Any:
    """Do a batch of a job, or time a sample, on the worker that calls it."""
    plugins: dict[str, Any] = get_worker().plugins
    try:
        return plugins[job].do(batch)
    except MemoryError:
        raise
    except Exception as error:
        raise portable(error) from None
