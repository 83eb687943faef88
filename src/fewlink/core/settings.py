"""The base class of settings: frozen, strictly typed pydantic models that can be changed by `name=value`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from fewlink.core.errors import FewlinkError, choose
from fewlink.core.machine import DEVICES, is_device


def _check_device(name: str) -> str:
    if not is_device(name):
        raise ValueError(f"it must be {DEVICES}")
    return name


Seed = Annotated[int, Field(description="random seed")]
Device = Annotated[str, AfterValidator(_check_device), Field(description=DEVICES)]


class Settings(BaseModel):
    """Settings by name. A value of the wrong type or range raises a FewlinkError that names the setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _first_error(error, type(self)) from None

    def as_dict(self) -> dict[str, Any]:
        """The values of all settings, by name."""
        return self.model_dump()

    def replace(self, **changes: Any) -> Self:
        """A copy with some values changed."""
        return type(self)(**{**self.as_dict(), **changes})

    def adjusted(self, changes: Iterable[str]) -> Self:
        """A copy with changes of the form `name=value`."""
        values: dict[str, Any] = {}
        for change in changes:
            name, equals, text = change.partition("=")
            if not equals:
                raise FewlinkError(f"'{change}' is not a change of a setting: write name=value")
            kind = choose("setting", name, type(self).model_fields).annotation
            values[name] = _parsed(name, text, kind) if kind in (int, float, bool) else text
        return self.replace(**values)


def _parsed(name: str, text: str, kind: Any) -> Any:
    """Parse a number or a truth value."""
    try:
        return TypeAdapter(kind).validate_strings(text)
    except ValidationError as error:
        raise FewlinkError(f"{name} is '{text}': {_reason(error.errors()[0])}") from None


def _first_error(error: ValidationError, kind: type[Settings]) -> FewlinkError:
    """The first validation error as a FewlinkError. A misspelt name or choice raises one with suggestions instead."""
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    value = problem["input"]
    if problem["type"] == "extra_forbidden":
        choose("setting", name, kind.model_fields)
    if problem["type"] == "literal_error" and isinstance(value, str):
        choose(name, value, dict.fromkeys(get_args(kind.model_fields[name].annotation)))
    return FewlinkError(f"{name} is {value!r}: {_reason(problem)}")


def _reason(problem: ErrorDetails) -> str:
    raised = problem.get("ctx", {}).get("error")  # an exception of a field validator
    return str(raised) if raised else problem["msg"].partition(",")[0].replace("Input should be", "it must be")
