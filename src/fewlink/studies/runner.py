"""A study's plan, and what runs it: train, evaluate and store a record for each cell that has none."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fewlink.core.errors import FewlinkError, InputError, choose, read_file, reading
from fewlink.core.progress import duration
from fewlink.core.recipes import OWN
from fewlink.core.settings import Settings
from fewlink.data.benchmark import Benchmark
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.examples import example_predictions
from fewlink.evaluation.ranks import QueryRanks
from fewlink.evaluation.records import RecordStore, make_record
from fewlink.models.family import (
    BaselineFamily,
    ModelSettings,
    Prepared,
    Reporter,
    families,
    family_of,
    trained_family,
)
from fewlink.report.tables import Table
from fewlink.scorers.base import CachedScorer
from fewlink.training.run import RunConfig, open_run
from fewlink.training.trainer import Watch, train_runs

Figures = dict[str, float]
Split = Literal["train", "dev", "test"]
Candidates = Literal["paper", "full", "open"]


class Tiny(BaseModel):
    """A version that runs in seconds: fewer models and seeds on built-in data, settings by family."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str = "umls"
    models: list[str] = Field(default_factory=list)
    shots: list[int] = Field(default_factory=list)
    seeds: int = Field(default=1, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)


class Rivals(BaseModel):
    """Models of a leaderboard that are measured alike: with these benchmarks, references, candidates and seeds.

    `command` makes the records of one model; {model}, {file} (its name with underscores), {benchmark}, {protocols} and
    {seeds} stand for what is missing. The study itself runs what `needs` nothing special. `source`: where the model is
    from; `learnt`: what it has learnt from before it is asked; `why`: the reason if something is left out.
    """

    model_config = ConfigDict(extra="forbid")

    models: list[str]
    benchmarks: list[str]
    shots: list[int] = [1, 3, 5]
    candidates: list[Candidates] = ["full", "paper", "open"]
    seeds: int = Field(default=5, ge=1)
    needs: str = ""
    command: str
    source: str = ""
    learnt: str = ""
    why: str = ""

    def only(
        self, models: Sequence[str], shots: Sequence[int] = (), seeds: int = 5, benchmark: str | None = None
    ) -> Rivals:
        """A part of these rivals; an empty or None choice keeps all."""
        changes = {
            "models": [m for m in self.models if m in models or not models],
            "shots": [k for k in self.shots if k in shots or not shots],
            "seeds": min(seeds, self.seeds),
            "benchmarks": [b for b in self.benchmarks if b == benchmark or benchmark is None],
        }
        return self.model_copy(update=changes)


class Plan(BaseModel):
    """What a study runs: every model with every number of references and every seed, on these splits and candidates.

    `settings` are changes to a model's own recipe; `relations` are those of pair maps. `published` are the paper's
    figures by benchmark, model, split (or number of a relation) and metric, `published_data` its counts by benchmark.
    `rivals`, in the place of `models`, are those of a leaderboard, with benchmarks of their own.
    """

    model_config = ConfigDict(extra="forbid")

    title: str
    about: str
    expect: str
    benchmark: str = "nell-one"
    models: list[str] = Field(default_factory=list)
    splits: list[Split] = ["dev", "test"]
    candidates: list[Candidates] = ["paper", "full"]
    shots: list[int] = [3]
    seeds: int = Field(default=5, ge=1)
    relations: list[str] = Field(default_factory=list)
    settings: dict[str, list[str]] = Field(default_factory=dict)
    published: dict[str, dict[str, dict[str, Figures]]] = Field(default_factory=dict)
    published_data: dict[str, dict[str, int]] = Field(default_factory=dict)
    rivals: list[Rivals] = Field(default_factory=list)
    tiny: Tiny = Tiny()

    @property
    def names(self) -> list[str]:
        """All models of the plan."""
        return list(dict.fromkeys([*self.models, *(model for each in self.rivals for model in each.models)]))

    def settings_of(self, model: str) -> Settings | None:
        """The settings that a model is trained with; None if it has none."""
        family = family_of(model)
        if family.settings is None:
            return None
        settings: Settings = family.recipe(model).settings.adjusted(self.settings.get(model, []))
        return settings

    def as_tiny(self) -> Plan:
        """The same study in seconds, on built-in data."""
        models = self.tiny.models or self.models
        return self.model_copy(
            update={
                "benchmark": self.tiny.benchmark,
                "models": [] if self.rivals else models,
                "rivals": [each.only(models, seeds=1, benchmark=self.tiny.benchmark) for each in self.rivals],
                "shots": self.tiny.shots or self.shots,
                "seeds": self.tiny.seeds,
                "relations": self.tiny.relations,
                "settings": {m: self.tiny.settings.get(family_of(m).name, []) for m in models},
            }
        )

    def with_only(
        self, models: Sequence[str], shots: Sequence[int], seeds: int | None, benchmark: str | None = None
    ) -> Plan:
        """The plan with only these models, numbers of references and seeds, and rivals on this benchmark; an empty or
        None choice keeps all."""
        for model in models:
            choose("model of this study", model, dict.fromkeys(self.names))
        seeds = self.seeds if seeds is None else seeds
        for name, value in (("shots", min(shots, default=1)), ("seeds", seeds)):
            if value < 1:
                raise FewlinkError(f"{name} must be at least 1, got {value}")
        rivals = [each.only(models, shots, seeds, benchmark) for each in self.rivals]
        chosen = [m for m in self.models if m in models] or self.models
        return self.model_copy(
            update={"models": chosen, "rivals": rivals, "shots": list(shots) or self.shots, "seeds": seeds}
        )


