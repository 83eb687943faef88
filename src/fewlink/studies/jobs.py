"""Jobs of a study: train and evaluate every cell of a plan that has no record, and store a record for each."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fewlink.core.progress import duration
from fewlink.core.recipes import same_settings
from fewlink.core.settings import Settings
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.examples import example_predictions
from fewlink.evaluation.ranks import QueryRanks
from fewlink.evaluation.records import Record, make_record
from fewlink.models import family_of, trained_family
from fewlink.models.cached import CachedScorer
from fewlink.models.family import BaselineFamily, Prepared
from fewlink.models.run import RunConfig, open_run
from fewlink.models.settings import ModelSettings
from fewlink.studies.plan import Plan
from fewlink.studies.workspace import Workspace
from fewlink.tasks.benchmark import Benchmark
from fewlink.tasks.candidates import PAPER_SIZE
from fewlink.training.metrics_log import read_metrics
from fewlink.training.trainer import Watch, train_runs

STEPS_PER_SECOND = {"cpu": 60, "cuda": 5_000}  # of FSRL, several runs together: on two cores, and on an H200
PAIRS_PER_SECOND = {"cpu": 800_000, "cuda": 50_000_000}  # that FSRL scores in an evaluation


@dataclass(frozen=True)
class Job:
    """A model to train with some seeds, and the protocols to evaluate each seed with."""

    model: str
    settings: Settings | None
    protocols: dict[int, tuple[Protocol, ...]]  # by seed

    @property
    def shots(self) -> list[int]:
        return sorted({protocol.shots for protocols in self.protocols.values() for protocol in protocols})

    def __str__(self) -> str:
        seeds = f", seeds {', '.join(map(str, self.protocols))}" if family_of(self.model).seeded else ""
        return f"{self.model}, K = {', '.join(map(str, self.shots))}{seeds}"


def pending_jobs(plan: Plan, workspace: Workspace) -> list[Job]:
    """The jobs of a plan that have missing records, in the order to run them."""
    benchmark = workspace.data
    store = workspace.store
    pairs = min((len(task.pairs) for split in plan.splits for task in benchmark.split(split)), default=0)
    possible = [k for k in plan.shots if k < pairs]
    jobs = []
    for model in plan.models:
        family = family_of(model)
        settings = plan.settings_of(model)
        for shots in [possible] if family.any_shots else [[k] for k in possible]:
            missing = {}
            for seed in range(plan.seeds if family.seeded else 1):
                protocols = _protocols(plan, shots, seed)
                missing[seed] = tuple(p for p in protocols if not store.holds(benchmark, model, settings, p))
            if any(missing.values()):
                jobs.append(Job(model, settings, {seed: some for seed, some in missing.items() if some}))
    return jobs


def _protocols(plan: Plan, shots: Sequence[int], seed: int) -> list[Protocol]:
    """The protocols of a job, large sets of candidates first because their cached scores include the smaller sets."""
    candidates = sorted(plan.candidates, key=("full", "paper", "released", "open").index)
    return [Protocol(split, k, c, 0, seed) for split, k, c in itertools.product(plan.splits, shots, candidates)]


@dataclass
class Clock:
    """Estimates the remaining time from the durations of jobs of the same family."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # per seed, by family

    def add(self, job: Job, seconds: float) -> None:
        """Record the duration of a finished job."""
        self.seconds[family_of(job.model).name].append(seconds / len(job.protocols))

    def left(self, jobs: list[Job]) -> float:
        """The estimated seconds of these jobs."""
        means = {family: statistics.fmean(seconds) for family, seconds in self.seconds.items()}
        overall = statistics.fmean(itertools.chain.from_iterable(self.seconds.values()))
        return sum(means.get(family_of(job.model).name, overall) * len(job.protocols) for job in jobs)


def run_jobs(jobs: list[Job], workspace: Workspace) -> None:
    """Run jobs one after another, and store each record at once."""
    clock = Clock()
    for number, job in enumerate(jobs, 1):
        workspace.log(f"[{number}/{len(jobs)}] {job}{_expected(job, workspace)}")
        start = time.monotonic()
        for seed, prepared in _scorers(job, workspace):
            _measure(job, seed, prepared, workspace)
        seconds = time.monotonic() - start
        clock.add(job, seconds)
        rest = jobs[number:]
        left = f", about {duration(clock.left(rest))} left" if rest else ""
        workspace.log(f"[{number}/{len(jobs)}] {job}: done in {duration(seconds)}{left}")


def _expected(job: Job, workspace: Workspace) -> str:
    """What is known about the duration of a job beforehand: that of training and evaluating FSRL and its kin."""
    settings = job.settings
    if family_of(job.model).name != "fewshot" or not isinstance(settings, ModelSettings):
        return ""
    dev = Protocol("dev", job.shots[0], settings.evaluate_candidates)
    pairs = settings.steps // settings.evaluate_every * len(job.protocols) * pairs_of(workspace.data, dev)
    pairs += sum(pairs_of(workspace.data, each) for protocols in job.protocols.values() for each in protocols)
    evaluations = duration(pairs / PAIRS_PER_SECOND[_kind(workspace.device)])
    training = training_time(settings.steps * len(job.protocols), workspace.device)
    return f": at most {training}, {evaluations} for evaluations, and more for vectors"


