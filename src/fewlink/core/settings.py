"""Base class of settings: validation, conversion to and from dictionaries, and changes as `name=value`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fewlink.core.errors import FewlinkError, choose

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object

KINDS: dict[str, tuple[Any, str]] = {
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "a name"),
    "bool": (bool, "true or false"),
}
DEVICES = "cpu, cuda or cuda:N"


def is_device(name: str) -> bool:
    """Whether this is a valid device name; the machine need not have the device."""
    return re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]*))?", name) is not None


class Settings(DataclassInstance):
    """Base of frozen dataclasses with int, float, str or bool fields; call `check` in __post_init__."""

    CHOICES: ClassVar[Mapping[str, Iterable[str]]] = {}
    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ()
    POSITIVE: ClassVar[tuple[str, ...]] = ()
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Raises if a value has the wrong type or is outside its declared limits."""
        for field in dataclasses.fields(self):
            kind, allowed = KINDS[str(field.type)]
            value = getattr(self, field.name)
            self.require(field.name, isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), allowed)
        for name, choices in self.CHOICES.items():
            choose(name, getattr(self, name), dict.fromkeys(choices))
        for name in self.AT_LEAST_ONE:
            self.require(name, getattr(self, name) >= 1, "at least 1")
        for name in self.POSITIVE:
            self.require(name, 0 < getattr(self, name) < math.inf, "a finite number over 0")
        for name in self.NOT_NEGATIVE:
            self.require(name, 0 <= getattr(self, name) < math.inf, "a finite number, 0 or more")
        if isinstance(device := getattr(self, "device", None), str):
            self.require("device", is_device(device), DEVICES)

    def require(self, field: str, holds: bool, allowed: str) -> None:
        """Raises unless a condition of a field holds; `allowed` says in words which values it may have."""
        if not holds:
            raise FewlinkError(f"{field} is {getattr(self, field)!r}: it must be {allowed}")

    def as_dict(self) -> dict[str, Any]:
        """The values by the names of the settings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings with these values and else the defaults; raises if a name is no setting."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in values:
            choose("setting", name, known)
        return cls(**values)

    def adjusted(self, changes: Iterable[str]) -> Self:
        """A copy with `name=value` changes, each value parsed as the type of its setting."""
        values: dict[str, Any] = {}
        kinds = {field.name: str(field.type) for field in dataclasses.fields(self)}
        for change in changes:
            name, equals, text = change.partition("=")
            if not equals:
                raise FewlinkError(f"'{change}' is not of the form name=value")
            values[name] = _read(name, text, choose("setting", name, kinds))
        return dataclasses.replace(self, **values)


def _read(name: str, text: str, kind: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError):
        raise FewlinkError(f"{name} is '{text}': it must be of type {kind}") from None
