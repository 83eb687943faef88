"""Training by name: from a benchmark or a file of triples to a trained run, vectors included."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.core.progress import tell
from fewlink.core.recipes import PER_RUN_SETTINGS, Vectors
from fewlink.core.storage import exists
from fewlink.data import Benchmark, open_benchmark
from fewlink.data.carving import carve_any
from fewlink.data.catalogue import is_benchmark
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.models import trained_family, training_recipe
from fewlink.models.family import PretrainedVectors, Reporter, TrainedFamily
from fewlink.models.settings import ModelSettings
from fewlink.training.checkpoints import BENCHMARK, begun
from fewlink.training.run import EMBEDDINGS, RunConfig, benchmark_of, check_folder, check_may_train, is_run
from fewlink.training.trainer import Event, RunResult, check, train_runs

Source = Benchmark | str | Path


def train(
    benchmark: Source | Sequence[Source],
    model: str | None = None,
    *,
    out: Path | str,
    vectors: PretrainedVectors | Path | str | None = None,
    recipe: str | None = None,
    settings: ModelSettings | None = None,
    change: Iterable[str] = (),
    seed: int | None = None,
    device: str | None = None,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Train a model into a run folder; the same call continues an interrupted run.

    benchmark  a benchmark, the name or folder of one, or a file of triples, which is carved into one. A model that
               learns from several graphs takes several: dev is that of the first, and the known graphs of the others
               (all triples of a file) are learnt from too
    model      by default that of the recipe or the settings, or TRAIL
    vectors    pretrained vectors or their folder; by default they are trained into OUT-vectors as the recipe says
    settings   by default those of `recipe`, or of the model's own recipe
    change     changes of the settings, each as NAME=VALUE; `seed` and `device` are arguments of their own
    on_epoch   makes a reporter from the title of each table of vectors that is pretrained
    on_event   receives the events of `train_runs`
    """
    seeds = None if seed is None else [seed]
    results = train_seeds(
        benchmark,
        model,
        out=out,
        vectors=vectors,
        recipe=recipe,
        settings=settings,
        change=change,
        seeds=seeds,
        device=device,
        on_epoch=on_epoch,
        on_event=on_event,
    )
    return results[0]


