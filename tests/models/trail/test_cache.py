"""Values that are made once and forgotten when they take too many bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fewlink.models.trail.cache import Remembered, apart


class Text(str):
    """A value that takes a byte for each letter."""

    def bytes(self) -> int:
        return len(self)


def test_the_values_used_longest_ago_are_forgotten() -> None:
    made: list[bytes] = []
    values = Remembered(10)

    def get(key: bytes, size: int) -> Text:
        return values.get(key, lambda: made.append(key) or Text("x" * size))

    for key in (b"a", b"b", b"a", b"c", b"a", b"b"):
        get(key, 4)
    assert made == [b"a", b"b", b"c", b"b"]
    assert len(get(b"large", 100)) == 100  # the last one is kept, whatever its size


def test_a_value_that_several_threads_ask_for_is_made_once() -> None:
    gate, began, made = threading.Event(), threading.Event(), []
    values = Remembered(10)

    def make() -> str:
        made.append(1)
        began.set()
        assert gate.wait(20)
        return Text("value")

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(values.get, b"key", make) for _ in range(4)]
        assert began.wait(20)
        assert values.get(b"other", lambda: Text("other")) == "other"  # does not wait
        gate.set()
        assert [each.result(20) for each in asked] == ["value"] * 4 and len(made) == 1


def test_what_could_not_be_made_is_asked_for_again() -> None:
    values = Remembered(10)
    with pytest.raises(ZeroDivisionError):
        values.get(b"key", lambda: Text(1 / 0))
    assert values.get(b"key", lambda: Text("value")) == "value"


@pytest.mark.parametrize("shape", [(3, 5), (2, 0, 4), ()])
def test_a_tensor_apart_is_an_equal_copy(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    copy = apart(tensor)
    assert torch.equal(copy, tensor) and copy.shape == tensor.shape
    copy.zero_()
    assert not tensor.numel() or tensor.any()
    assert torch.equal(apart(torch.arange(6).view(2, 3).T), torch.arange(6).view(2, 3).T)


def test_the_pages_of_a_tensor_apart_go_back_with_it() -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * 4096

    size = 1 << 28
    before, copy = mapped(), apart(torch.zeros(1).expand(size // 4))
    assert mapped() - before >= size
    del copy
    assert mapped() - before < size // 2
