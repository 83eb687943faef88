"""Work done in threads: ahead of its use, or side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items (none of them None), the next one being made in a thread while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def foreseen(make: Callable[[int], T], count: int) -> Callable[[int], T]:
    """make(n) of n under `count`, the next one being made in a thread while this one is used."""
    coming: dict[int, Future[T]] = {}
    pool = ThreadPoolExecutor(1)

    def get(number: int) -> T:
        asked = coming.pop(number, None) or pool.submit(make, number)
        coming.clear()
        if number + 1 < count:
            coming[number + 1] = pool.submit(make, number + 1)
        return asked.result()

    return get


def side_by_side(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """work(item) of each item, two at a time where torch has threads for it: more wait for each other, not for work.

    Each has one thread to itself, so what comes out does not depend on how many there are.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(min(2, threads), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(threads)  # threads that come later begin with what was set last
