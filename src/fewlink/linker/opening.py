"""Open a model for queries, by a run folder or a graph; calibrate a run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fewlink.core.errors import FewlinkError
from fewlink.linker import pretrained, query
from fewlink.linker.calibration import TOP, Calibration, calibrate_on_dev
from fewlink.linker.linker import Linker


def load(
    source: str | Path,
    *,
    bench: str | Path | None = None,
    types: str | Path | None = None,
    names: str | Path | Literal[False] | None = None,
    device: str = "cpu",
    text_model: str | Path | None = None,
    descriptions: str | Path | None = None,
) -> Linker:
    """A trained model ready for queries: a run folder, a folder of `save_pretrained`, or `hub:owner/name[@revision]`.

    For a file of triples, a compiled graph or a benchmark, the weights that come with fewlink: nothing is trained.
    `bench`: the benchmark of a run, if it has moved; `types` and `names`: files of entity types and readable names that
    describe a file of triples. The names of entities are evidence unless `names=False`; `text_model` is the folder of a
    sentence-transformers or model2vec model whose vectors of the names count too; it also reads the file of
    `descriptions`, an id, a tab and a text per line.
    """
    used, names = names is not False, names or None
    if pretrained.is_model(source):
        if any(each is not None for each in (types, names, text_model, descriptions)):
            raise FewlinkError(f"types, names and text models are for graphs, and {source} is a trained model")
        return Linker.load(source, bench=bench, device=device, names=used)
    if bench is not None:
        raise FewlinkError(f"bench is the benchmark of a trained model, and {source} is none")
    graph = pretrained.graph_of(source, types, names)
    return Linker.shipped(graph, device=device, names=used, text_model=text_model, descriptions=descriptions)


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
