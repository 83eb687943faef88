"""Look up a name in a table; the error for an unknown name suggests the nearest ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from fewlink.base.errors import UnknownName

T = TypeVar("T")


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """`table[name]`. Raises if the name is unknown, listing the choices."""
    if name in table:
        return table[name]
    raise UnknownName(f"unknown {what} '{name}'{did_you_mean(name, table) or '.'} Choices: {', '.join(table)}")


def did_you_mean(name: str, names: Iterable[str], count: int = 3) -> str:
    """`; did you mean 'a' or 'b'?`, or an empty text if no name is near."""
    near = difflib.get_close_matches(name, list(names), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
