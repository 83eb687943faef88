"""`fewlink fit`: from a file of triples to a run that answers questions."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import typer

from fewlink.base.metrics import labelled
from fewlink.cli.data import NAMES, ON_ERROR, TYPES

FIGURES = labelled("mrr", "hits@1", "hits@5", "hits@10")


def fit(
    graph: Path = typer.Argument(
        ..., metavar="FILE", help="Triples: TSV, CSV, N-Triples or Parquet, plain or compressed."
    ),
    out: Path = typer.Option(..., help="Folder of the run; it holds all that fewlink predict needs."),
    types: Path = TYPES,
    names: Path = NAMES,
    minutes: float = typer.Option(10.0, help="Time for all of it; what is trained is chosen to fit."),
    seed: int = typer.Option(0, help="Seed of the split and of training."),
    change: list[str] = typer.Option(
        [],
        "--set",
        metavar="NAME=VALUE",
        help="Set one of `fewlink models --model trail --settings`, whatever the time.",
    ),
    on_error: str = ON_ERROR,
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """Fit TRAIL to your own graph: carve tasks, train, measure, calibrate and write the card, within a time.

    A fit that was stopped continues when the same command is given again. Figures are measured with the dev and test
    relations hidden; predictions are made with the whole graph.

    Example: `fewlink fit my-graph.tsv --out runs/mine`, then `fewlink predict runs/mine --reference 'A => B' --head C`
    """
    from fewlink.cli import show
    from fewlink.cli.training import refuse_own, working_device
    from fewlink.pipeline.fit import fit as make

    refuse_own(change)
    try:
        fitted = make(
            graph,
            out,
            types=types,
            names=names,
            minutes=minutes,
            seed=seed,
            change=change,
            on_error=on_error,
            device=working_device(device),
            tell=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        told = dataclasses.asdict(fitted)
        show.as_json({**told, "run": str(fitted.run), "card": str(fitted.card)})
        return
    rows = [[*key.split(), *(row[name] for name in FIGURES.values())] for key, row in fitted.figures.items()]
    show.table(["split", "candidates", *FIGURES], rows, title=f"{fitted.run}, {fitted.seconds / 60:.1f} minutes")
    print(f"the card is {fitted.card}")
    print(f"ask it: fewlink predict {fitted.run} --reference 'HEAD => TAIL' --head NAME --explain")
