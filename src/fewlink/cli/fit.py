"""`fewlink fit` and `fewlink card`: from a file of triples to a measured, calibrated run with a model card."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import typer

from fewlink.base.metrics import labelled
from fewlink.cli import common
from fewlink.cli.data import NAMES, ON_ERROR, TRIPLES, TYPES

FIGURES = labelled("mrr", "hits@1", "hits@5", "hits@10")


def fit(
    graph: Path = TRIPLES,
    out: Path = typer.Option(..., help="Folder of the run; it holds all that fewlink predict needs."),
    types: Path = TYPES,
    names: Path = NAMES,
    minutes: float = typer.Option(10.0, help="Time limit for everything; training is sized to fit it."),
    seed: int = typer.Option(0, help="Seed of the split and of training."),
    change: list[str] = typer.Option(
        [],
        "--set",
        metavar="NAME=VALUE",
        help="Fix a setting of `fewlink models --model trail-0.1 --settings`, whatever the time limit.",
    ),
    on_error: str = ON_ERROR,
    device: str = common.DEVICE,
    json: bool = common.JSON,
) -> None:
    """Fit TRAIL to your own graph: carve tasks, train, evaluate, calibrate and write the model card, in limited time.

    If it was stopped, the same command continues. Figures are measured with the dev and test relations hidden;
    predictions use the whole graph.

    Example: `fewlink fit my-graph.tsv --out runs/mine`, then `fewlink predict runs/mine --reference 'A => B' --head C`
    """
    from fewlink.pipeline.fit import fit as run

    common.check_changes(change)
    try:
        fitted = run(
            graph,
            out,
            types=types,
            names=names,
            minutes=minutes,
            seed=seed,
            change=change,
            on_error=on_error,
            device=common.resolve_device(device),
            tell=common.print_progress,
        )
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        common.print_json({**dataclasses.asdict(fitted), "run": str(fitted.run), "card": str(fitted.card)})
        return
    rows = [[*key.split(), *(row[name] for name in FIGURES.values())] for key, row in fitted.figures.items()]
    title = f"{fitted.run}, {fitted.seconds / 60:.1f} minutes"
    common.print_table(["split", "candidates", *FIGURES], rows, title=title)
    print(f"model card: {fitted.card}")
    print(f"next: fewlink predict {fitted.run} --reference 'HEAD => TAIL' --head NAME --explain")


def card(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder made by fewlink train."),
    test: bool = typer.Option(False, "--test", help="Also evaluate on test: once, after everything is chosen."),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
) -> None:
    """Write a run's model card, README.md: data, figures, calibration, how to use it, limits.

    If the run's best weights are not calibrated yet, probabilities are calibrated on dev first.

    Example: `fewlink card runs/umls-trail`
    """
    from fewlink.prediction import load, write_card

    linker = load(run, bench=bench, device=common.resolve_device(device))
    path = write_card(linker, test=test)
    assert linker.calibration is not None
    print(f"{path}  (calibration error {linker.calibration.error:.3f})")