def training_time(steps: int, device: str) -> str:
    """The steps of all runs of FSRL and its kin together, and how long they take, as text."""
    rate = STEPS_PER_SECOND[_kind(device)]
    return f"{steps:,} steps, about {duration(steps / rate)} at {rate:,} a second"


def pairs_of(benchmark: Benchmark, protocol: Protocol) -> int:
    """About how many pairs an evaluation scores: each query with the candidates of its relation."""
    most = PAPER_SIZE if protocol.candidates in ("paper", "released") else len(benchmark.graph.entities)
    tasks = benchmark.split(protocol.split)
    return sum(max(len(task.pairs) - protocol.shots, 0) * min(len(task.range), most) for task in tasks)


def _kind(device: str) -> str:
    return "cpu" if device == "cpu" else "cuda"


def _measure(job: Job, seed: int, prepared: Prepared, workspace: Workspace) -> None:
    benchmark = workspace.data
    scorer = CachedScorer(prepared.scorer)
    facts = {"benchmark": benchmark.name, "data_sha256": benchmark.fingerprint, "model": job.model}
    for protocol in job.protocols[seed]:
        evaluation = evaluate(benchmark, scorer, protocol)
        record = make_record(evaluation, **facts, config=prepared.config)
        if (protocol.split, protocol.candidates, seed) == ("test", "full", 0):
            record = record.model_copy(update={"examples": example_predictions(benchmark, scorer, evaluation)})
        workspace.store.add(record, ranks=QueryRanks.of(evaluation))


def _scorers(job: Job, workspace: Workspace) -> Iterator[tuple[int, Prepared]]:
    """The scorer of each seed, trained if necessary."""
    family = family_of(job.model)
    if isinstance(family, BaselineFamily):
        yield from _baselines(job, family, workspace)
    else:
        assert isinstance(job.settings, ModelSettings)
        yield from run_models(job.settings, job.shots[0], list(job.protocols), workspace).items()


def _baselines(job: Job, family: BaselineFamily, workspace: Workspace) -> Iterator[tuple[int, Prepared]]:
    settings = job.settings
    recipe = {"recipe": job.model} if settings else {}
    if settings is not None:
        settings = settings.replace(device=workspace.device)
    for seed in job.protocols:
        reporter = workspace.on_epoch(f"{job.model}, K = {job.shots[0]}, seed {seed}")
        prepared = family.prepare(job.model, workspace.data, settings, shots=job.shots[0], seed=seed, on_epoch=reporter)
        yield seed, Prepared(prepared.scorer, {**recipe, **prepared.config})


def run_models(
    settings: ModelSettings, shots: int, seeds: Sequence[int], workspace: Workspace, *, watch: Watch | None = None
) -> dict[int, Prepared]:
    """The best model of each seed's run, by seed; unfinished runs are started or continued.

    Each number of references has its own runs, unless models of the family take any number. Watched runs have their own
    folders, too.
    """
    model, family = settings.model, trained_family(settings.model)
    shots = settings.shots if family.any_shots else shots
    settings = settings.replace(shots=shots, device=workspace.device)
    recipe = family.recipe(model).vectors
    folder = workspace.work / family.vectors_name(settings, recipe, workspace.data)
    family.pretrain(workspace.data, settings, recipe, folder, workspace.on_epoch)
    vectors = family.open_vectors(folder, workspace.data.graph.fingerprint)
    parent = workspace.run_folder(f"{model}-{shots}shot{'-watched' if watch else ''}", settings)
    runs = {seed: parent / f"seed-{seed}" for seed in seeds}
    results = train_runs(workspace.data, vectors, settings, runs, on_event=workspace.on_step(model), watch=watch)
    prepared = {}
    for seed, result in zip(runs, results, strict=True):
        config = RunConfig.read(runs[seed])
        curve = [[line["step"], round(line["dev"]["mrr"], 4)] for line in read_metrics(runs[seed])]
        measured = {"best_step": result.best_step, "seconds": round(result.seconds, 1), "dev_mrr": curve}
        facts = {"settings": config.settings.as_dict(), "embeddings": config.embeddings, "measured": measured}
        prepared[seed] = Prepared(open_run(runs[seed], workspace.data, device=workspace.device), facts, runs[seed])
    return prepared


def finished_records(plan: Plan, workspace: Workspace) -> list[Record]:
    """The records that a study shows, in the plan's order of models."""
    settings = {model: plan.settings_of(model) for model in plan.models}
    records = [
        r
        for r in workspace.store.records
        if r.model in settings
        and r.data_sha256 == workspace.benchmark.fingerprint
        and r.references == "first"
        and r.split in plan.splits
        and r.shots in plan.shots
        and r.candidates in plan.candidates
        and r.seed < plan.seeds
        and same_settings(r.config.get("settings"), settings[r.model])
    ]
    return sorted(records, key=lambda r: (plan.models.index(r.model), r.split, r.candidates, r.shots, r.seed))
