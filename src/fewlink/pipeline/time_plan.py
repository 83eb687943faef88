"""How long a fit will take, by a few batches and lessons of it, and what of it fits into the time there is.

All times are seconds. Everything that takes long is counted: vectors of what is known, of each view and of the whole
graph; lessons, steps and evaluations on dev; and the measuring at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch

from fewlink.base.errors import FewlinkError
from fewlink.base.progress import duration
from fewlink.data import Benchmark
from fewlink.data.masked_views import known_graph
from fewlink.embeddings import Embeddings
from fewlink.embeddings.trainer import EmbeddingTrainer
from fewlink.graph import Graph
from fewlink.scorers import Question
from fewlink.trail.learner import MEASURED_BY, TrailLearner
from fewlink.trail.settings import TrailSettings
from fewlink.trail.vectors import MODELS, TrailVectors, vector_settings

PARTS = ("vectors", "training", "whole graph", "measuring")
BATCHES, LESSONS, HEADS = 3, 8, 4  # that are looked at
SAFETY = 0.85  # share of the time that is planned with: other work may slow this down
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)  # of what is wanted, the least last
FEW_VIEWS = 0.25  # from this share on two views do
EVALUATIONS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Speed:
    """Seconds of an epoch of each kind of vectors, of a lesson, of a step, and of ranking one query."""

    complex_epoch: float
    transe_epoch: float
    lesson: float
    step: float
    query: float


@dataclass(frozen=True)
class Work:
    """How much there is: hidden relations (in either direction), queries, and the whole graph's share of triples."""

    hidden: int
    dev: int
    test: int
    whole: float = 1.0


