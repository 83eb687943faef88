"""Work in threads: one step ahead, and side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fewlink.base.threads import ahead, foreseen, side_by_side


def test_items_made_ahead_come_in_order() -> None:
    assert list(ahead(iter(range(1, 6)))) == [1, 2, 3, 4, 5]


def test_work_side_by_side_comes_in_order_with_one_thread_each(two_threads: None) -> None:
    before = torch.get_num_threads()
    found = side_by_side(lambda n: (n, torch.get_num_threads(), threading.current_thread().name), list(range(20)))
    assert [n for n, _, _ in found] == list(range(20))
    assert {threads for _, threads, _ in found} == {1}
    assert threading.current_thread().name not in {name for _, _, name in found}
    assert torch.get_num_threads() == before
    assert side_by_side(abs, []) == []


def test_threads_that_come_later_have_as_many_as_before(two_threads: None) -> None:
    side_by_side(abs, [-1, -2])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2


def test_an_error_side_by_side_is_an_error(two_threads: None) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda n: 1 // n, [2, 1, 0])
    assert torch.get_num_threads() == before


def test_the_next_one_is_foreseen_and_none_after_the_last() -> None:
    made, came = list[int](), threading.Semaphore(0)

    def make(number: int) -> int:
        made.append(number)
        came.release()
        return 10 * number

    get = foreseen(make, 3)
    assert get(0) == 0
    assert all(came.acquire(timeout=60) for _ in range(2)) and made == [0, 1]
    assert get(1) == 10
    assert came.acquire(timeout=60) and made == [0, 1, 2]
    assert get(2) == 20 and get(0) == 0, "another than the next may be asked for"
    assert came.acquire(timeout=60) and made[:4] == [0, 1, 2, 0]
