"""Append triples to a compiled benchmark, or to the graph that a run makes predictions with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import exists, is_folder_of, locked
from fewlink.graph import CompileReport
from fewlink.graph.source import GraphSource
from fewlink.linker import saving
from fewlink.models.checkpoints import load_best
from fewlink.models.folder import DEPLOYED, locked_run
from fewlink.models.run import Deployed, RunConfig, is_run, vectors_of
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.append import AppendReport, append_triples
from fewlink.tasks.benchmark import FORMAT
from fewlink.tasks.catalogue import data_home


@dataclass(frozen=True)
class Appended:
    """The result of `append`: the folder, the benchmark that it now holds, and what was added."""

    place: Path
    benchmark: Benchmark
    growth: AppendReport


def append(
    where: str | Path,
    files: Sequence[Path] | GraphSource,
    *,
    types: Path | None = None,
    names: Path | None = None,
    columns: str | Mapping[str, str | int] | None = None,
    on_error: str = "stop",
    literals: str = "drop",
    report: CompileReport | None = None,
) -> Appended:
    """Append triples to a compiled benchmark, or to the graph that a run makes predictions with.

    Existing ids do not change. A benchmark keeps the fingerprints of its earlier versions, so runs trained on them
    still open. The data that a run was trained and measured on does not change; if its model reads vectors, those of
    new entities are computed from their neighbours. The folder is replaced atomically. `columns`, `on_error` and
    `literals` say how to read the files, as for `compile_graph`.
    """
    place = Path(where)
    source = GraphSource.of(files, types=types, names=names, columns=columns, on_error=on_error, literals=literals)
    if is_run(place):
        saving.check_not_saved(place)
        with locked_run(place), locked(place / DEPLOYED):
            family = RunConfig.read(place).family
            deployed = Deployed.open(place)
            if deployed is None:
                family.check_fold_in(place, load_best(place)[0])
                deployed = Deployed(saving.benchmark_of(place), vectors_of(place))
            benchmark, growth = append_triples(deployed.benchmark, source, report)
            if growth:
                before = deployed.benchmark.graph
                sizes = len(before.entities), len(before.relations)
                Deployed(benchmark, family.fold_in(deployed.vectors, benchmark, *sizes)).save(place)
        return Appended(place, benchmark, growth)
    place = _compiled(where)
    with locked(place):
        benchmark, growth = append_triples(open_benchmark(place), source, report)
        if growth:
            benchmark.save(place)
    return Appended(place, benchmark, growth)


def _compiled(where: str | Path) -> Path:
    """The folder of a compiled benchmark, given its path or the name of a fetched one."""
    place = Path(where) if exists(where) else data_home() / str(where)
    if is_folder_of(place, FORMAT):
        return place
    if not place.exists():
        raise FewlinkError(
            f"'{where}' is neither a run nor a benchmark: make one with fewlink fit or fewlink data carve"
        )
    raise InputError(place, "is neither a run nor a compiled benchmark: compile one with fewlink data carve")
