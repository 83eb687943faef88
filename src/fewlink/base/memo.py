"""Derived values that are computed once for each object and stored in it."""

from __future__ import annotations

from collections.abc import Callable
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
