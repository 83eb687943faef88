"""The time of a fit: estimates of each stage, settings that fit a time limit, and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from fewlink.base.errors import FewlinkError, InputError
from fewlink.base.progress import duration
from fewlink.base.recipes import current_name
from fewlink.base.storage import read_json, write_json
from fewlink.data import Benchmark
from fewlink.data.training_graph import known_graph
from fewlink.embeddings import Embeddings
from fewlink.embeddings.trainer import EmbeddingTrainer
from fewlink.graph import Graph
from fewlink.scorers import Question
from fewlink.trail_0_1.learner import SCALE_EPISODES, Trail01Learner
from fewlink.trail_0_1.model import Trail01Settings
from fewlink.trail_0_1.vectors import MODELS, Trail01Vectors, vector_settings

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

    def expected(self, settings: Trail01Settings) -> dict[str, float]:
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
        self, settings: Trail01Settings, seconds: float, fixed: Collection[str] = (), spent: float = 0.0
    ) -> tuple[Trail01Settings, float]:
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
        self, settings: Trail01Settings, seconds: float, pace: float, fixed: Collection[str] = ()
    ) -> Trail01Settings:
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


def scaled_down(settings: Trail01Settings, share: float, fixed: Collection[str] = ()) -> Trail01Settings:
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


def measure(benchmark: Benchmark, whole: Graph, settings: Trail01Settings) -> TimePlan:
    """Time a few batches, episodes, steps and queries."""
    known = known_graph(benchmark)
    sizes = known.triples(), len(known.entities), len(known.relations)
    bilinear, translation = (EmbeddingTrainer(*sizes, vector_settings(settings, model)) for model in MODELS)
    epochs = _epoch_seconds(bilinear), _epoch_seconds(translation)
    episode, step, query, hidden = _training(benchmark, (bilinear.result(), translation.result()), settings)
    dev, test = (sum(max(0, len(t.pairs) - settings.shots) for t in benchmark.split(s)) for s in ("dev", "test"))
    work = Workload(hidden, dev, test, whole.triple_count / known.triple_count)
    return TimePlan(Timings(*epochs, episode, step, query), work)


def fastest_thread_count(benchmark: Benchmark, settings: Trail01Settings) -> int:
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
    benchmark: Benchmark, tables: tuple[Embeddings, Embeddings], settings: Trail01Settings
) -> tuple[float, float, float, int]:
    """Seconds of an episode, of a step and of a query, and the number of hidden relations."""
    learner = Trail01Learner(benchmark, Trail01Vectors(tables, (tables,) * settings.views), settings, [settings.seed])
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


def describe(settings: Trail01Settings, seconds: Mapping[str, float], share: float, minutes: float) -> str:
    """The chosen settings and the reason, as one line."""
    size = "full settings" if share == 1 else f"{share:.0%} of the full settings, to finish in {minutes:g} minutes"
    return (
        f"{size}: {settings.views} views, {settings.complex_epochs} and {settings.transe_epochs} epochs of ComplEx and "
        f"TransE vectors, {settings.lessons} episodes of each relation, {settings.steps} steps; about "
        f"{duration(sum(seconds.values()))}, estimated from the first batches"
    )


FIT = "fit.json"
EVERY = 5.0  # seconds between lines of progress
TITLES = {
    "planning": "carving tasks and measuring speed",
    "vectors": "vectors of the known graph and of each view",
    "training": "training on hidden relations",
    "whole graph": "vectors of the whole graph, for predictions",
    "measuring": "evaluation on dev and test, calibration and model card",
}


def read_fit(run: Path, format: str) -> dict[str, Any] | None:
    """The record of a fit, or None if it has not started."""
    path = run / FIT
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != format:
        raise InputError(path, f"is not of the format {format}: choose another folder")
    if isinstance(settings := content.get("settings"), dict):
        settings["model"] = current_name(str(settings.get("model")), settings)
    return content


class Stages:
    """Times the stages of a fit, reports progress, and writes `record` to fit.json after each stage."""

    def __init__(self, run: Path, record: dict[str, Any], tell: Callable[[str], None]) -> None:
        self.run, self.record, self.tell = run, record, tell
        self._stage, self._begin, self._last_line = "", time.monotonic(), 0.0

    @property
    def finished(self) -> bool:
        return all(stage in self.record["seconds"] for stage in STAGES)

    def settings(self, **changes: Any) -> Trail01Settings:
        """The chosen settings, with changes."""
        return Trail01Settings.from_dict({**self.record["settings"], **changes})

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the seconds of a stage."""
        self._stage, self._begin = name, time.monotonic()
        left = f"  about {duration(self.seconds_left(0.0))} left in all" if "expected" in self.record else ""
        self.tell(f"{TITLES[name]}{left}")
        yield
        self.record["seconds"][name] = time.monotonic() - self._begin

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """Whether a stage is still to be done; if it then succeeds, the record is written."""
        if name in self.record["seconds"]:
            yield False
            return
        with self.timed(name):
            yield True
        write_json(self.run / FIT, self.record)

    @property
    def pace(self) -> float:
        """The seconds of the finished stages divided by the expected ones."""
        done = [stage for stage in STAGES if stage in self.record["seconds"]]
        expected = sum(self.record["expected"][stage] for stage in done)
        return float(sum(self.record["seconds"][stage] for stage in done) / expected) if expected else 1.0

    def seconds_left(self, share: float) -> float:
        """Seconds to the end of the fit when this share of the current stage is done."""
        expected, spent = self.record["expected"], self.record["seconds"]
        passed = time.monotonic() - self._begin
        current = passed / share * (1 - share) if share > 0.05 else expected.get(self._stage, 0.0) * self.pace
        later = [stage for stage in STAGES if stage not in spent and stage != self._stage]
        return float(current + self.pace * sum(expected[stage] for stage in later))

    def line(self, text: str, share: float, *, now: bool = False) -> None:
        """Report progress, at most every few seconds unless `now`."""
        if now or time.monotonic() - self._last_line >= EVERY:
            self._last_line = time.monotonic()
            self.tell(f"{text}  about {duration(self.seconds_left(share))} left in all")

    def epoch_reporter(self, title: str, index: int, count: int) -> Callable[[dict[str, Any]], None]:
        """A reporter for the epochs of one of several tables."""

        def report(trace: dict[str, Any]) -> None:
            done = trace["epoch"] / trace["epochs"]
            text = f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}"
            self.line(text, (index + done) / count)

        return report

    def report_evaluation(self, event: dict[str, Any]) -> None:
        """A reporter for training: one line per evaluation."""
        if event["event"] == "continued":
            self.tell(f"training  step {event['step']}/{event['steps']}  continued")
        else:
            text = f"training  step {event['step']}/{event['steps']}  loss {event['loss']:.4f}"
            self.line(f"{text}  dev MRR {event['dev']['mrr']:.3f}", event["step"] / event["steps"], now=True)

    def catch_up(self, fixed: Sequence[str]) -> None:
        """Before training: reduce the steps if the vectors took so long that the time limit would be exceeded."""
        settings, plan = self.settings(), TimePlan(Timings(**self.record["speed"]), Workload(**self.record["work"]))
        seconds = 60 * self.record["asked"]["minutes"] - sum(self.record["seconds"].values())
        shortened = plan.shorten_training(settings, seconds, self.pace, fixed)
        expected = plan.expected(shortened)
        over = self.pace * (sum(expected.values()) - expected["vectors"]) - seconds
        if shortened != settings:
            self._note(
                f"vectors took {self.pace:.1f} times the expected time: {shortened.lessons} episodes and "
                f"{shortened.steps} steps instead of {settings.lessons} and {settings.steps}"
            )
        if over > 0:
            self._note(
                f"the fit will exceed its time by about {duration(over)}: the settings cannot be reduced further"
            )
        expected["vectors"] = self.record["expected"]["vectors"]
        self.record.update(settings=shortened.as_dict(), expected=expected)
        write_json(self.run / FIT, self.record)

    def _note(self, text: str) -> None:
        self.record["notes"].append(text)
        self.tell(f"note: {text}")
