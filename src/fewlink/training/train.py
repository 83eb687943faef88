"""`fewlink.train`: from a benchmark or a file of triples to a trained run, including its pretrained vectors."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.files import exists
from fewlink.core.machine import use_device
from fewlink.core.progress import tell
from fewlink.core.recipes import PER_RUN_SETTINGS
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.models import trained_family, training_recipe
from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.family import PretrainedVectors, Reporter
from fewlink.models.folder import BENCHMARK, EMBEDDINGS
from fewlink.models.run import RunConfig, benchmark_of, is_run
from fewlink.models.settings import ModelSettings
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.tasks.carving import carve_any
from fewlink.tasks.catalogue import is_benchmark
from fewlink.training.run import check_folder, check_may_train
from fewlink.training.trainer import Event, RunResult, check, train_runs
from fewlink.training.vectors import train_vectors

Source = Benchmark | str | Path
DEFAULT_SHOTS = 3  # references that an embedding model learns from, as few-shot models do


def train(
    benchmark: Source | Sequence[Source],
    model: str | None = None,
    *,
    out: Path | str,
    vectors: PretrainedVectors | Path | str | None = None,
    recipe: str | None = None,
    settings: ModelSettings | EmbeddingSettings | None = None,
    change: Iterable[str] = (),
    shots: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> RunResult:
    """Train a model into a run folder; the same call continues an interrupted run.

    benchmark  a benchmark, its name or folder, or a file of triples, which is carved into a benchmark. A model that
               learns from several graphs takes a list: it is evaluated on dev of the first, and also learns from the
               known graphs of the others (from all triples of a file)
    model      by default the model of the recipe or the settings, or TRAIL
    vectors    pretrained vectors or their folder; by default they are trained into OUT-vectors by the recipe
    settings   by default those of `recipe`, or of the model's own recipe
    change     changes to the settings, each as NAME=VALUE; `seed` and `device` have their own arguments
    shots      references of each relation; with 0, an embedding model learns from the background only, so that another
               model can take it as `vectors`
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
        shots=shots,
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
    settings: ModelSettings | EmbeddingSettings | None = None,
    change: Iterable[str] = (),
    shots: int | None = None,
    seeds: Sequence[int] | None = None,
    device: str | None = None,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[RunResult]:
    """Train a model with several seeds, as `train` does with one.

    Several seeds are trained into the folders OUT/seed-N, side by side on a GPU if the model supports it; a single
    seed is trained into OUT itself.
    """
    out = Path(out)
    change = [change] if isinstance(change, str) else list(change)
    if model is None and recipe is None and settings is not None:
        model = settings.model
    chosen = training_recipe(model, recipe)
    settings = settings if settings is not None else chosen.settings
    if isinstance(settings, ModelSettings) and shots is not None:
        change = [f"shots={shots}", *change]
    if settings.model != chosen.settings.model:
        raise FewlinkError(
            f"the settings are for {settings.model}, not for {chosen.settings.model}: give one of the two"
        )
    for name in {each.partition("=")[0] for each in change} & {*PER_RUN_SETTINGS}:
        raise FewlinkError(f"'{name}' cannot be changed as a setting: give {name}=…, or --{name} to the command")
    seeds = [settings.seed] if seeds is None else list(seeds)
    if len(set(seeds)) < len(seeds):
        raise FewlinkError(f"seeds must differ, got {', '.join(map(str, seeds))}")
    runs = {seeds[0]: out} if len(seeds) == 1 else {seed: out / f"seed-{seed}" for seed in seeds}
    device = use_device(device or settings.device)
    settings = settings.replace(seed=seeds[0], device=device).adjusted(change)
    graphs = [benchmark] if isinstance(benchmark, Benchmark | str | Path) else list(benchmark)
    if not graphs:
        raise FewlinkError("no benchmark: give at least one")
    if isinstance(settings, EmbeddingSettings):
        if vectors is not None or len(graphs) > 1 or distributed.count() > 1:
            raise FewlinkError(
                f"{settings.model} learns from one benchmark in one process, and reads no vectors: leave out the rest"
            )
        known = open_benchmark(graphs[0]) if isinstance(graphs[0], str | Path) else graphs[0]
        references = DEFAULT_SHOTS if shots is None else shots
        return [
            train_vectors(known, settings.replace(seed=seed), run, references, on_epoch) for seed, run in runs.items()
        ]
    for run in runs.values():
        check_folder(run)
    settings = with_graphs(settings, graphs[1:])
    opened = _open_or_carve(graphs[0], settings, out)
    _check_runs(opened, settings, runs)
    family = trained_family(settings.model)
    if vectors is None:
        folder = out.resolve().with_name(f"{out.resolve().name}-vectors")
        distributed.from_first(functools.partial(family.pretrain, opened, settings, chosen.vectors, folder, on_epoch))
        vectors = folder
    elif not family.reads_vectors and isinstance(vectors, str | Path):
        raise FewlinkError(f"{settings.model} reads no vectors: leave them out")
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
    """Continue a run with its settings and vectors; `change` may raise its limits: steps=N, patience=N.

    `bench` is the run's benchmark, if that has moved since training.
    """
    run = Path(run)
    settings = RunConfig.read(run).settings
    settings = settings.replace(device=use_device(device or settings.device)).adjusted(change)
    benchmark = bench if isinstance(bench, Benchmark) else benchmark_of(run, bench)
    runs = {settings.seed: run}
    _check_runs(benchmark, settings, runs)
    vectors = trained_family(settings.model).open_vectors(run / EMBEDDINGS, benchmark.graph.fingerprint)
    return train_runs(benchmark, vectors, settings, runs, on_event=on_event)[0]


