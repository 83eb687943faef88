"""Threads: prefetching, a parallel map, sorting without blocking, and the number of torch's threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

A = TypeVar("A")
T = TypeVar("T")
_second_thread = threading.Lock()  # held by the parallel map that uses two threads


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items, none of which may be None; a thread makes the next one while the caller uses the current one."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted. Unlike `numpy.unique`, it lets other threads run while it sorts."""
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads inside the block. On busy cores, the threads of small operations wait."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """Return `work(item)` for each item, computed in two threads if torch may use two; more are not faster.

    One call at a time uses two threads; others meanwhile compute in their own. Each thread uses one torch thread, so
    the results do not depend on the number of threads.
    """
    import torch

    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2 or not _second_thread.acquire(blocking=False):
        with torch_threads(1):
            return [work(item) for item in items]
    try:
        with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        _second_thread.release()
        torch.set_num_threads(threads)  # new threads take the number that was set last
