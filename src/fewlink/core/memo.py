"""Values that are computed or loaded once: those derived from an object, the public names of a package, and facts about
files, which are stored in the user's cache folder."""

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
    """Base class of objects that cache values derived from them. Copies and pickles leave the cache out."""

    def once(self, make: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `make(self, *args)`, computed once per function and arguments: `graph.once(degree_table)`."""
        derived: dict[Any, Any] = self.__dict__.setdefault("_derived", {})
        key = (make, args, tuple(kwargs.items()))
        if key not in derived:
            derived[key] = make(self, *args, **kwargs)
        return derived[key]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package that imports each public name on first use; `homes` maps names to modules."""

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return load


def cache_home() -> Path:
    """fewlink's folder in the user's cache folder. Everything in it can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewlink"


def is_remembered(key: str, value: str) -> bool:
    """Whether this is the value that `remember` last stored under the key."""
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        return _cache_file(key).read_bytes() == value.encode()
    return False


def remember(key: str, value: str) -> None:
    """Store a value for `is_remembered`, unless the cache cannot be written. A truncated file never matches."""
    with suppress(OSError, RuntimeError):
        file = _cache_file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value.encode())


def _cache_file(key: str) -> Path:
    return cache_home() / "checked" / hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
