"""Measure a run: calibrate its probabilities and write its model card."""

from __future__ import annotations

from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.files import write_bytes
from fewlink.evaluation import Protocol, evaluate
from fewlink.linker.calibration import TOP, Calibration, calibrate_on_dev
from fewlink.linker.card import CARD, fit_record, measured_card
from fewlink.linker.linker import Linker
from fewlink.linker.query import check_count
from fewlink.linker.saving import check_not_saved
from fewlink.models.run import Deployed, RunConfig

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
    """Measure a run on dev, and on test if `test`, calibrate it if necessary, and write `README.md` into its folder.

    The card of a fit has the figures that the fit measured, and no others.
    """
    opened = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    folder = opened.run
    if folder is None:
        raise FewlinkError(f"{opened.scorer.name} was not opened from a run: only a trained run has a card")
    check_not_saved(folder)
    graph = None
    if opened.benchmark is not opened.measured:
        graph = opened.graph
    elif deployed := Deployed.open(folder):
        graph = deployed.benchmark.graph
    linker = opened.as_measured()
    opened.calibration = calibration = linker.calibration or calibrate(linker)
    splits = [] if fit_record(folder) else ["dev", "test"] if test and linker.benchmark.split("test") else ["dev"]
    config = RunConfig.read(folder)
    for split in splits:
        config.check_unseen(folder, linker.benchmark, split)
    evaluations = [
        evaluate(linker.benchmark, linker.scorer, Protocol(split, linker.shots, candidates))
        for split in splits
        for candidates in PROTOCOLS
    ]
    text = measured_card(folder, linker.benchmark, linker.shots, linker.step, calibration, evaluations, graph)
    write_bytes(folder / CARD, text.encode())
    return folder / CARD
