"""Prefetching, a parallel map, and distinct values."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from fewlink.core.threads import distinct, parallel_map, prefetch


def test_prefetched_items_come_in_order() -> None:
    assert list(prefetch(iter(range(1, 6)))) == [1, 2, 3, 4, 5]


def test_a_parallel_map_keeps_the_order_and_uses_one_torch_thread_each(two_threads: None) -> None:
    before = torch.get_num_threads()
    results = parallel_map(lambda n: (n, torch.get_num_threads(), threading.current_thread().name), list(range(20)))
    assert [n for n, _, _ in results] == list(range(20))
    assert {threads for _, threads, _ in results} == {1}
    assert threading.current_thread().name not in {name for _, _, name in results}
    assert torch.get_num_threads() == before
    assert parallel_map(abs, []) == []


def test_an_error_in_a_parallel_map_is_raised(two_threads: None) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        parallel_map(lambda n: 1 // n, [2, 1, 0])
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("values", [[], [3], [2, 2, 2], [5, -1, 5, 0, -1]])
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    array = np.array(values, np.int32)
    assert distinct(array).tolist() == np.unique(array).tolist() and distinct(array).dtype == np.int32
