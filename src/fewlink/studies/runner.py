"""Run what a study still wants: train, evaluate, store a record for each cell; what was stopped continues."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewlink.embeddings import EmbeddingSettings
from fewlink.evaluation.evaluator import evaluate
from fewlink.evaluation.examples import examples
from fewlink.evaluation.records import make_record
from fewlink.progress import duration
from fewlink.scorers import LEARNING_FREE, Scorer
from fewlink.scorers.relational import train_baseline
from fewlink.scorers.remembering import Remembering
from fewlink.settings import Settings
from fewlink.studies.jobs import Job
from fewlink.studies.plan import Kind
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.chosen import open_vectors, training_recipe, vectors_for
from fewlink.training.run import RunConfig, open_run
from fewlink.training.settings import AnySettings, TrailSettings, TrainingSettings
from fewlink.training.trainer import Watch, train_together

Reporter = Callable[[dict[str, Any]], None]


def _silent(title: str) -> Reporter:
    return lambda event: None


@dataclass(frozen=True)
class Bench:
    """Where a study works: the benchmark, a folder for records, one for runs and vectors, a device, who is told.

    `tell` gets a line about each job; `on_epoch` and `on_step` make, from a title, what is called while training.
    """

    benchmark: Benchmark
    results: Path
    work: Path
    device: str = "cpu"
    tell: Callable[[str], None] = lambda line: None
    on_epoch: Callable[[str], Reporter] = _silent
    on_step: Callable[[str], Reporter] = _silent

    def place(self, what: str, settings: Settings) -> Path:
        """A folder of its own for each choice of settings."""
        own = {name: value for name, value in settings.as_dict().items() if name not in ("seed", "device")}
        digest = hashlib.sha256(json.dumps([own, self.benchmark.fingerprint]).encode()).hexdigest()[:8]
        return self.work / f"{what}-{digest}"


@dataclass
class Clock:
    """How long what is left may take, from what its kind took so far."""

    begun: float = field(default_factory=time.monotonic)
    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def took(self, job: Job, seconds: float) -> None:
        self.taken[job.kind].append(seconds / len(job.asked))

    def left(self, jobs: list[Job]) -> float:
        every = [s for kind in self.taken.values() for s in kind]
        means = {kind: sum(s) / len(s) for kind, s in self.taken.items()}
        return sum(means.get(job.kind, sum(every) / len(every)) * len(job.asked) for job in jobs)


def run_jobs(jobs: list[Job], bench: Bench) -> None:
    """Do all jobs, one after the other; each record is stored as soon as it is there."""
    clock = Clock()
    for number, job in enumerate(jobs, 1):
        bench.tell(f"[{number}/{len(jobs)}] {job}")
        before = time.monotonic()
        for seed, made in _scorers(job, bench):
            _measure(job, seed, made, bench)
        clock.took(job, time.monotonic() - before)
        rest = jobs[number:]
        left = f", about {duration(clock.left(rest))} left" if rest else ""
        bench.tell(f"[{number}/{len(jobs)}] {job}: done in {duration(time.monotonic() - before)}{left}")


@dataclass(frozen=True)
class Made:
    """A scorer, the configuration its records keep, and the run it comes from, where there is one."""

    scorer: Scorer
    config: dict[str, Any]
    run: Path | None = None


def _measure(job: Job, seed: int, made: Made, bench: Bench) -> None:
    benchmark, scorer = bench.benchmark, Remembering(made.scorer)
    for protocol in job.asked[seed]:
        evaluation = evaluate(benchmark, scorer, protocol)
        record = make_record(
            evaluation,
            benchmark=benchmark.name,
            data_sha256=benchmark.fingerprint,
            model=job.model,
            config=made.config,
        )
        if (protocol.split, protocol.candidates, seed) == ("test", "full", 0):
            record = record.model_copy(update={"examples": examples(benchmark, scorer, evaluation)})
        record.save(bench.results)


def _scorers(job: Job, bench: Bench) -> Iterator[tuple[int, Made]]:
    """Each seed's scorer, trained where it has to be."""
    if job.kind == "learning-free":
        yield from ((s, Made(LEARNING_FREE[job.model](bench.benchmark.graph, s), {})) for s in job.asked)
    elif isinstance(job.settings, EmbeddingSettings):
        yield from _baselines(job, job.settings, bench)
    else:
        yield from _runs(job, bench)


def _baselines(job: Job, settings: EmbeddingSettings, bench: Bench) -> Iterator[tuple[int, Made]]:
    (shots,) = job.shots
    for seed in job.asked:
        seeded = dataclasses.replace(settings, seed=seed, device=bench.device)
        title = f"{job.model}, K = {shots}, seed {seed}"
        trained = train_baseline(bench.benchmark, seeded, shots=shots, seed=seed, on_epoch=bench.on_epoch(title))
        facts = {"recipe": job.model, "settings": seeded.as_dict(), "measured": trained.embeddings.facts}
        yield seed, Made(trained, facts)


def _runs(job: Job, bench: Bench) -> Iterator[tuple[int, Made]]:
    assert job.settings is not None
    yield from run_models(job.model, job.kind, job.settings, job.shots[0], list(job.asked), bench).items()


def run_models(
    model: str,
    kind: Kind,
    settings: Settings,
    shots: int,
    seeds: Sequence[int],
    bench: Bench,
    *,
    watch: Watch | None = None,
) -> dict[int, Made]:
    """The best model of each seed's run, by seed; trained, or continued, where it is not finished.

    Each number of references has its own runs, but for TRAIL, which learns from several and answers with any. So do
    runs that are watched.
    """
    assert isinstance(settings, TrainingSettings | TrailSettings)
    shots = settings.shots if kind == "trail" else shots
    settings = dataclasses.replace(settings, shots=shots, device=bench.device)
    vectors = open_vectors(_vectors(settings, bench), bench.benchmark, settings)
    place = bench.place(f"{model}-{shots}shot{'-watched' if watch else ''}", settings)
    runs = {seed: place / f"seed-{seed}" for seed in seeds}
    results = train_together(bench.benchmark, vectors, settings, runs, on_event=bench.on_step(model), watch=watch)
    made = {}
    for seed, result in zip(runs, results, strict=True):
        config = RunConfig.read(runs[seed])
        measured = {"best_step": result.best_step, "seconds": round(result.seconds, 1)}
        facts = {"settings": config.settings.as_dict(), "embeddings": config.embeddings, "measured": measured}
        made[seed] = Made(open_run(runs[seed], bench.benchmark, device=bench.device), facts, runs[seed])
    return made


def _vectors(settings: AnySettings, bench: Bench) -> Path:
    """The vectors of a model, shared by all models and numbers of references that want the same."""
    wanted = training_recipe(settings.model).vectors
    if isinstance(settings, TrailSettings):
        shared = TrailSettings(
            views=settings.views,
            dim=settings.dim,
            half=settings.half,
            complex_epochs=settings.complex_epochs,
            transe_epochs=settings.transe_epochs,
        )
        place = bench.place("trail-vectors", shared)
    else:
        what = f"{wanted.recipe}{'-with-train' if wanted.with_train_tasks else ''}-vectors"
        place = bench.work / "-".join([what, *wanted.set, bench.benchmark.fingerprint[:8]]).replace("=", "-")
    return vectors_for(bench.benchmark, settings, wanted, place, bench.on_epoch)