def read_plan(which: str | Path) -> Plan:
    """The plan of a study, by its name, or from a file: any path, or a text that ends with .toml."""
    if isinstance(which, Path) or which.endswith(".toml"):
        path = Path(which)
        with reading(path, "write it again"):
            text = read_file(path).decode()
    else:
        text = choose("study", which, plan_texts())
        path = Path(f"{which}.toml")
    try:
        plan = Plan.model_validate(tomllib.loads(text))
        for family in plan.tiny.settings:
            choose("family", family, families())
        for version in (plan, plan.as_tiny()):
            for model in version.models:
                version.settings_of(model)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(path, f"is not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except FewlinkError as error:
        raise InputError(path, str(error)) from None
    return plan


def plan_texts() -> dict[str, str]:
    """The TOML text of every plan in the package, by name."""
    entries = sorted((files("fewlink") / "studies" / "recipes").iterdir(), key=lambda entry: entry.name)
    return {e.name.removesuffix(".toml"): e.read_text("utf-8") for e in entries if e.name.endswith(".toml")}


def published_figures() -> dict[str, dict[str, dict[str, Figures]]]:
    """The paper's figures by benchmark, model, split and metric."""
    figures: dict[str, dict[str, dict[str, Figures]]] = {}
    for name in ("ablation", "overall"):
        for benchmark, models in read_plan(name).published.items():
            figures.setdefault(benchmark, {}).update(models)
    return figures


def _silent(title: str) -> Reporter:
    return lambda event: None


@dataclass(frozen=True)
class Workspace:
    """Where a study runs: the benchmark, a folder for results, one for runs and vectors, and a device.

    `checkpoint`: a file of weights that a model needs, such as ULTRA's.
    `tell` gets a line about each job; `on_epoch` and `on_step` make a reporter of training events from a title.
    """

    benchmark: Benchmark
    results: Path
    work: Path
    device: str = "cpu"
    checkpoint: Path | None = None
    tell: Callable[[str], None] = lambda line: None
    on_epoch: Callable[[str], Reporter] = _silent
    on_step: Callable[[str], Reporter] = _silent

    @property
    def store(self) -> RecordStore:
        """The results, as they are now."""
        return RecordStore(self.results)

    def run_folder(self, name: str, settings: Settings) -> Path:
        """A folder for the runs with these settings, whatever their seed and device."""
        choices = {name: value for name, value in settings.as_dict().items() if name not in OWN}
        digest = hashlib.sha256(json.dumps([choices, self.benchmark.fingerprint]).encode()).hexdigest()[:8]
        return self.work / f"{name}-{digest}"


@dataclass(frozen=True)
class Job:
    """A model to train with some seeds, and the protocols to evaluate each of them under."""

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
    """Everything in a plan that has no record, in the order to run it."""
    benchmark, store = workspace.benchmark, workspace.store
    pairs = min((len(task.pairs) for split in plan.splits for task in benchmark.split(split)), default=0)
    possible = [k for k in plan.shots if k < pairs]
    jobs = []
    for model in plan.models:
        family, settings = family_of(model), plan.settings_of(model)
        for shots in [possible] if family.any_shots else [[k] for k in possible]:
            missing = {}
            for seed in range(plan.seeds if family.seeded else 1):
                protocols = _protocols(plan, shots, seed)
                missing[seed] = tuple(p for p in protocols if not store.holds(benchmark, model, settings, p))
            if any(missing.values()):
                jobs.append(Job(model, settings, {seed: some for seed, some in missing.items() if some}))
    return jobs


def _protocols(plan: Plan, shots: Sequence[int], seed: int) -> list[Protocol]:
    """Large sets of candidates first: their scores include those of the smaller sets."""
    candidates = sorted(plan.candidates, key=("full", "paper", "open").index)
    return [Protocol(split, k, c, 0, seed) for split, k, c in itertools.product(plan.splits, shots, candidates)]


@dataclass
class Clock:
    """Estimates the time that is left from what jobs of the same family took."""

    begun: float = field(default_factory=time.monotonic)
    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def took(self, job: Job, seconds: float) -> None:
        self.taken[family_of(job.model).name].append(seconds / len(job.protocols))

    def left(self, jobs: list[Job]) -> float:
        every = [s for seconds in self.taken.values() for s in seconds]
        means = {family: sum(s) / len(s) for family, s in self.taken.items()}
        return sum(means.get(family_of(job.model).name, sum(every) / len(every)) * len(job.protocols) for job in jobs)


def run_jobs(jobs: list[Job], workspace: Workspace) -> None:
    """Run jobs one after the other; each record is stored as soon as it is made."""
    clock = Clock()
    for number, job in enumerate(jobs, 1):
        workspace.tell(f"[{number}/{len(jobs)}] {job}")
        before = time.monotonic()
        for seed, prepared in _scorers(job, workspace):
            _measure(job, seed, prepared, workspace)
        clock.took(job, time.monotonic() - before)
        rest = jobs[number:]
        left = f", about {duration(clock.left(rest))} left" if rest else ""
        workspace.tell(f"[{number}/{len(jobs)}] {job}: done in {duration(time.monotonic() - before)}{left}")


def _measure(job: Job, seed: int, prepared: Prepared, workspace: Workspace) -> None:
    benchmark, scorer = workspace.benchmark, CachedScorer(prepared.scorer)
    facts = {"benchmark": benchmark.name, "data_sha256": benchmark.fingerprint, "model": job.model}
    for protocol in job.protocols[seed]:
        evaluation = evaluate(benchmark, scorer, protocol)
        record = make_record(evaluation, **facts, config=prepared.config)
        if (protocol.split, protocol.candidates, seed) == ("test", "full", 0):
            record = record.model_copy(update={"examples": example_predictions(benchmark, scorer, evaluation)})
        workspace.store.add(record, ranks=QueryRanks.of(evaluation))


def _scorers(job: Job, workspace: Workspace) -> Iterator[tuple[int, Prepared]]:
    """Each seed's scorer, trained if necessary."""
    family = family_of(job.model)
    if isinstance(family, BaselineFamily):
        yield from _baselines(job, family, workspace)
    else:
        assert isinstance(job.settings, ModelSettings)
        yield from run_models(job.settings, job.shots[0], list(job.protocols), workspace).items()


def _baselines(job: Job, family: BaselineFamily, workspace: Workspace) -> Iterator[tuple[int, Prepared]]:
    settings, more = job.settings, {}
    if settings is not None:
        settings, more = dataclasses.replace(settings, device=workspace.device), {"recipe": job.model}  # type: ignore[call-arg]
    for seed in job.protocols:
        reporter = workspace.on_epoch(f"{job.model}, K = {job.shots[0]}, seed {seed}")
        prepared = family.prepare(
            job.model, workspace.benchmark, settings, shots=job.shots[0], seed=seed, on_epoch=reporter
        )
        yield seed, Prepared(prepared.scorer, {**more, **prepared.config})


def run_models(
    settings: ModelSettings, shots: int, seeds: Sequence[int], workspace: Workspace, *, watch: Watch | None = None
) -> dict[int, Prepared]:
    """The best model of each seed's run, by seed; runs that are not finished are started or continued.

    Each number of references has its own runs, unless the family's models take any. Watched runs are separate too.
    """
    model, family = settings.model, trained_family(settings.model)
    shots = settings.shots if family.any_shots else shots
    settings = dataclasses.replace(settings, shots=shots, device=workspace.device)
    recipe = family.recipe(model).vectors
    folder = workspace.work / family.vectors_name(settings, recipe, workspace.benchmark)
    family.pretrain(workspace.benchmark, settings, recipe, folder, workspace.on_epoch)
    vectors = family.open_vectors(folder, workspace.benchmark.graph.fingerprint)
    parent = workspace.run_folder(f"{model}-{shots}shot{'-watched' if watch else ''}", settings)
    runs = {seed: parent / f"seed-{seed}" for seed in seeds}
    results = train_runs(workspace.benchmark, vectors, settings, runs, on_event=workspace.on_step(model), watch=watch)
    prepared = {}
    for seed, result in zip(runs, results, strict=True):
        config = RunConfig.read(runs[seed])
        measured = {"best_step": result.best_step, "seconds": round(result.seconds, 1)}
        facts = {"settings": config.settings.as_dict(), "embeddings": config.embeddings, "measured": measured}
        prepared[seed] = Prepared(open_run(runs[seed], workspace.benchmark, device=workspace.device), facts, runs[seed])
    return prepared


@dataclass(frozen=True)
class StudyOutput:
    """Tables, and pictures (SVG) by name."""

    tables: list[Table]
    pictures: dict[str, str] = field(default_factory=dict)


def pending_cells(plan: Plan, workspace: Workspace) -> list[str]:
    """The jobs of a plan that are not finished, as text."""
    return [str(job) for job in pending_jobs(plan, workspace)]


def run_cells(plan: Plan, workspace: Workspace) -> None:
    """Train and evaluate everything in a plan that has no record."""
    run_jobs(pending_jobs(plan, workspace), workspace)


@dataclass(frozen=True)
class Study:
    """How to show a study, what of it is pending and how that is run.

    A study that evaluates the models of its plan only needs `show`, which reads `finished_records`.
    """

    show: Callable[[Plan, Workspace], StudyOutput]
    pending: Callable[[Plan, Workspace], list[str]] = pending_cells
    run: Callable[[Plan, Workspace], None] = run_cells
