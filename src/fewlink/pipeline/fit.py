"""From a file of triples to a trained, evaluated and calibrated run, within a time limit.

The graph is carved into a benchmark, and TRAIL is trained and evaluated on it. Then vectors of the whole graph are
trained, which the run uses for predictions: these use everything the user gave, and the metrics stay unbiased.

RUN/benchmark/   the carved benchmark           RUN/fit.json   arguments, chosen settings and times
RUN/serving/     the whole graph, its vectors   RUN/README.md  the card; the rest as in any run
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.recipes import recipe
from fewlink.base.storage import sha256_file, write_json
from fewlink.data import SPLITS, Benchmark, open_benchmark
from fewlink.embeddings import Embeddings
from fewlink.graph import CompileReport, Graph, compile_graph
from fewlink.pipeline import time_plan
from fewlink.pipeline.time_plan import FIT, Stages, read_fit
from fewlink.pipeline.train import carve_for_run
from fewlink.prediction.card import measure_and_write
from fewlink.prediction.linker import Linker
from fewlink.prediction.pretrained import CARD
from fewlink.trail_0_1.model import Trail01Settings
from fewlink.trail_0_1.vectors import MODELS, Trail01Vectors, pretrain_views, train_table, vector_settings
from fewlink.training.checkpoints import begun, locked
from fewlink.training.run import BEGINNING, BENCHMARK, EMBEDDINGS, Deployed, make_folder
from fewlink.training.trainer import train_run

FORMAT = "fewlink-fit/1"
WORK = ".fit"  # vectors of the whole graph during training
EXAMPLES = 6_000_000  # training examples that the vectors' recipes were tuned with: small graphs need more epochs
MOST_EPOCHS = 3  # times those of the recipe
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """A finished run: its card, metrics by split and protocol, and the seconds it took."""

    run: Path
    card: Path
    figures: dict[str, dict[str, float]]
    seconds: float
    minutes: float
    notes: tuple[str, ...]


def fit(
    graph: Path | str,
    out: Path | str,
    *,
    types: Path | None = None,
    names: Path | None = None,
    minutes: float = 10.0,
    seed: int = 0,
    change: Sequence[str] = (),
    on_error: str = "stop",
    device: str = "cpu",
    tell: Tell | None = None,
) -> Fitted:
    """Fit a run to a file of triples in about `minutes`; an interrupted fit continues with the settings it chose.

    `change` are settings of TRAIL as NAME=VALUE, which are not reduced to save time; `tell` receives lines of progress.
    """
    run, tell = Path(out), tell or (lambda line: None)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be a finite number over 0")
    settings = recipe("trail-0.1", Trail01Settings).settings.adjusted([f"seed={seed}", f"device={device}", *change])
    _check_folder(run)
    report = CompileReport()
    whole = compile_graph([Path(graph)], types=types, names=names, on_error=on_error, report=report)
    arguments = {
        "graph": whole.fingerprint,
        **{name: sha256_file(Path(path)) if path else "" for name, path in (("types", types), ("names", names))},
        **{"minutes": minutes, "seed": seed, "set": sorted(change)},
    }
    with _locked(run):
        new: dict[str, Any] = {"format": FORMAT, "asked": arguments, "notes": report.remarks(), "seconds": {}}
        record = read_fit(run, FORMAT) or new
        _check_same_arguments(run, record["asked"], arguments)
        with _threads(record):
            fixed = [assignment.partition("=")[0] for assignment in change]
            return _run_stages(Stages(run, record, tell), whole, settings, fixed)


def _run_stages(stages: Stages, whole: Graph, settings: Trail01Settings, fixed: Sequence[str]) -> Fitted:
    """Run every stage that is not done yet."""
    run, record, device = stages.run, stages.record, settings.device
    if "settings" not in record:
        benchmark = _plan(stages, whole, settings, fixed)
    else:
        if not stages.finished:
            stages.tell(f"{run} continues with the settings that were chosen for it")
        benchmark = open_benchmark(run / BENCHMARK)
    vectors: Trail01Vectors | None = None
    with stages.stage("vectors") as pending:
        if pending:
            chosen, reporters = stages.settings(device=device), _table_reporters(stages)
            vectors = pretrain_views(benchmark, chosen, out=run / EMBEDDINGS, on_epoch=reporters)
    with stages.stage("training") as pending:
        if pending:
            if not begun(run):
                stages.catch_up(fixed)
            vectors = vectors or Trail01Vectors.open(run / EMBEDDINGS, benchmark.graph.fingerprint)
            chosen = stages.settings(device=device)
            train_run(benchmark, vectors, chosen, run, on_event=stages.report_evaluation)
    with stages.stage("whole graph") as pending:
        if pending:
            _deploy(stages, whole, stages.settings(device=device))
    with stages.stage("measuring") as pending:
        if pending:
            linker = Linker.load(run, bench=benchmark, device=device, as_measured=True)
            _, evaluations = measure_and_write(linker, test=True, graph=whole)
            record["figures"] = {
                f"{each.protocol.split} {each.protocol.candidates}": each.metrics()["micro"] for each in evaluations
            }
    shutil.rmtree(run / WORK, ignore_errors=True)
    seconds, minutes = sum(record["seconds"].values()), record["asked"]["minutes"]
    return Fitted(run, run / CARD, record["figures"], seconds, minutes, tuple(record["notes"]))


def _plan(stages: Stages, whole: Graph, settings: Trail01Settings, fixed: Sequence[str]) -> Benchmark:
    """Carve the graph, measure the speed of this machine, and choose settings that fit the time; nothing is trained."""
    run, record, minutes = stages.run, stages.record, stages.record["asked"]["minutes"]
    with stages.timed("planning"):
        benchmark, remarks = carve_for_run(whole, run, settings)
        full = _full_settings(whole, settings, fixed)
        record["threads"] = time_plan.fastest_thread_count(benchmark, full)
        torch.set_num_threads(record["threads"])
        plan = time_plan.measure(benchmark, whole, full)
    spent = record["seconds"]["planning"]
    chosen, share = plan.choose(full, 60 * minutes - spent, fixed, spent)
    expected = plan.expected(chosen)
    record["notes"] += [*remarks, time_plan.describe(chosen, expected, share, minutes)]
    for note in record["notes"]:
        stages.tell(f"note: {note}")
    benchmark.save(run / BENCHMARK)
    record.update(speed=vars(plan.timings), work=vars(plan.work), expected=expected, settings=chosen.as_dict())
    write_json(run / FIT, record)
    return benchmark


def _full_settings(whole: Graph, settings: Trail01Settings, fixed: Sequence[str]) -> Trail01Settings:
    """The settings for a fit without a time limit.

    A small graph has few batches per epoch, so it gets more epochs, with fewer negatives each: on CoDEx-S 48 epochs
    against 512 of 1,952 entities are better than 12 against all, for the same work.
    """
    changes = {}
    for model in MODELS:
        name = f"{model}_epochs"
        enough, epochs = EXAMPLES / (2 * whole.triple_count), getattr(settings, name)
        changes[name] = round(min(max(epochs, enough), MOST_EPOCHS * epochs))
    changes["negatives"] = min(settings.negatives, max(256, len(whole.entities) // 4))
    return replace(settings, **{name: value for name, value in changes.items() if name not in fixed})


def _deploy(stages: Stages, whole: Graph, settings: Trail01Settings) -> None:
    """Train vectors of the whole graph and write the folder that the run makes predictions with."""
    run = stages.run
    benchmark = Benchmark(run.resolve().name, whole, {split: [] for split in SPLITS})
    for index, model in enumerate(MODELS):
        report = stages.epoch_reporter(f"{model} vectors of the whole graph", index, len(MODELS))
        train_table(benchmark, whole, vector_settings(settings, model), run / WORK / model, report, half=settings.half)
    first, second = (Embeddings.open(run / WORK / model, whole.fingerprint) for model in MODELS)
    Deployed(benchmark, Trail01Vectors((first, second), ())).save(run)


def _table_reporters(stages: Stages) -> Callable[[str], Callable[[dict[str, Any]], None]]:
    """Reporters of the tables that are trained one after another."""
    count = len(MODELS) * (stages.settings().views + 1)
    indices = iter(range(count))
    return lambda title: stages.epoch_reporter(title, next(indices), count)


@contextlib.contextmanager
def _threads(record: dict[str, Any]) -> Iterator[None]:
    """Use the number of threads chosen for the fit: with another number the last bit of a vector may differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(record.get("threads", before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Lock the folder for this process; if it ends before settings were chosen, remove the folder."""
    make_folder(run / WORK)
    try:
        with locked(run / WORK, run):
            yield
    finally:
        for folder in (run / WORK, run):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _check_folder(run: Path) -> None:
    """Raise if a folder holds anything but a fit."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    if run.exists() and not (run / FIT).exists():
        drafts = tuple(f".{name}." for name in BEGINNING)
        if any(p.name not in (WORK, BENCHMARK) and not p.name.startswith(drafts) for p in run.iterdir()):
            raise FewlinkError(f"{run} exists and was not made by fewlink fit: choose another folder")


def _check_same_arguments(run: Path, before: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise if a fit was started with other arguments."""
    files = {"graph": "another graph", "types": "other types", "names": "other names"}
    for name, value in arguments.items():
        if before.get(name) != value:
            difference = files.get(name, f"{name} = {before.get(name)}, not {value}")
            raise InputError(run, f"was fitted with {difference}: give the same, or choose another folder")
