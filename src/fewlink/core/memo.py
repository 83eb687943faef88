"""Values that are computed or loaded once: those derived from an object, and the public names of a package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
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
