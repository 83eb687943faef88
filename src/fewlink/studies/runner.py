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

from fewlink.base.progress import duration
from fewlink.base.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.evaluation.evaluator import evaluate, example_predictions
from fewlink.evaluation.records import make_record
from fewlink.scorers.cached import CachedScorer
from fewlink.studies.jobs import Job
from fewlink.training.family import BaselineFamily, ModelSettings, Prepared, Reporter, family_of, trained_family
from fewlink.training.run import RunConfig, open_run
from fewlink.training.trainer import Watch, train_runs


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
        self.taken[family_of(job.model).name].append(seconds / len(job.asked))

    def left(self, jobs: list[Job]) -> float:
        every = [s for kind in self.taken.values() for s in kind]
        means = {family: sum(s) / len(s) for family, s in self.taken.items()}
        return sum(means.get(family_of(job.model).name, sum(every) / len(every)) * len(job.asked) for job in jobs)


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


def _measure(job: Job, seed: int, made: Prepared, bench: Bench) -> None:
    benchmark, scorer = bench.benchmark, CachedScorer(made.scorer)
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
            record = record.model_copy(update={"examples": example_predictions(benchmark, scorer, evaluation)})
        record.save(bench.results)


def _scorers(job: Job, bench: Bench) -> Iterator[tuple[int, Prepared]]:
    """Each seed's scorer, trained where it has to be."""
    family = family_of(job.model)
    if isinstance(family, BaselineFamily):
        yield from _baselines(job, family, bench)
    else:
        assert isinstance(job.settings, ModelSettings)
        yield from run_models(job.settings, job.shots[0], list(job.asked), bench).items()


def _baselines(job: Job, family: BaselineFamily, bench: Bench) -> Iterator[tuple[int, Prepared]]:
    settings, more = job.settings, {}
    if settings is not None:
        settings, more = dataclasses.replace(settings, device=bench.device), {"recipe": job.model}  # type: ignore[call-arg]
    for seed in job.asked:
        reporter = bench.on_epoch(f"{job.model}, K = {job.shots[0]}, seed {seed}")
        made = family.prepare(job.model, bench.benchmark, settings, shots=job.shots[0], seed=seed, on_epoch=reporter)
        yield seed, Prepared(made.scorer, {**more, **made.config})


def run_models(
    settings: ModelSettings, shots: int, seeds: Sequence[int], bench: Bench, *, watch: Watch | None = None
) -> dict[int, Prepared]:
    """The best model of each seed's run, by seed; trained, or continued, where it is not finished.

    Each number of references has its own runs, unless the family's models take any. So do runs that are watched.
    """
    model, family = settings.model, trained_family(settings.model)
    shots = settings.shots if family.any_shots else shots
    settings = dataclasses.replace(settings, shots=shots, device=bench.device)
    wanted = family.recipe(model).vectors
    folder = bench.work / family.vectors_name(settings, wanted, bench.benchmark)
    family.pretrain(bench.benchmark, settings, wanted, folder, bench.on_epoch)
    vectors = family.open_vectors(folder, bench.benchmark.graph.fingerprint)
    place = bench.place(f"{model}-{shots}shot{'-watched' if watch else ''}", settings)
    runs = {seed: place / f"seed-{seed}" for seed in seeds}
    results = train_runs(bench.benchmark, vectors, settings, runs, on_event=bench.on_step(model), watch=watch)
    made = {}
    for seed, result in zip(runs, results, strict=True):
        config = RunConfig.read(runs[seed])
        measured = {"best_step": result.best_step, "seconds": round(result.seconds, 1)}
        facts = {"settings": config.settings.as_dict(), "embeddings": config.embeddings, "measured": measured}
        made[seed] = Prepared(open_run(runs[seed], bench.benchmark, device=bench.device), facts, runs[seed])
    return made
