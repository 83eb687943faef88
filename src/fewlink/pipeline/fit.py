"""From a file of triples to a trained, measured and calibrated run that answers questions, within a time.

The graph is carved into a benchmark; TRAIL is trained and measured on it. Then vectors are trained of the whole graph,
with which the run answers: nothing that the user gave is kept from it, and its figures are still honest.

RUN/benchmark/   the carved benchmark           RUN/fit.json   what was asked, chosen and spent
RUN/serving/     the whole graph, its vectors   RUN/README.md  the card; the rest as in any run
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from fewlink.pipeline.auto_carve import carve_any
from fewlink.pipeline.stages import FIT, Course, read_fit
from fewlink.prediction.card import measure_and_write
from fewlink.prediction.linker import Linker
from fewlink.prediction.pretrained import CARD
from fewlink.trail.settings import TrailSettings
from fewlink.trail.vectors import MODELS, TrailVectors, pretrain_views, train_table, vector_settings
from fewlink.training.checkpoints import begun, locked
from fewlink.training.run import BEGINNING, BENCHMARK, EMBEDDINGS, Deployed, make_folder
from fewlink.training.trainer import train_run

FORMAT = "fewlink-fit/1"
WORK = ".fit"  # vectors of the whole graph while they are made
EXAMPLES_WANTED = 6_000_000  # examples that the vectors' recipes were chosen with: small graphs need more epochs
MOST_EPOCHS = 3  # times those of the recipe
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """A run that is ready: its card, figures by split and protocol, and the seconds that were spent."""

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
    """Fit a run to a file of triples in about so many minutes; one that was stopped continues with what it chose.

    `change` are settings of TRAIL as NAME=VALUE, which stay as they are whatever the time; `tell` receives lines of
    progress.
    """
    run, tell = Path(out), tell or (lambda line: None)
    if not 0 < minutes < float("inf"):
        raise FewlinkError(f"minutes is {minutes}: it must be a finite number over 0")
    settings = recipe("trail", TrailSettings).settings.adjusted([f"seed={seed}", f"device={device}", *change])
    _refuse_other(run)
    report = CompileReport()
    whole = compile_graph([Path(graph)], types=types, names=names, on_error=on_error, report=report)
    asked = {
        "graph": whole.fingerprint,
        **{name: sha256_file(Path(path)) if path else "" for name, path in (("types", types), ("names", names))},
        **{"minutes": minutes, "seed": seed, "set": sorted(change)},
    }
    with _working(run):
        record = read_fit(run, FORMAT) or {"format": FORMAT, "asked": asked, "notes": report.remarks(), "seconds": {}}
        _refuse_other_wish(run, record["asked"], asked)
        with _threads(record):
            return _fitted(run, whole, settings, Course(run, record, tell), [c.partition("=")[0] for c in change])


def _fitted(run: Path, whole: Graph, settings: TrailSettings, course: Course, fixed: list[str]) -> Fitted:
    """Make every stage that has not been made."""
    if "settings" not in course.record:
        _planned(run, whole, settings, course, fixed)
    elif not course.finished:
        course.tell(f"{run} continues with the settings that were chosen for it")
    benchmark = open_benchmark(run / BENCHMARK)
    device = {"device": settings.device}
    with course.stage("vectors") as wanted:
        if wanted:
            pretrain_views(benchmark, course.settings(device), out=run / EMBEDDINGS, on_epoch=_tables(course))
    with course.stage("training") as wanted:
        if wanted:
            if not begun(run):
                course.catch_up(fixed)
            vectors = TrailVectors.open(run / EMBEDDINGS, benchmark.graph.fingerprint)
            train_run(benchmark, vectors, course.settings(device), run, on_event=course.evaluated)
    with course.stage("whole graph") as wanted:
        if wanted:
            _serve(run, whole, course, course.settings(device))
    with course.stage("measuring") as wanted:
        if wanted:
            _, measured = measure_and_write(Linker.load(run, device=settings.device), test=True)
            course.record["figures"] = {
                f"{each.protocol.split} {each.protocol.candidates}": each.metrics()["micro"] for each in measured
            }
    shutil.rmtree(run / WORK, ignore_errors=True)
    asked, seconds = course.record["asked"], sum(course.record["seconds"].values())
    notes = tuple(course.record["notes"])
    return Fitted(run, run / CARD, course.record["figures"], seconds, asked["minutes"], notes)


def _planned(run: Path, whole: Graph, settings: TrailSettings, course: Course, fixed: list[str]) -> None:
    """Carve the graph, look how fast this machine is, and choose what fits the time; nothing is trained yet."""
    record, minutes = course.record, course.record["asked"]["minutes"]
    with course.clocked("planning"):
        benchmark, remarks = carve_any(whole, run.resolve().name, settings)
        wanted = _wanted(whole, settings, fixed)
        record["threads"] = time_plan.quickest_threads(benchmark, wanted)
        torch.set_num_threads(record["threads"])
        speed, work = time_plan.measure(benchmark, whole, wanted)
    spent = record["seconds"]["planning"]
    made, share = time_plan.chosen(wanted, speed, work, 60 * minutes - spent, fixed, spent)
    expected = time_plan.expected(made, speed, work)
    record["notes"] += [*remarks, time_plan.told(made, expected, share, minutes)]
    for note in record["notes"]:
        course.tell(f"note: {note}")
    benchmark.save(run / BENCHMARK)
    record.update(speed=vars(speed), work=vars(work), expected=expected, settings=made.as_dict())
    write_json(run / FIT, record)


def _wanted(whole: Graph, settings: TrailSettings, fixed: Sequence[str]) -> TrailSettings:
    """Settings without regard to time.

    A small graph has few batches an epoch, so it gets more epochs; and each may do with a part of its entities to be
    told apart from: on CoDEx-S 48 epochs against 512 of 1,952 are better than 12 against all, for the same work.
    """
    more = {}
    for model in MODELS:
        name = f"{model}_epochs"
        enough, own = EXAMPLES_WANTED / (2 * whole.triple_count), getattr(settings, name)
        more[name] = round(min(max(own, enough), MOST_EPOCHS * own))
    more["negatives"] = min(settings.negatives, max(256, len(whole.entities) // 4))
    kept = {name: value for name, value in more.items() if name not in fixed}
    return TrailSettings(**{**settings.as_dict(), **kept})


def _serve(run: Path, whole: Graph, course: Course, settings: TrailSettings) -> None:
    """Vectors of the whole graph, and the folder that the run answers with."""
    benchmark = Benchmark(run.resolve().name, whole, {split: [] for split in SPLITS})
    for index, model in enumerate(MODELS):
        told = course.epochs(f"{model} vectors of the whole graph", index, len(MODELS))
        train_table(benchmark, whole, vector_settings(settings, model), run / WORK / model, told, half=settings.half)
    first, second = (Embeddings.open(run / WORK / model, whole.fingerprint) for model in MODELS)
    Deployed(benchmark, TrailVectors((first, second), ())).save(run)


def _tables(course: Course) -> Callable[[str], Callable[[dict[str, Any]], None]]:
    """Reporters of the tables that are trained one after another."""
    count = len(MODELS) * (course.settings({}).views + 1)
    places: Iterator[int] = iter(range(count))
    return lambda title: course.epochs(title, next(places), count)


@contextlib.contextmanager
def _threads(record: dict[str, Any]) -> Iterator[None]:
    """As many threads as were chosen for a fit, until it ends: with others a vector's last bit may differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(record.get("threads", before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _working(run: Path) -> Iterator[None]:
    """Keep the folder for this process; where nothing was chosen yet when it ends, nothing is left behind."""
    make_folder(run / WORK)
    try:
        with locked(run / WORK, run):
            yield
    finally:
        for folder in (run / WORK, run):
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _refuse_other(run: Path) -> None:
    """An error where a folder holds anything but a fit."""
    if run.exists() and not run.is_dir():
        raise FewlinkError(f"{run} is a file: choose another folder")
    if run.exists() and not (run / FIT).exists():
        drafts = tuple(f".{name}." for name in BEGINNING)
        if any(p.name not in (WORK, BENCHMARK) and not p.name.startswith(drafts) for p in run.iterdir()):
            raise FewlinkError(f"{run} exists and was not made by fewlink fit: choose another folder")


def _refuse_other_wish(run: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    for name, value in asked.items():
        if found.get(name) != value:
            told = {"graph": "another graph", "types": "other types", "names": "other names"}
            what = told.get(name, f"{name} = {found.get(name)}, not {value}")
            raise InputError(run, f"was fitted with {what}: give the same, or choose another folder")
