"""Work in threads: prefetching, a parallel map, and what lets other threads run in the meantime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

A = TypeVar("A")
T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items (none of them None); a thread makes the next one while the current one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def prefetch_indexed(make: Callable[[int], T], count: int) -> Callable[[int], T]:
    """`make` for indices below `count`; a thread computes `make(i + 1)` while `make(i)` is used."""
    coming: dict[int, Future[T]] = {}
    pool = ThreadPoolExecutor(1)

    def get(index: int) -> T:
        current = coming.pop(index, None) or pool.submit(make, index)
        coming.clear()
        if index + 1 < count:
            coming[index + 1] = pool.submit(make, index + 1)
        return current.result()

    return get


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted. Unlike `numpy.unique`, it lets other threads run while it sorts many."""
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch's operations use so many threads inside. With several, small ones wait for each other on busy cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """`work(item)` of each item, two at a time if torch may use two threads; more threads are not faster.

    Each call uses one torch thread, so the results do not depend on the number of threads.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(min(2, threads), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)  # new threads start with the number that was set last
