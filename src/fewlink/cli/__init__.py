"""The `fewlink` command. Each command parses options, calls one function and prints; heavy imports are in commands."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import typer

from fewlink.cli import bridges, common, data, embeddings, evaluate, predict, project, results, stix, train, verify
from fewlink.core import memory
from fewlink.core.errors import FewlinkError, shown
from fewlink.core.progress import set_quiet

QUIET, HELP = ("--quiet", "-q"), "Print results and errors only: no notes and no progress."

app = typer.Typer(
    name="fewlink",
    help="Complete the long tail of a knowledge graph from a handful of examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ask", short_help="Rank tails on any graph of triples, from a handful of references, without training.")(
    predict.predict
)
app.command("fit")(train.fit)
app.command("predict")(predict.predict)
app.command("complete")(predict.complete)
app.command("relations")(predict.relations)
app.command("check")(predict.check)
app.command("serve")(project.serve)
app.command("mcp")(bridges.mcp)
data.app.command("from-neo4j")(bridges.from_neo4j)
data.app.command("to-neo4j")(bridges.to_neo4j)
app.add_typer(project.app, name="project")
app.add_typer(data.app, name="data")
app.command("evaluate")(evaluate.evaluate)
app.command("results")(results.results)
app.command("compare")(results.compare)
app.command("report")(results.report)
app.command("models")(train.models)
app.command("recipes")(train.recipes)
app.command("train")(train.train)
app.command("card")(train.card)
app.command("pretrain")(embeddings.pretrain)
app.command("tune")(embeddings.tune)
app.command("links")(embeddings.links)
app.add_typer(embeddings.app, name="embeddings")
app.command("study")(results.study)
app.command("verify")(verify.verify)
data.app.command("to-stix")(stix.to_stix)


@app.command()
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


def _print_version(given: bool) -> None:
    if given:
        version(env=False)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Show the version."),
    quiet: bool = typer.Option(False, *QUIET, help=HELP),
) -> None:
    """Complete the long tail of a knowledge graph from a handful of examples."""
    set_quiet(quiet)
    context.call_on_close(functools.partial(set_quiet, False))


def _quietable(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the option `--quiet`, which may then stand after its name too."""

    @functools.wraps(command)
    def with_option(*arguments: Any, quiet: bool = False, **options: Any) -> Any:
        if quiet:
            set_quiet(True)
        return command(*arguments, **options)

    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=typer.Option(False, *QUIET, help=HELP))
    own = inspect.signature(command)
    with_option.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
    with_option.__annotations__ = {**command.__annotations__, "quiet": bool}
    return with_option


def _accept_quiet(commands: typer.Typer) -> None:
    for info in commands.registered_commands:
        if info.callback is not None:
            info.callback = _quietable(info.callback)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _accept_quiet(group.typer_instance)


_accept_quiet(app)


ADVICE = {  # for errors of the operating system that no command has foreseen
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some space, or choose another disk",
    errno.EFBIG: "files of this size are not allowed here (ulimit -f), choose another disk",
    errno.EROFS: "choose another place",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EIO: "the disk reports a failure",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


@common.escaped_output()
def main() -> None:
    """Run the command; an error that the user can correct is printed in one line, with exit code 2."""
    memory.keep_freed()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here rather than at the end of the process, where an error could not be told
    except FewlinkError as error:
        rank = os.environ.get("RANK", "0")  # of a process of torchrun
        print(f"error: {error}" if rank == "0" else f"error in process {rank}: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            sys.exit(0)
        if error.errno not in ADVICE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be printed is not tried again
        where = f"{shown(error.filename)}: " if error.filename else ""
        print(f"error: {where}{error.strerror}: {ADVICE[error.errno]}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
