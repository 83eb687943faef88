"""The `fewlink` command. Each command parses, calls one function and shows; heavy imports happen inside commands."""

from __future__ import annotations

import io
import os
import sys

import typer

from fewlink.base import memory
from fewlink.base.errors import FewlinkError, ProcessLost
from fewlink.cli import (
    card,
    data,
    embeddings,
    evaluate,
    fit,
    links,
    models,
    predict,
    pretrain,
    report,
    results,
    serve,
    study,
    train,
    tune,
)

app = typer.Typer(
    name="fewlink",
    help="Complete the long tail of a knowledge graph from a handful of examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(embeddings.app, name="embeddings")
app.command("models")(models.models)
app.command("pretrain")(pretrain.pretrain)
app.command("evaluate")(evaluate.evaluate)
app.command("fit")(fit.fit)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("card")(card.card)
app.command("serve")(serve.serve)
app.command("tune")(tune.tune)
app.command("links")(links.links)
app.command("recipes")(models.recipes)
app.command("results")(results.results)
app.command("study")(study.study)
app.command("report")(report.report)


@app.command()
def version(
    env: bool = typer.Option(False, "--env", help="Also show Python, torch and the machine, to paste into an issue."),
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

        from fewlink.evaluation.records import hardware

        print(f"python {platform.python_version()} on {platform.platform()}")
        print(f"torch {torch.__version__}, numpy {numpy.__version__}")
        print(hardware())


def main() -> None:
    """Run the command; what a user can put right is one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a name shows "?" for it
            stream.reconfigure(errors="replace")
    memory.keep_freed()
    try:
        app()
    except FewlinkError as error:
        # Of several processes with the same error the first tells it; it may be the first that is lost.
        if os.environ.get("RANK", "0") == "0" or isinstance(error, ProcessLost):
            print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
