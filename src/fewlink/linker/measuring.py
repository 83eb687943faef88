"""Measure a run: calibrate its probabilities and write its model card."""

from __future__ import annotations

from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.storage import locked_inside, write_bytes
from fewlink.evaluation import Evaluation, Protocol, evaluate
from fewlink.graph import Graph
from fewlink.linker.calibration import TOP, Calibration, calibrate_on_dev
from fewlink.linker.card import CARD, fit_record, measured_card
from fewlink.linker.linker import Linker
from fewlink.linker.query import check_count
from fewlink.linker.saving import check_not_saved
from fewlink.training import RunConfig
from fewlink.training.run import Deployed

PROTOCOLS = ("full", "open")


def calibrate(
    run: str | Path | Linker,
    *,
    bench: str | Path | None = None,
    device: str = "cpu",
    shots: int | None = None,
    top: int = TOP,
) -> Calibration:
    """Calibrate a run on dev and write `calibration.json` into its folder; an opened linker uses it from then on."""
    opened = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    linker = opened.as_measured()
    if linker.run is not None:
        check_not_saved(linker.run)
    shots = linker.shots if shots is None else check_count(shots, "shots")
    calibration = calibrate_on_dev(linker.benchmark, linker.scorer, shots, check_count(top, "top"), linker.step)
    opened.calibration = linker.calibration = calibration
    if linker.run is not None:
        calibration.save(linker.run)
    return calibration


def write_card(
    run: str | Path | Linker, *, test: bool = False, bench: str | Path | None = None, device: str = "cpu"
) -> Path:
    """Measure a run on dev, and on test if `test`, calibrate it if necessary, and write `README.md` into its folder."""
    linker = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    return measure_and_write(linker, test=test)[0]


def measure_and_write(
    linker: Linker, *, test: bool = False, graph: Graph | None = None
) -> tuple[Path, list[Evaluation]]:
    """Write the card of an opened run; return its path and the evaluations in it.

    Test is measured if `test`, or if a fit measured it. `graph` is the graph that the run makes predictions with; by
    default it is read from the run's folder.
    """
    run = linker.run
    if run is None:
        raise FewlinkError(f"{linker.scorer.name} was not opened from a run: only a trained run has a card")
    check_not_saved(run)
    if graph is None and linker.benchmark is not linker.measured:
        graph = linker.graph
    elif graph is None and (deployed := Deployed.open(run)):
        graph = deployed.benchmark.graph
    opened, linker = linker, linker.as_measured()
    opened.calibration = calibration = linker.calibration or calibrate(linker)
    if any(name.startswith("test ") for name in fit_record(run).get("figures", {})):
        test = True
    splits = ["dev", "test"] if test and linker.benchmark.split("test") else ["dev"]
    config = RunConfig.read(run)
    for split in splits:
        config.check_unseen(run, linker.benchmark, split)
    evaluations = [
        evaluate(linker.benchmark, linker.scorer, Protocol(split, linker.shots, candidates))
        for split in splits
        for candidates in PROTOCOLS
    ]
    text = measured_card(run, linker.benchmark, linker.shots, linker.step, calibration, evaluations, graph)
    with locked_inside(run):
        write_bytes(run / CARD, text.encode())
    return run / CARD, evaluations