def _check_runs(benchmark: Benchmark, settings: ModelSettings, runs: Mapping[int, Path]) -> None:
    """Raise if a run cannot start or continue with these settings."""
    for seed, run in runs.items():
        check_may_train(run, benchmark, settings.replace(seed=seed))
    check(benchmark, settings)


def with_graphs(settings: ModelSettings, others: Sequence[Source]) -> ModelSettings:
    """The settings with further benchmarks and files of triples to learn from."""
    if not others:
        return settings
    if not trained_family(settings.model).several_graphs:
        raise FewlinkError(f"{settings.model} learns from one benchmark: give only one, or choose the model trail")
    names = [each.source if isinstance(each, Benchmark) else str(each) for each in others]
    for name in names:
        if not name:
            raise FewlinkError("a further benchmark has no source: open it from a file, a folder or the catalogue")
        if "," in name:
            raise FewlinkError(f"'{name}' has a comma in its name: rename the file")
    if getattr(settings, "also", ""):
        raise FewlinkError("further graphs are given both as benchmarks and in the setting 'also': choose one")
    return settings.adjusted([f"also={','.join(names)}"])


def carve_for_run(
    graph: Graph, run: Path, seed: int, check: Callable[[Benchmark], None]
) -> tuple[Benchmark, list[str]]:
    """Carve a benchmark that passes a check and has its source in the run folder; also return remarks about it."""
    return carve_any(graph, run.resolve().name, seed=seed, check=check, source=os.path.abspath(run / BENCHMARK))


def _open_or_carve(source: Source, settings: ModelSettings, out: Path) -> Benchmark:
    """Open a benchmark; from a file of triples, carve one and save it in the run folder."""
    if isinstance(source, Benchmark):
        return source
    if not Path(source).is_file() or is_benchmark(Path(source)):
        return open_benchmark(source)
    report = CompileReport()
    folder = out / BENCHMARK
    try:
        graph = compile_graph([Path(source)], literals="keep", report=report)
    except InputError as error:
        remedy = "make a benchmark of it with fewlink data carve, which has these options"
        raise InputError(error.path, f"{error.problem} ({remedy})", error.line) from None
    carved, remarks = carve_for_run(graph, out, settings.seed, lambda benchmark: check(benchmark, settings))
    expected = carved.fingerprint
    if is_run(out):
        expected = RunConfig.read(out).benchmark["fingerprint"]
    elif exists(folder):
        expected = open_benchmark(folder).fingerprint
    if carved.fingerprint != expected:
        raise FewlinkError(
            f"{out} was made from a graph other than {source}, or with another seed: choose another folder"
        )
    if not exists(folder):
        if distributed.rank() == 0:
            for remark in (*report.remarks(), *remarks):
                tell(f"{source}: {remark}")
        distributed.from_first(lambda: carved.save(folder))
    return carved