def expected(settings: TrailSettings, speed: Speed, work: Work) -> dict[str, float]:
    """The seconds of each part."""
    table = settings.complex_epochs * speed.complex_epoch + settings.transe_epochs * speed.transe_epoch
    lessons = min(work.hidden * settings.lessons, settings.steps * settings.relations + MEASURED_BY)
    looks = -(-settings.steps // settings.evaluate_every)
    return {
        "vectors": (settings.views + 1) * table,
        "training": lessons * speed.lesson + settings.steps * speed.step + looks * work.dev * speed.query,
        "whole graph": work.whole * table,
        "measuring": (3 * work.dev + 2 * work.test) * speed.query,  # two protocols each, and calibration on dev
    }


def shrunk(settings: TrailSettings, share: float, fixed: Collection[str] = ()) -> TrailSettings:
    """A share of the epochs, lessons and steps, fewer views where it is small; what the user set stays."""
    steps = settings.steps if "steps" in fixed else max(50, round(share * settings.steps))
    wanted: dict[str, Any] = {
        "complex_epochs": max(2, round(share * settings.complex_epochs)),
        "transe_epochs": max(2, round(share * settings.transe_epochs)),
        "views": min(2, settings.views) if share <= FEW_VIEWS else settings.views,
        "lessons": max(1, math.ceil(share * settings.lessons)),
        "steps": steps,
        "evaluate_every": -(-steps // EVALUATIONS),
    }
    return replace(settings, **{name: value for name, value in wanted.items() if name not in fixed})


def chosen(
    settings: TrailSettings, speed: Speed, work: Work, seconds: float, fixed: Collection[str] = (), spent: float = 0.0
) -> tuple[TrailSettings, float]:
    """The largest share of what is wanted that these seconds are enough for; an error that names the least.

    `spent` are the seconds that planning took and would take again.
    """
    for share in SHARES:
        made = shrunk(settings, share, fixed)
        if sum(expected(made, speed, work).values()) <= SAFETY * seconds:
            return made, share
    least = sum(expected(shrunk(settings, SHARES[-1], fixed), speed, work).values()) / SAFETY
    kept = f" with {', '.join(sorted(fixed))} as they are set" if fixed else ""
    raise FewlinkError(
        f"{seconds / 60:.1f} minutes are left for training and measuring, and the least that is useful takes about "
        f"{least / 60:.1f}{kept}: give --minutes {math.ceil((least + spent) / 60 + 0.5)}, or a faster --device"
    )


def caught_up(
    settings: TrailSettings, speed: Speed, work: Work, seconds: float, pace: float, fixed: Collection[str] = ()
) -> TrailSettings:
    """Fewer lessons and steps where vectors took `pace` times what was expected, to end in these seconds all the same.

    Epochs and views stay: the vectors are there.
    """
    there = {*fixed, "complex_epochs", "transe_epochs", "views"}
    for share in SHARES:
        made = shrunk(settings, share, there) if share < 1 else settings
        left = expected(made, speed, work)
        if pace * (sum(left.values()) - left["vectors"]) <= seconds:
            break
    return made


def measure(benchmark: Benchmark, whole: Graph, settings: TrailSettings) -> tuple[Speed, Work]:
    """Look at a few batches, lessons, steps and queries."""
    known = known_graph(benchmark)
    sizes = known.triples(), len(known.entities), len(known.relations)
    bilinear, translation = (EmbeddingTrainer(*sizes, vector_settings(settings, model)) for model in MODELS)
    epochs = _epoch(bilinear), _epoch(translation)
    lesson, step, query, hidden = _training(benchmark, (bilinear.result(), translation.result()), settings)
    dev, test = (sum(max(0, len(t.pairs) - settings.shots) for t in benchmark.split(s)) for s in ("dev", "test"))
    return Speed(*epochs, lesson, step, query), Work(hidden, dev, test, whole.triple_count / known.triple_count)


def quickest_threads(benchmark: Benchmark, settings: TrailSettings) -> int:
    """How many threads make batches go fastest: more than the processors that are free would wait for each other."""
    known, most = known_graph(benchmark), int(torch.get_num_threads())
    if settings.device != "cpu" or most == 1:
        return most
    run = EmbeddingTrainer(
        known.triples(), len(known.entities), len(known.relations), vector_settings(settings, MODELS[0])
    )
    seconds: dict[int, float] = {}
    try:
        for threads in sorted({most, *(1 << power for power in range(most.bit_length()))}):
            torch.set_num_threads(threads)
            seconds[threads] = _epoch(run)
    finally:
        torch.set_num_threads(most)
    return min(seconds, key=lambda threads: seconds[threads])


def _epoch(run: EmbeddingTrainer) -> float:
    """Seconds of an epoch: on a GPU, where it is short, the second one's; else by the first batches but one."""
    if run.device != "cpu":
        run.epoch()
        return timed(run.epoch)[0]
    times = []
    batches = run.batches.epoch(0)
    for _ in range(min(BATCHES + 1, len(run.batches))):
        times.append(timed(lambda: float(run.step(next(batches), 1e-6)))[0])
    return len(run.batches) * float(np.mean(times[1:] or times))


def _training(
    benchmark: Benchmark, tables: tuple[Embeddings, Embeddings], settings: TrailSettings
) -> tuple[float, float, float, int]:
    """Seconds of a lesson, of a step and of a query, and how many relations are learnt on."""
    learner = TrailLearner(benchmark, TrailVectors(tables, (tables,) * settings.views), settings, [settings.seed])
    count, book = len(learner.book.index), learner.book
    places = np.unique(np.linspace(0, count - 1, LESSONS).astype(int)).tolist()
    first, lessons = timed(lambda: book.open(places))
    learner.model.set_by([lesson.asked.findings for lesson in lessons])
    with torch.random.fork_rng(devices=[]):
        learner.step(0, lessons[:1])
        step = timed(lambda: float(learner.step(0, lessons)[0]))[0]
    task = min(benchmark.split("dev"), key=lambda each: -len(each.range))
    references, queries = task.split(settings.shots)
    question = Question(task.name, references, np.unique(queries[:, 0])[:HEADS], task.range)
    scorer = learner.scorer(0)
    cold, warm = (timed(lambda: float(scorer(question).sum()))[0] for _ in range(2))  # references are looked at once
    query = warm / len(question.heads) + max(0.0, cold - warm) / len(queries)
    return first / len(lessons), settings.relations * step / len(lessons), query, count // settings.lessons


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds, and what came of it."""
    begun = time.perf_counter()
    made = work()
    return time.perf_counter() - begun, made


def told(settings: TrailSettings, seconds: Mapping[str, float], share: float, minutes: float) -> str:
    """What was chosen and why, in a sentence."""
    how = "all that is wanted" if share == 1 else f"{share:.0%} of what is wanted, to end in {minutes:g} minutes"
    return (
        f"{how}: {settings.views} views, {settings.complex_epochs} and {settings.transe_epochs} epochs of ComplEx and "
        f"TransE vectors, {settings.lessons} lessons of each relation, {settings.steps} steps; about "
        f"{duration(sum(seconds.values()))} by the speed of the first batches"
    )
