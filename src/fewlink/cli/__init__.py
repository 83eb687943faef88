"""The `fewlink` command. Each subcommand parses options, calls one function and prints the result.

Subcommands import heavy packages in their bodies, so that help pages appear at once.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fewlink.cli import options, terminal
from fewlink.core import machine
from fewlink.core.errors import FewlinkError, shown
from fewlink.core.progress import set_quiet

# `fewlink --help` lists the commands under these headings, in this order, each in one line of a terminal of 80 columns.
# A command is a function of a module of this package, or a group of commands.
COMMANDS: dict[str, list[tuple[str, str, str]]] = {
    "Look at a graph": [
        ("data", "data.app", "Check, fetch, describe and extend graphs and benchmarks."),
        ("check", "ask.check", "Find triples that look wrong."),
        ("relations", "ask.relations", "Find which relation holds between two entities."),
    ],
    "Find missing links": [
        ("ask", "ask.ask", "Rank tails for heads, or heads for tails, from examples."),
        ("complete", "ask.complete", "Find all missing links of a relation and write them to a file."),
    ],
    "Decide on them": [
        ("serve", "serve.serve", "Serve the page for curators and the HTTP interface."),
        ("project", "project.app", "List, export, import and undo the decisions of curators."),
        ("mcp", "serve.mcp", "Let an assistant ask a graph (Model Context Protocol)."),
    ],
    "Train and measure models": [
        ("fit", "train.fit", "Measure, calibrate and tune TRAIL on a graph in limited time."),
        ("models", "train.models", "List the models, their settings and recipes."),
        ("train", "train.train", "Train a model on a benchmark."),
        ("evaluate", "evaluate.evaluate", "Measure models on a benchmark and store the results."),
        ("compare", "evaluate.compare", "Compare two models query by query."),
    ],
}


class PlainHelp:
    """Help pages that name the values of options, and no types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            value = parameter.metavar if parameter.param_type_name == "option" else None
            parameter.display_type_rich = functools.partial(_value_name, value)
        return parameters


def _value_name(value: str | None, ctx: Any) -> str | None:
    return value


class PlainCommand(PlainHelp, TyperCommand):
    """A command."""


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands."""


class ImportedCommands(PlainGroup):
    """The commands of the table in its order. The module of a command is imported when the command is needed."""

    def __init__(self, **settings: Any) -> None:
        names = [name for commands in COMMANDS.values() for name, _, _ in commands]
        super().__init__(**{**settings, "commands": dict.fromkeys(names)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return imported_command(cmd_name) if cmd_name in self.commands else None


@functools.cache
def imported_command(name: str) -> Any:
    """A command of the table, with the options that all commands have."""
    for heading, commands in COMMANDS.items():
        for listed, place, line in commands:
            if listed == name:
                module, attribute = place.split(".")
                command = getattr(importlib.import_module(f"fewlink.cli.{module}"), attribute)
                return made_command(name, command, {"short_help": line, "rich_help_panel": heading})
    raise KeyError(name)


def made_command(name: str, command: Callable[..., Any] | typer.Typer, shown_as: dict[str, Any]) -> Any:
    """What typer makes of a function, or of a group of functions."""
    parent = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    if isinstance(command, typer.Typer):
        for registered in command.registered_commands:
            assert registered.callback is not None
            registered.callback = options.with_groups(registered.callback)
            registered.cls = PlainCommand
        parent.add_typer(command, name=name, cls=PlainGroup, **shown_as)
    else:
        parent.command(name, cls=PlainCommand, **shown_as)(options.with_groups(command))
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    name="fewlink",
    cls=ImportedCommands,
    help="Complete the long tail of a knowledge graph from a handful of examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    """Print the versions that a report of a bug needs."""
    if wanted:
        import platform
        from importlib.metadata import version

        import fewlink

        print(f"fewlink {fewlink.__version__} (Python {platform.python_version()}, torch {version('torch')})")
        raise typer.Exit


@app.callback()
def common_options(
    context: typer.Context,
    _: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Show the version."),
    quiet: bool = options.QUIET,
) -> None:
    """Complete the long tail of a knowledge graph from a handful of examples."""
    set_quiet(quiet)
    context.call_on_close(functools.partial(set_quiet, False))


@terminal.escaped_output()
def main() -> None:
    """Run the command. An error that the user can correct becomes one line on standard error and exit code 2."""
    machine.keep_freed()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # Python would report a failure at exit with a traceback
    except FewlinkError as error:
        rank = os.environ.get("RANK", "0")  # set by torchrun
        print(f"error: {error}" if rank == "0" else f"error in process {rank}: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            sys.exit(0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # drop the text that could not be printed
        where = f"{shown(error.filename)}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped: complete, fit and train continue if they are repeated", file=sys.stderr)
        sys.exit(130)
