"""Long work in batches that any worker can do: this process, processes of this machine, or a Dask cluster.

`work` maps a batch, a sequence of items, to its result, and depends on nothing else; so it does not matter which worker
does a batch, or how often. It is pickled once. Arrays that are memory-mapped stay out of the pickle: workers map them
from the same path.

Every worker has one thread. Workers take the next batch when they are done with one, so a slow worker does fewer. If a
worker ends before its batch is done, because it was killed or out of memory, the batch goes to another worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fewlink.core.engine.base import Engine, ThisProcess
from fewlink.core.engine.processes import Processes
from fewlink.core.errors import FewlinkError

__all__ = ["Engine", "Processes", "ThisProcess", "engine_of"]


def engine_of(address: str, on_estimate: Callable[[float, int], None] | None = None) -> Engine:
    """The engine that an option names: `processes`, one for each core, `processes:N`, or `tcp://HOST:PORT`."""
    kind, _, number = address.partition(":")
    if kind == "processes":
        count = number or str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
        if not (count.isascii() and count.isdigit() and int(count)):
            raise FewlinkError(f"engine {address}: the number of processes must be at least 1, such as processes:4")
        return ThisProcess(on_estimate) if int(count) == 1 else Processes(int(count), on_estimate)
    if kind in ("tcp", "tls"):
        from fewlink.core.engine.cluster import DaskCluster

        return DaskCluster(address, on_estimate)
    raise FewlinkError(f"unknown engine '{address}': use processes, processes:N, or a Dask cluster, tcp://HOST:PORT")
