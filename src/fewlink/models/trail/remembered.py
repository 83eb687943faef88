"""Values that several threads ask for: each is made once, and as many are kept as a limit of bytes allows."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

import torch
from torch import Tensor

V = TypeVar("V")


class Remembered(Generic[V]):
    """Values by key. Of more than `most_bytes`, as `size` counts them, those used longest ago are forgotten."""

    def __init__(self, most_bytes: int, size: Callable[[V], int]) -> None:
        self.most_bytes = most_bytes
        self.size = size
        self._values: dict[bytes, Future[V]] = {}  # the last used last
        self._lock = threading.Lock()  # nothing is made with it held

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes, make: Callable[[], V]) -> V:
        """The value of a key; if it is not known, `make()`. Threads that ask for it meanwhile wait."""
        with self._lock:
            known = self._values.pop(key, None)
            value = self._values[key] = Future() if known is None else known
        if known is None:
            try:
                value.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._values.pop(key, None)
                value.set_exception(error)
                raise
            self._forget()
        return value.result()

    def _forget(self) -> None:
        with self._lock:
            sizes = {key: self.size(each.result()) for key, each in self._values.items() if each.done()}
            for key in list(sizes)[:-1]:
                if sum(sizes.values()) <= self.most_bytes:
                    break
                del self._values[key], sizes[key]


def apart(tensor: Tensor) -> Tensor:
    """A copy on the CPU in pages of its own: freed, they go back to the system and leave no gap between others."""
    if not tensor.nbytes:
        return tensor.clone()
    pages = mmap.mmap(-1, tensor.nbytes)
    return torch.frombuffer(pages, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)
