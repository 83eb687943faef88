"""The `fewlink` command. Each subcommand parses options, calls one function and prints the result.

Subcommands import heavy packages in their bodies, so that help pages appear at once.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from fewlink.cli import bridges, common, data, embeddings, evaluate, predict, project, results, stix, train
from fewlink.cli.help import PlainCommand, PlainGroup
from fewlink.core import memory
from fewlink.core.errors import FewlinkError, shown
from fewlink.core.progress import set_quiet

QUIET_NAMES = ("--quiet", "-q")
QUIET_HELP = "Print results and errors only: no notes and no progress."

# `fewlink --help` lists the commands under these headings, in this order, each in one line of a terminal of 80 columns.
COMMANDS: dict[str, list[tuple[str, Callable[..., Any] | typer.Typer, str]]] = {
    "Look at a graph": [
        ("data", data.app, "Check, fetch, describe and extend graphs and benchmarks."),
        ("check", predict.check, "Find triples that look wrong."),
        ("relations", predict.relations, "Find which relation holds between two entities."),
    ],
    "Find missing links": [
        ("ask", predict.predict, "Rank tails for heads, or heads for tails, from examples."),
        ("complete", predict.complete, "Find all missing links of a relation and write them to a file."),
    ],
    "Decide on them": [
        ("serve", project.serve, "Serve the page for curators and the HTTP interface."),
        ("project", project.app, "List, export, import and undo the decisions of curators."),
        ("mcp", bridges.mcp, "Let an assistant ask a graph (Model Context Protocol)."),
    ],
    "Fit a model to your graph": [
        ("fit", train.fit, "Measure, calibrate and tune TRAIL on a graph in limited time."),
        ("predict", predict.predict, "Ask a trained model; the same command as ask."),
        ("card", train.card, "Write the model card of a run."),
    ],
    "Train and measure models": [
        ("models", train.models, "List the models and their settings."),
        ("recipes", train.recipes, "List the recipes of settings."),
        ("train", train.train, "Train a few-shot model on a benchmark."),
        ("evaluate", evaluate.evaluate, "Measure models on a benchmark and store the results."),
        ("results", results.results, "Show stored results as tables."),
        ("compare", results.compare, "Compare two models query by query."),
        ("report", results.report, "Write all stored results as one HTML page."),
        ("study", results.study, "Repeat a table or figure of the paper."),
    ],
    "Train embeddings": [
        ("pretrain", embeddings.pretrain, "Train embeddings of a benchmark's background graph."),
        ("embeddings", embeddings.app, "Import and export vectors."),
        ("tune", embeddings.tune, "Search the settings of an embedding model."),
        ("links", embeddings.links, "Measure ordinary link prediction with embeddings."),
    ],
}


class InOrder(PlainGroup):
    """Lists commands in the order of the table, where typer would list groups of commands last."""

    def list_commands(self, ctx: Any) -> list[str]:
        listed = [name for commands in COMMANDS.values() for name, _, _ in commands]
        return [*listed, *(name for name in super().list_commands(ctx) if name not in listed)]


app = typer.Typer(
    name="fewlink",
    cls=InOrder,
    help="Complete the long tail of a knowledge graph from a handful of examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# At the first TAB, zsh loads the script and calls nothing in it: without this, it would complete at the second one.
with contextlib.suppress(ImportError, AttributeError, KeyError):  # typer's own table, which may move
    from typer._completion_shared import _completion_scripts

    _completion_scripts["zsh"] += 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then %(complete_func)s "$@"; fi\n'
data.app.command("from-neo4j")(bridges.from_neo4j)
data.app.command("to-neo4j")(bridges.to_neo4j)
data.app.command("to-stix")(stix.to_stix)

for heading, commands in COMMANDS.items():
    for name, command, line in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=line, rich_help_panel=heading)
        else:
            app.command(name, short_help=line, rich_help_panel=heading)(command)


@app.command(rich_help_panel="About fewlink")
def version(
    env: bool = typer.Option(False, "--env", help="Also show Python, torch and the hardware, for bug reports."),
) -> None:
    """Show the version.

    Example: `fewlink version --env`
    """
    import fewlink

    print(f"fewlink {fewlink.__version__}")
    if env:
        import platform

        import numpy
        import torch

        from fewlink.core.memory import hardware

        print(f"python {platform.python_version()} on {platform.platform()}")
        print(f"torch {torch.__version__}, numpy {numpy.__version__}")
        print(hardware())


def _print_version(wanted: bool) -> None:
    if wanted:
        version(env=False)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Show the version."),
    quiet: bool = typer.Option(False, *QUIET_NAMES, help=QUIET_HELP),
) -> None:
    """Complete the long tail of a knowledge graph from a handful of examples."""
    set_quiet(quiet)
    context.call_on_close(functools.partial(set_quiet, False))


def _with_quiet(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--quiet` to a command, so that the option may also follow the command's name."""

    @functools.wraps(command)
    def quietable(*arguments: Any, quiet: bool = False, **options: Any) -> Any:
        if quiet:
            set_quiet(True)
        return command(*arguments, **options)

    option = typer.Option(False, *QUIET_NAMES, help=QUIET_HELP)
    parameter = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=option)
    signature = inspect.signature(command)
    parameters = [*signature.parameters.values(), parameter]
    quietable.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    quietable.__annotations__ = {**command.__annotations__, "quiet": bool}
    return quietable


def _finish(commands: typer.Typer) -> None:
    """Give all commands of a group `--quiet` and plain help pages."""
    for command in commands.registered_commands:
        command.cls = PlainCommand
        if command.callback is not None:
            command.callback = _with_quiet(command.callback)
    for group in commands.registered_groups:
        group.cls = PlainGroup
        if group.typer_instance is not None:
            _finish(group.typer_instance)


_finish(app)


ADVICE = {  # for errors of the operating system that no command handles
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some space, or choose another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or choose another disk",
    errno.EROFS: "choose another folder",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EIO: "check the disk",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


@common.escaped_output()
def main() -> None:
    """Run the command. An error that the user can correct becomes one line on standard error and exit code 2."""
    memory.keep_freed()
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
        if error.errno not in ADVICE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # drop the text that could not be printed
        where = f"{shown(error.filename)}: " if error.filename else ""
        print(f"error: {where}{error.strerror}: {ADVICE[error.errno]}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
