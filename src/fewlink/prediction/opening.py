"""Open a model for queries, by a run folder or a graph; calibrate a run."""

from __future__ import annotations

from pathlib import Path

from fewlink.base.errors import FewlinkError
from fewlink.prediction import pretrained, query
from fewlink.prediction.calibration import TOP, Calibration, calibrate_on_dev
from fewlink.prediction.linker import Linker


def load(
    source: str | Path,
    *,
    bench: str | Path | None = None,
    types: str | Path | None = None,
    names: str | Path | None = None,
    device: str = "cpu",
) -> Linker:
    """A trained model ready for queries: a run folder, a folder of `save_pretrained`, or `hub:owner/name`.

    For a file of triples, a compiled graph or a benchmark, the weights that come with fewlink: nothing is trained.
    `bench`: the benchmark of a run, if it has moved; `types` and `names`: files of entity types and readable names that
    describe a file of triples.
    """
    if pretrained.is_model(source):
        if types is not None or names is not None:
            raise FewlinkError(f"types and names describe a file of triples, and {source} is a trained model")
        return Linker.load(source, bench=bench, device=device)
    if bench is not None:
        raise FewlinkError(f"bench is the benchmark of a trained model, and {source} is none")
    return Linker.shipped(pretrained.graph_of(source, types, names), device=device)


def calibrate(
    run: str | Path | Linker,
    *,
    bench: str | Path | None = None,
    device: str = "cpu",
    shots: int | None = None,
    top: int = TOP,
) -> Calibration:
    """Calibrate a run on dev and write `calibration.json` into its folder; an opened linker uses it from then on."""
    given = run if isinstance(run, Linker) else Linker.load(run, bench=bench, device=device, as_measured=True)
    linker = given.as_measured()
    if linker.run is not None:
        pretrained.check_not_saved(linker.run)
    shots, top = linker.shots if shots is None else query.check_count(shots, "shots"), query.check_count(top, "top")
    calibration = calibrate_on_dev(linker.benchmark, linker.scorer, shots, top, linker.step)
    given.calibration = linker.calibration = calibration
    if linker.run is not None:
        calibration.save(linker.run)
    return calibration
