"""Values that are computed or loaded on first use: what is derived from an object, the names of a package, and what was
found out about a file, which is remembered in the user's cache folder."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Memo:
    """Base class of objects that store what was derived from them; copies and pickles leave it out."""

    def once(self, make: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`make(self, *args)`, computed once for each function and arguments: `graph.once(degree_table)`."""
        derived: dict[Any, Any] = self.__dict__.setdefault("_derived", {})
        key = (make, args, tuple(kwargs.items()))
        if key not in derived:
            derived[key] = make(self, *args, **kwargs)
        return derived[key]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that loads its public names on first use; `homes` are their modules in it."""

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return load


def cache_home() -> Path:
    """The folder of what can be made again: in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewlink"


def is_remembered(key: str, value: str) -> bool:
    """Whether `remember` was called with this key and value last."""
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        return _memory_of(key).read_bytes() == value.encode()
    return False


def remember(key: str, value: str) -> None:
    """Keep a value for `is_remembered`, where this is possible. A part of it, after a kill, is no value."""
    with suppress(OSError, RuntimeError):
        memory = _memory_of(key)
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_bytes(value.encode())


def _memory_of(key: str) -> Path:
    return cache_home() / "checked" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
