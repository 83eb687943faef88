"""Values that are made once and kept within a bound of bytes."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor


class Sized(Protocol):
    """A value that tells how much memory it takes."""

    def bytes(self) -> int: ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V", bound=Sized)


class Remembered:
    """Values by key, each made once. Beyond `most_bytes`, those used longest ago are forgotten."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._values: dict[Any, Future[Any]] = {}  # the last used last
        self._lock = threading.Lock()  # nothing is made with it held

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key; if it is not known, `make()`."""
        return self.get_all({key: None}, lambda _: [make()])[key]

    def get_all(self, items: Mapping[K, T], make: Callable[[list[T]], Sequence[V]]) -> dict[K, V]:
        """The values of several keys; `make` gives those of the items that are not known, side by side.

        Threads that ask for a value meanwhile wait.
        """
        with self._lock:
            new = [key for key in items if key not in self._values]
            found = {key: self._values.pop(key) if key in self._values else Future[Any]() for key in items}
            self._values |= found
        if new:
            try:
                for key, value in zip(new, make([items[key] for key in new]), strict=True):
                    found[key].set_result(value)
            except BaseException as error:
                with self._lock:
                    for key in new:
                        self._values.pop(key, None)
                for key in new:
                    if not found[key].done():
                        found[key].set_exception(error)
                raise
            self._forget()
        return {key: value.result() for key, value in found.items()}

    def _forget(self) -> None:
        with self._lock:
            sizes = {key: each.result().bytes() for key, each in self._values.items() if each.done()}
            total = sum(sizes.values())
            for key in list(sizes)[:-1]:
                if total <= self.most_bytes:
                    break
                del self._values[key]
                total -= sizes[key]


def apart(tensor: Tensor) -> Tensor:
    """A copy on the CPU in memory pages of its own, which return to the system as soon as it is freed."""
    if not tensor.nbytes:
        return tensor.clone()
    pages = mmap.mmap(-1, tensor.nbytes)
    return torch.frombuffer(pages, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)
