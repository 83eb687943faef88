"""Help pages without Python's type names: a value is TEXT, NUMBER or PATH, and a switch has none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

VALUE_NAMES = {"int": "NUMBER", "float": "NUMBER", "path": "PATH"}


class PlainCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return name_values(super().get_params(ctx), ctx)


class PlainGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return name_values(super().get_params(ctx), ctx)


def name_values(parameters: list[Any], context: Any) -> list[Any]:
    """Name the values of options that have no `metavar`, and drop the types of arguments, which have names."""
    if not hasattr(TyperOption, "display_type"):  # older versions of typer print no type names of Python
        return parameters
    for parameter in parameters:
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = _no_type  # type: ignore[method-assign]
        elif isinstance(parameter, TyperOption) and parameter.metavar is None:
            type_name = parameter.display_type(context).strip("<>").removeprefix("list[").split()[0].rstrip("]")
            parameter.metavar = "" if parameter.is_flag else VALUE_NAMES.get(type_name, "TEXT")
    return parameters


def _no_type(ctx: Any) -> None:
    return None
