"""How long a fit will take, extrapolated from a few batches and episodes, and the settings that fit the time limit.

All times are seconds. They cover all expensive parts: vectors of the known graph, of each view and of the whole graph;
episodes, steps and evaluations on dev; and the evaluation at the end.
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
from fewlink.data.training_graph import known_graph
from fewlink.embeddings import Embeddings
from fewlink.embeddings.trainer import EmbeddingTrainer
from fewlink.graph import Graph
from fewlink.scorers import Question
from fewlink.trail.learner import SCALE_EPISODES, TrailLearner
from fewlink.trail.settings import TrailSettings
from fewlink.trail.vectors import MODELS, TrailVectors, vector_settings

STAGES = ("vectors", "training", "whole graph", "measuring")
BATCHES, EPISODES, HEADS = 3, 8, 4  # that are timed
SAFETY = 0.85  # share of the time limit that is planned for: other processes may slow this one down
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)  # of the full settings, in the order tried
FEW_VIEWS = 0.25  # at this share and below two views are used
EVALUATIONS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Timings:
    """Seconds per epoch of each kind of vectors, per episode (`lesson`), per step, and per query."""

    complex_epoch: float
    transe_epoch: float
    lesson: float
    step: float
    query: float


@dataclass(frozen=True)
class Workload:
    """Hidden relations in either direction, dev and test queries, and triples of the whole graph per known triple."""

    hidden: int
    dev: int
    test: int
    whole: float = 1.0


@dataclass(frozen=True)
class TimePlan:
    """Estimates the seconds of a fit, and reduces settings to fit a time limit."""

    timings: Timings
    work: Workload

    def expected(self, settings: TrailSettings) -> dict[str, float]:
        """The seconds of each stage."""
        timings, work = self.timings, self.work
        table = settings.complex_epochs * timings.complex_epoch + settings.transe_epochs * timings.transe_epoch
        episodes = min(work.hidden * settings.lessons, settings.steps * settings.relations + SCALE_EPISODES)
        evaluations = -(-settings.steps // settings.evaluate_every)
        training = episodes * timings.lesson + settings.steps * timings.step + evaluations * work.dev * timings.query
        return {
            "vectors": (settings.views + 1) * table,
            "training": training,
            "whole graph": work.whole * table,
            "measuring": (3 * work.dev + 2 * work.test) * timings.query,  # two protocols each, and calibration on dev
        }

    def choose(
        self, settings: TrailSettings, seconds: float, fixed: Collection[str] = (), spent: float = 0.0
    ) -> tuple[TrailSettings, float]:
        """The largest share of the settings that fits these seconds; raises with the least time needed if none does.

        `spent` are the seconds that planning took and would take again.
        """
        for share in SHARES:
            scaled = scaled_down(settings, share, fixed)
            total = sum(self.expected(scaled).values())
            if total <= SAFETY * seconds:
                return scaled, share
        least, constraint = total / SAFETY, f" with {', '.join(sorted(fixed))} as set" if fixed else ""
        minutes = math.ceil((least + spent) / 60 + 0.5)
        raise FewlinkError(
            f"{seconds / 60:.1f} minutes are left for training and evaluation, and the shortest useful fit takes about "
            f"{least / 60:.1f}{constraint}: give --minutes {minutes}, or a faster --device"
        )

    def shorten_training(
        self, settings: TrailSettings, seconds: float, pace: float, fixed: Collection[str] = ()
    ) -> TrailSettings:
        """Settings with as many episodes and steps as fit these seconds if everything takes `pace` times as expected.

        Epochs and views stay: the vectors are trained already.
        """
        fixed = {*fixed, "complex_epochs", "transe_epochs", "views"}
        for share in SHARES:
            scaled = scaled_down(settings, share, fixed) if share < 1 else settings
            expected = self.expected(scaled)
            if pace * (sum(expected.values()) - expected["vectors"]) <= seconds:
                break
        return scaled


def scaled_down(settings: TrailSettings, share: float, fixed: Collection[str] = ()) -> TrailSettings:
    """A share of the epochs, episodes and steps, with fewer views for small shares; `fixed` settings stay."""
    steps = settings.steps if "steps" in fixed else max(50, round(share * settings.steps))
    scaled: dict[str, Any] = {
        "complex_epochs": max(2, round(share * settings.complex_epochs)),
        "transe_epochs": max(2, round(share * settings.transe_epochs)),
        "views": min(2, settings.views) if share <= FEW_VIEWS else settings.views,
        "lessons": max(1, math.ceil(share * settings.lessons)),
        "steps": steps,
        "evaluate_every": -(-steps // EVALUATIONS),
    }
    return replace(settings, **{name: value for name, value in scaled.items() if name not in fixed})


def measure(benchmark: Benchmark, whole: Graph, settings: TrailSettings) -> TimePlan:
    """Time a few batches, episodes, steps and queries."""
    known = known_graph(benchmark)
    sizes = known.triples(), len(known.entities), len(known.relations)
    bilinear, translation = (EmbeddingTrainer(*sizes, vector_settings(settings, model)) for model in MODELS)
    epochs = _epoch_seconds(bilinear), _epoch_seconds(translation)
    episode, step, query, hidden = _training(benchmark, (bilinear.result(), translation.result()), settings)
    dev, test = (sum(max(0, len(t.pairs) - settings.shots) for t in benchmark.split(s)) for s in ("dev", "test"))
    work = Workload(hidden, dev, test, whole.triple_count / known.triple_count)
    return TimePlan(Timings(*epochs, episode, step, query), work)


def fastest_thread_count(benchmark: Benchmark, settings: TrailSettings) -> int:
    """The number of threads with the fastest batches; more threads than free processors slow each other down."""
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
            seconds[threads] = _epoch_seconds(run)
    finally:
        torch.set_num_threads(most)
    return min(seconds, key=lambda threads: seconds[threads])


def _epoch_seconds(run: EmbeddingTrainer) -> float:
    """Seconds of an epoch: on a GPU those of the second epoch; on a CPU extrapolated from batches after the first."""
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
    """Seconds of an episode, of a step and of a query, and the number of hidden relations."""
    learner = TrailLearner(benchmark, TrailVectors(tables, (tables,) * settings.views), settings, [settings.seed])
    count, store = len(learner.episodes.index), learner.episodes
    places = np.unique(np.linspace(0, count - 1, EPISODES).astype(int)).tolist()
    making, episodes = timed(lambda: store.get(places))
    learner.model.fit_scale([episode.inputs for episode in episodes])
    with torch.random.fork_rng(devices=[]):
        learner.step(0, episodes[:1])
        step = timed(lambda: float(learner.step(0, episodes)[0]))[0]
    task = min(benchmark.split("dev"), key=lambda each: -len(each.range))
    references, queries = task.split(settings.shots)
    question = Question(task.name, references, np.unique(queries[:, 0])[:HEADS], task.range)
    scorer = learner.scorer(0)
    cold, warm = (timed(lambda: float(scorer(question).sum()))[0] for _ in range(2))  # references are encoded once
    query = warm / len(question.heads) + max(0.0, cold - warm) / len(queries)
    return making / len(episodes), settings.relations * step / len(episodes), query, count // settings.lessons


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The seconds that a function takes, and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def describe(settings: TrailSettings, seconds: Mapping[str, float], share: float, minutes: float) -> str:
    """The chosen settings and the reason, as one line."""
    size = "full settings" if share == 1 else f"{share:.0%} of the full settings, to finish in {minutes:g} minutes"
    return (
        f"{size}: {settings.views} views, {settings.complex_epochs} and {settings.transe_epochs} epochs of ComplEx and "
        f"TransE vectors, {settings.lessons} episodes of each relation, {settings.steps} steps; about "
        f"{duration(sum(seconds.values()))}, estimated from the first batches"
    )