def train_seeds(
    benchmark: Source | Sequence[Source],
    model: str | None = None,
    *,
    out: Path | str,
    vectors: PretrainedVectors | Path | str | None = None,
    recipe: str | None = None,
    settings: ModelSettings | None = None,
    change: Iterable[str] = (),
    seeds: Sequence[int] | None = None,
    device: str | None = None,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[RunResult]:
    """Train a model with each of several seeds, as `train` does with one.

    Several seeds are trained into the folders OUT/seed-N, side by side on a GPU if the model supports it; a single
    seed is trained into OUT itself.
    """
    out, change = Path(out), [change] if isinstance(change, str) else list(change)
    chosen = training_recipe(model or (settings.model if settings and recipe is None else None), recipe)
    settings = settings or chosen.settings
    if settings.model != chosen.settings.model:
        raise FewlinkError(f"the settings are of {settings.model}, not of {chosen.settings.model}")
    for name in {each.partition("=")[0] for each in change} & {*PER_RUN_SETTINGS}:
        raise FewlinkError(f"'{name}' is an argument of its own, not a change of the settings: give {name}=…")
    seeds = [settings.seed] if seeds is None else list(seeds)
    if len(set(seeds)) < len(seeds):
        raise FewlinkError(f"a seed is given twice: {', '.join(map(str, seeds))}")
    runs = {seeds[0]: out} if len(seeds) == 1 else {seed: out / f"seed-{seed}" for seed in seeds}
    for run in runs.values():
        check_folder(run)
    device = distributed.use_device(device or settings.device)
    settings = settings.replace(seed=seeds[0], device=device).adjusted(change)
    graphs = [benchmark] if isinstance(benchmark, Benchmark | str | Path) else list(benchmark)
    if not graphs:
        raise FewlinkError("no benchmark: give one, or several")
    settings = with_graphs(settings, graphs[1:])
    opened = _benchmark(graphs[0], settings, out)
    _check_runs(opened, settings, runs)
    family = trained_family(settings.model)
    if vectors is None:
        folder = out.resolve().with_name(f"{out.resolve().name}-vectors")
        may_replace = not any(begun(run) for run in runs.values())
        distributed.from_first(
            lambda: _pretrain(family, opened, settings, chosen.vectors, folder, on_epoch, may_replace=may_replace)
        )
        vectors = folder
    elif not family.reads_vectors and isinstance(vectors, str | Path):
        raise FewlinkError(f"{settings.model} reads the graph alone: give no vectors")
    if isinstance(vectors, str | Path):
        vectors = cast("PretrainedVectors", family.open_vectors(Path(vectors), opened.graph.fingerprint))
    return train_runs(opened, vectors, settings, runs, on_event=on_event)


def resume(
    run: Path | str,
    *,
    bench: Source | None = None,
    change: Iterable[str] = (),
    device: str | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Continue a run with its own settings and vectors; `change` may raise its limits: steps=N, patience=N.

    `bench`: its benchmark, if that has moved since.
    """
    run = Path(run)
    settings = RunConfig.read(run).settings
    settings = settings.replace(device=distributed.use_device(device or settings.device)).adjusted(change)
    benchmark = bench if isinstance(bench, Benchmark) else benchmark_of(run, bench)
    runs = {settings.seed: run}
    _check_runs(benchmark, settings, runs)
    vectors = trained_family(settings.model).open_vectors(run / EMBEDDINGS, benchmark.graph.fingerprint)
    return train_runs(benchmark, vectors, settings, runs, on_event=on_event)[0]


def _check_runs(benchmark: Benchmark, settings: ModelSettings, runs: Mapping[int, Path]) -> None:
    """Raise before anything is trained if a run cannot be begun or continued with these settings."""
    for seed, run in runs.items():
        check_may_train(run, benchmark, settings.replace(seed=seed))
    check(benchmark, settings)


def _pretrain(
    family: TrainedFamily[Any, Any],
    benchmark: Benchmark,
    settings: ModelSettings,
    wanted: Vectors,
    folder: Path,
    on_epoch: Callable[[str], Reporter] | None,
    *,
    may_replace: bool,
) -> None:
    """Train vectors into a folder; other vectors that a run without a checkpoint left there are renamed."""
    try:
        family.pretrain(benchmark, settings, wanted, folder, on_epoch)
    except FewlinkError:
        if not (may_replace and folder.exists()):
            raise
        others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(1))
        place = next(other for other in others if not other.exists())
        folder.rename(place)
        tell(f"{folder} held vectors of another benchmark or other settings: they are in {place}")
        family.pretrain(benchmark, settings, wanted, folder, on_epoch)


def with_graphs(settings: ModelSettings, others: Sequence[Source]) -> ModelSettings:
    """Settings of a model that also learns from these benchmarks and files of triples."""
    if not others:
        return settings
    if not trained_family(settings.model).several_graphs:
        raise FewlinkError(f"{settings.model} learns from one benchmark: give one, or choose the model trail")
    names = [each.source if isinstance(each, Benchmark) else str(each) for each in others]
    for name in names:
        if not name:
            raise FewlinkError("a further benchmark must have been opened from a file, a folder or the catalogue")
        if "," in name:
            raise FewlinkError(f"'{name}' has a comma in its name: rename it")
    if getattr(settings, "also", ""):
        raise FewlinkError("further graphs are given twice: as benchmarks, and as the setting 'also'")
    return settings.adjusted([f"also={','.join(names)}"])


def carve_for_run(
    graph: Graph, run: Path, seed: int, check: Callable[[Benchmark], None]
) -> tuple[Benchmark, list[str]]:
    """A benchmark that passes a check, to be saved in the folder of its run, and remarks about it."""
    return carve_any(graph, run.resolve().name, seed=seed, check=check, source=os.path.abspath(run / BENCHMARK))


def _benchmark(given: Source, settings: ModelSettings, out: Path) -> Benchmark:
    """The benchmark itself, an opened one, or one carved out of a file of triples and saved in the run's folder."""
    if isinstance(given, Benchmark):
        return given
    if not Path(given).is_file() or is_benchmark(Path(given)):
        return open_benchmark(given)
    report, place = CompileReport(), out / BENCHMARK
    graph = compile_graph([Path(given)], report=report)
    carved, remarks = carve_for_run(graph, out, settings.seed, lambda benchmark: check(benchmark, settings))
    before = open_benchmark(place).fingerprint if exists(place) else carved.fingerprint
    before = RunConfig.read(out).benchmark["fingerprint"] if is_run(out) else before
    if before != carved.fingerprint:
        raise FewlinkError(
            f"{out} was made from another graph than {given}, or with another seed: choose another folder"
        )
    if not exists(place):
        for remark in (*report.remarks(), *remarks) if distributed.rank() == 0 else ():
            tell(f"{given}: {remark}")
        distributed.from_first(lambda: carved.save(place))
    return carved
