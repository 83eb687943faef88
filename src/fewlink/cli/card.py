"""`fewlink card`: measure and calibrate a run, and write its model card."""

from __future__ import annotations

from pathlib import Path

import typer


def card(
    run: Path = typer.Argument(..., metavar="RUN", help="A run of fewlink train."),
    test: bool = typer.Option(False, "--test", help="Measure test too: once, when everything is chosen."),
    bench: str = typer.Option(None, help="Where the run's benchmark is, if it is not where it was."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
) -> None:
    """Write the model card README.md into a run's folder: data, figures, calibration, how to use it, limits.

    Probabilities are calibrated on dev first, where the run's best weights have none yet.

    Example: `fewlink card runs/umls-trail`
    """
    from fewlink.cli.training import working_device
    from fewlink.prediction import load, write_card

    linker = load(run, bench=bench, device=working_device(device))
    path = write_card(linker, test=test)
    assert linker.calibration is not None
    print(f"{path}  (calibration error {linker.calibration.error:.3f})")
