"""One call from a benchmark or a file of triples to a trained run, for any model by name, vectors included."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fewlink.core import distributed
from fewlink.core.errors import FewlinkError
from fewlink.core.progress import tell
from fewlink.core.recipes import OWN, Vectors
from fewlink.core.storage import exists
from fewlink.data import Benchmark, open_benchmark
from fewlink.data.carving import carve_any
from fewlink.data.catalogue import is_benchmark
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.models import DEFAULT_MODEL, trained_family, training_recipe
from fewlink.models.family import PretrainedVectors, Reporter
from fewlink.models.settings import ModelSettings
from fewlink.training.checkpoints import BENCHMARK, begun
from fewlink.training.run import RunConfig, is_run
from fewlink.training.trainer import RunResult, check, check_folder, check_may_train, train_runs

Source = Benchmark | str | Path


def train(
    benchmark: Source | Sequence[Source],
    model: str = DEFAULT_MODEL,
    *,
    out: Path | str,
    vectors: PretrainedVectors | Path | str | None = None,
    recipe: str | None = None,
    settings: ModelSettings | None = None,
    change: Iterable[str] = (),
    seed: int | None = None,
    device: str | None = None,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> RunResult:
    """Train a model into a run folder; the same call continues an interrupted run.

    `benchmark`: a benchmark, the name or folder of one, or a file of triples, which is carved into one; or several, for
    a model that learns from several: dev is that of the first, and what is known of the others is learnt from too (all
    triples of a file). `vectors`: those to use, or their folder; by default they are pretrained into OUT-vectors.
    `settings`: by default those of `recipe`, or of the model's own recipe; then each NAME=VALUE of `change`, `seed` and
    `device` change them.
    `on_epoch` makes a reporter from the title of each table of vectors; `on_event` gets an event after each evaluation.
    """
    out, change = Path(out), [change] if isinstance(change, str) else list(change)
    check_folder(out)
    chosen = training_recipe(model, recipe)
    settings = settings or chosen.settings
    if settings.model != model:
        raise FewlinkError(f"the settings are of {settings.model}, not of {model}: give those of the model")
    for name in {each.partition("=")[0] for each in change} & {*OWN}:
        raise FewlinkError(f"'{name}' is an argument of its own, not a change of the settings: give {name}=…")
    seed, device = settings.seed if seed is None else seed, distributed.use_device(device or settings.device)
    settings = settings.replace(seed=seed, device=device).adjusted(change)
    if not (graphs := [benchmark] if isinstance(benchmark, Benchmark | str | Path) else list(benchmark)):
        raise FewlinkError("no benchmark: give one, or several")
    first, *others = graphs
    settings = with_graphs(settings, others)
    benchmark = _benchmark(first, settings, out)
    source = vectors if vectors is not None else chosen.vectors
    return train_seeds(benchmark, source, settings, {seed: out}, out, on_epoch=on_epoch, on_event=on_event)[0]


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


def train_seeds(
    benchmark: Benchmark,
    vectors: PretrainedVectors | Path | str | Vectors,
    settings: ModelSettings,
    runs: Mapping[int, Path],
    out: Path,
    *,
    on_epoch: Callable[[str], Reporter] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> list[RunResult]:
    """Train each seed into its run folder; `vectors` in the form of a recipe are pretrained into OUT-vectors first."""
    for seed, run in runs.items():
        check_may_train(run, benchmark, settings.replace(seed=seed))
    check(benchmark, settings)
    family = trained_family(settings.model)
    if not family.reads_vectors and isinstance(vectors, str | Path):
        raise FewlinkError(f"{settings.model} reads the graph alone: give no vectors")
    if isinstance(vectors, Vectors):
        wanted, folder = vectors, out.resolve().with_name(f"{out.resolve().name}-vectors")
        may_replace = not any(begun(run) for run in runs.values())

        def pretrain() -> None:
            try:
                family.pretrain(benchmark, settings, wanted, folder, on_epoch)
            except FewlinkError:
                if not (may_replace and folder.exists()):
                    raise
                _set_aside(folder)  # left by a run that was never trained
                family.pretrain(benchmark, settings, wanted, folder, on_epoch)

        distributed.from_first(pretrain)
        vectors = folder
    if isinstance(vectors, str | Path):
        opened: PretrainedVectors = family.open_vectors(Path(vectors), benchmark.graph.fingerprint)
    else:
        opened = vectors
    return train_runs(benchmark, opened, settings, runs, on_event=on_event)


def _set_aside(folder: Path) -> None:
    """Give a folder of vectors another name."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(1))
    place = next(other for other in others if not other.exists())
    folder.rename(place)
    tell(f"{folder} held vectors of another benchmark or other settings: they are in {place}")


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
