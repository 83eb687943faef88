"""Every reading of what the paper leaves open, in one table: one change of a base at a time, then the best together.

A reading is a base and its changes, joined by `+`: `paper+transe`. It names settings, pretrained vectors, and how dev
and test are ranked. Runs whose settings allow it train side by side on a GPU; readings that differ only in how they are
ranked share their runs. Each run is evaluated on dev and test as it goes, and its curve is stored at the end: what the
figures would be after fewer steps, or with a step chosen otherwise, follows from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import multiprocessing
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fewlink.core.engine import Engine
from fewlink.core.errors import FewlinkError, choose
from fewlink.core.files import exists, new_folder, read_folder
from fewlink.core.progress import duration, progress, set_quiet
from fewlink.core.recipes import Vectors, same_settings
from fewlink.evaluation.curves import CurvePoint, ReadingCurve
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings
from fewlink.models.embeddings.table import save_tensors
from fewlink.models.family import RunState
from fewlink.models.fsrl.learner import FewShotLearner
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.studies.jobs import training_time
from fewlink.studies.plan import OTHER, Figures, Plan, published_figures
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import COLUMNS, Table, figure, spread
from fewlink.studies.workspace import Workspace
from fewlink.tasks.benchmark import Benchmark
from fewlink.training.trainer import deterministic

BEST = "best"  # the change that stands for the best change of each question, by dev
FORMAT = "fewlink-readings/1"
MAX_SIDE_BY_SIDE = 64
EARLY = 5  # evaluations before and at the first of those `evaluate_every` steps apart
UNREAD = ("steps", "patience", "evaluate_candidates")  # settings that do not change a curve as far as it goes
SAVE_EVERY_SECONDS = 60.0
SAVING_SHARE = 0.05  # of the time, at most
STEPS = (6_000, 20_000, 40_000, 200_000)
CHOICES = {"dev": "dev", "test": "test", "five": "mean of the five best"}
GOAL = 0.30
MORE = ", and more for vectors and evaluations"


@dataclass(frozen=True)
class Ranking:
    """How dev and test are ranked: the candidates, and `first` or `drawn` references."""

    candidates: str
    references: str

    def protocol(self, split: str, shots: int, seed: int) -> Protocol:
        return Protocol(split, shots, self.candidates, int(self.references == "drawn"), seed)


@dataclass(frozen=True)
class Resolved:
    """A reading in full."""

    name: str
    settings: FewShotSettings
    vectors: Vectors
    ranking: Ranking


@dataclass(frozen=True)
class Job:
    """A run to train, and the ways to rank with it that have no curve."""

    settings: FewShotSettings  # with its seed
    vectors: Vectors
    rankings: tuple[Ranking, ...]


def resolve(plan: Plan, name: str) -> Resolved:
    """The settings, vectors and ranking of a reading."""
    base, *changes = (choose("reading", word, plan.readings) for word in name.split("+"))
    if not base.model or any(change.model for change in changes):
        bases = [each for each, reading in plan.readings.items() if reading.model]
        raise FewlinkError(f"reading '{name}' must be a base ({', '.join(bases)}) and changes, joined by +")
    recipe = trained_family(base.model).recipe(base.model)
    settings = recipe.settings
    vectors = recipe.vectors.as_dict()
    ranking = Ranking("paper", "first")
    for reading in (base, *changes):
        settings = settings.adjusted(reading.settings)
        vectors |= reading.vectors
        ranking = Ranking(reading.candidates or ranking.candidates, reading.references or ranking.references)
    if vectors["with_references"]:
        if ranking.references == "drawn":
            raise FewlinkError(f"reading '{name}': vectors that have seen the first references need those at test")
        vectors["with_references"] = plan.shots[0]
    settings = settings.adjusted(plan.overrides).replace(shots=plan.shots[0])
    return Resolved(name, settings, Vectors(**vectors), ranking)


def best_combination(plan: Plan, base: str, curves: Sequence[ReadingCurve], fingerprint: str) -> str | None:
    """A base with the best change for each question, by dev MRR at the step chosen on dev.

    Only questions whose best change is better than the base have a say. None while a reading has no curves.
    """
    own = resolve(plan, base)
    chosen = []
    for question in plan.questions:
        if question.title == OTHER:
            continue
        changed = [name for name in question.readings if name.startswith(f"{base}+") and BEST not in name.split("+")]
        readings = [resolve(plan, name) for name in changed]
        readings = [each for each in readings if each.ranking == own.ranking]
        dev = {}
        for reading in (own, *readings):
            found = curves_of(plan, reading, curves, fingerprint)
            if len({curve.seed for curve in found}) < plan.seeds:
                return None
            dev[reading.name] = statistics.fmean(curve.best("dev").dev["mrr"] for curve in found)
        best = max(dev, key=lambda name: dev[name])
        if best != base:
            chosen += best.split("+")[1:]
    return "+".join([base, *dict.fromkeys(chosen)]) if chosen else None


def readings_of(plan: Plan, curves: Sequence[ReadingCurve], fingerprint: str) -> Iterator[tuple[str, Resolved]]:
    """Each reading of the plan's models with the title of its question, except combinations that are not known yet."""
    for question in plan.questions:
        for name in question.readings:
            base, *changes = name.split("+")
            if (plan.only and name not in plan.only) or plan.readings[base].model not in plan.models:
                continue
            if BEST in changes:
                combined = best_combination(plan, base, curves, fingerprint)
                if combined is None:
                    continue
                name = "+".join([combined, *changes[changes.index(BEST) + 1 :]])
            yield question.title, resolve(plan, name)


def curves_of(plan: Plan, reading: Resolved, curves: Sequence[ReadingCurve], fingerprint: str) -> list[ReadingCurve]:
    """The stored curves of a reading as far as its steps, by seed and table of vectors; of several, the longest."""
    by_run: dict[tuple[int, str], ReadingCurve] = {}
    for curve in sorted(curves, key=lambda each: each.points[-1].step):
        if _is_of(curve, reading, fingerprint) and curve.seed < plan.seeds:
            by_run[curve.seed, curve.vectors["sha256"]] = curve.up_to(reading.settings.steps)
    return [curve for _, curve in sorted(by_run.items(), key=lambda each: each[0]) if curve.points]


def _is_of(curve: ReadingCurve, reading: Resolved, fingerprint: str) -> bool:
    stored = {name: value for name, value in curve.settings.items() if name not in UNREAD}
    vectors = {name: value for name, value in curve.vectors.items() if name != "sha256"}
    return (
        curve.data_sha256 == fingerprint
        and curve.model == reading.settings.model
        and (curve.shots, curve.candidates) == (reading.settings.shots, reading.ranking.candidates)
        and curve.references == reading.ranking.references
        and curve.settings["steps"] >= reading.settings.steps
        and vectors == _plain(reading.vectors)
        and same_settings(stored, reading.settings)
    )


def _plain(vectors: Vectors) -> dict[str, Any]:
    """The fields of vectors as JSON has them."""
    plain: dict[str, Any] = json.loads(json.dumps(vectors.as_dict()))
    return plain


# Tables


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    stored = workspace.store.read(ReadingCurve)
    fingerprint = workspace.benchmark.fingerprint
    found = [
        (title, reading, own)
        for title, reading in readings_of(plan, stored, fingerprint)
        if (own := curves_of(plan, reading, stored, fingerprint))
    ]
    published = published_figures().get(workspace.benchmark.name, {})
    output = [_by_reading(found, split, published) for split in ("test", "dev")]
    output += [_by_choice(found, split, published) for split in ("test", "dev")]
    by_steps = _by_steps(found)
    return StudyOutput([*output, by_steps] if by_steps.rows else output)


Found = Sequence[tuple[str, Resolved, Sequence[ReadingCurve]]]


def _by_reading(found: Found, split: str, published: Mapping[str, Mapping[str, Figures]]) -> Table:
    """A row for each reading, at the step chosen on dev."""
    rows = [
        [title, reading.name, str(len(curves)), f"{reading.settings.steps:,}", *_cells(curves, split, "dev")]
        for title, reading, curves in found
    ]
    rows += _published_rows(found, split, published)
    columns = ["question", "reading", "runs", "steps", *COLUMNS]
    return Table(f"{split}, step chosen on dev", columns, rows, _verdict(found, split))


def _by_choice(found: Found, split: str, published: Mapping[str, Mapping[str, Figures]]) -> Table:
    """A row for each reading and choice of the step."""
    rows = [
        [reading.name, label, str(len(curves)), *_cells(curves, split, choice)]
        for _, reading, curves in found
        for choice, label in CHOICES.items()
    ]
    rows += [row[1:] for row in _published_rows(found, split, published)]
    columns = ["reading", "step chosen on", "runs", *COLUMNS]
    note = "mean of the five best: of each metric's five best evaluations on this split, as the authors' script has it"
    return Table(f"{split}, by what the step is chosen on", columns, rows, note)


def _by_steps(found: Found) -> Table:
    """A row for each reading that was trained for long, with its MRR on test and dev after fewer steps."""
    rows = []
    for _, reading, curves in found:
        for split in ("test", "dev"):
            cells = [
                spread([figures_of(curve.up_to(steps), split, "dev")["mrr"] for curve in curves])
                if reading.settings.steps >= steps and all(curve.points[0].step <= steps for curve in curves)
                else ""
                for steps in STEPS
            ]
            if sum(map(bool, cells)) > 1:
                rows.append([reading.name, split, str(len(curves)), *cells])
    columns = ["reading", "split", "runs", *(f"{steps // 1000}k steps" for steps in STEPS)]
    return Table("MRR after fewer steps, step chosen on dev", columns, rows)


def _published_rows(found: Found, split: str, published: Mapping[str, Mapping[str, Figures]]) -> list[list[str]]:
    """The paper's rows of the models that have curves, with three cells after an empty one before the figures."""
    models = dict.fromkeys(reading.settings.model for _, reading, _ in found)
    return [
        ["", f"*{model}, as published*", "", "", *(f"*{figure(row[metric])}*" for metric in COLUMNS.values())]
        for model in models
        if (row := published.get(model, {}).get(split))
    ]


def _cells(curves: Sequence[ReadingCurve], split: str, choice: str) -> list[str]:
    rows = [figures_of(curve, split, choice) for curve in curves]
    return [spread([row[metric] for row in rows]) for metric in COLUMNS.values()]


def figures_of(curve: ReadingCurve, split: str, choice: str) -> Mapping[str, float]:
    """The figures of a curve on a split at the step that is best on `dev` or `test`, or of the `five` best steps."""
    if choice == "five":
        return curve.mean_of_best(split)
    figures: dict[str, float] = getattr(curve.best(choice), split)
    return figures


def _verdict(found: Found, split: str) -> str:
    """The highest MRR of a split under each choice of the step, and which readings reach the goal."""
    if not found:
        return ""
    means = {
        (choice, reading.name): statistics.fmean(figures_of(curve, split, choice)["mrr"] for curve in curves)
        for _, reading, curves in found
        for choice in CHOICES
    }
    parts = []
    for choice, label in CHOICES.items():
        name, value = max(((n, v) for (c, n), v in means.items() if c == choice), key=lambda each: each[1])
        parts.append(f"{figure(value)} by {name} (step: {label})")
    reached = [reading.name for _, reading, _ in found if means["dev", reading.name] >= GOAL]
    otherwise = [name for (_, name), value in means.items() if value >= GOAL and name not in reached]
    names = ", ".join(dict.fromkeys(reached)) or "no reading"
    parts.append(f"{figure(GOAL)} is reached by {names} with the step chosen on dev")
    if otherwise:
        parts.append(f"and by {', '.join(dict.fromkeys(otherwise))} only if the step is chosen otherwise")
    return f"highest MRR on {split}: {'; '.join(parts)}"


# Running


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    stored = workspace.store.read(ReadingCurve)
    fingerprint = workspace.benchmark.fingerprint
    lines = []
    for _, reading in readings_of(plan, stored, fingerprint):
        finished = {curve.seed for curve in curves_of(plan, reading, stored, fingerprint)}
        if missing := [str(seed) for seed in range(plan.seeds) if seed not in finished]:
            lines.append(f"{reading.name}, {reading.settings.steps:,} steps, seeds {', '.join(missing)}")
    return lines


def run(plan: Plan, workspace: Workspace) -> None:
    """Train the runs that have no curve, and store their curves; the best combinations follow when they are known."""
    while jobs := _jobs(plan, workspace):
        groups = sorted(_groups(jobs, workspace.device), key=_steps_of, reverse=True)
        whole = left = sum(map(_steps_of, groups))
        workspace.log(f"{len(jobs)} runs in {len(groups)} groups: {training_time(left, workspace.device)}{MORE}")
        engine = Engine()
        inside = workspace
        if workspace.processes > 1:
            engine = Engine(f"processes:{workspace.processes}", seconds_here=0)
            inside = workspace.without_reporters()
        tables = list({job.vectors: job for job in jobs}.values())
        for _ in engine.run(Worker(inside, _vectors), [[job] for job in tables]):
            pass
        began = time.monotonic()
        for number, _ in engine.run(Worker(inside, _run_group), [[group] for group in groups]):
            left -= _steps_of(groups[number])
            seconds = time.monotonic() - began
            rest = f", about {duration(seconds / (whole - left) * left)} left" if left else ""
            workspace.log(f"{_title(groups[number])}: done after {duration(seconds)}{rest}")


@dataclass(frozen=True)
class Worker:
    """Does `work` on groups of jobs, or on jobs, in this process or in another."""

    workspace: Workspace
    work: Callable[[Any, Workspace], Any]

    def __call__(self, batch: Sequence[Any]) -> None:
        if multiprocessing.parent_process() is not None:
            set_quiet(True)
        for item in batch:
            self.work(item, self.workspace)


def _steps_of(group: Sequence[Job]) -> int:
    """The steps of all runs of a group."""
    return sum(job.settings.steps for job in group)


def _title(group: Sequence[Job]) -> str:
    return f"{group[0].settings.model}, {len(group)} {'run' if len(group) == 1 else 'runs'}"


def _jobs(plan: Plan, workspace: Workspace) -> list[Job]:
    """The runs to train. Readings with the same settings and vectors share a run with the steps of the longest."""
    stored = workspace.store.read(ReadingCurve)
    fingerprint = workspace.data.fingerprint
    rankings: dict[tuple[FewShotSettings, Vectors], list[Ranking]] = {}
    steps: dict[tuple[FewShotSettings, Vectors], int] = {}
    for _, reading in readings_of(plan, stored, fingerprint):
        finished = {curve.seed for curve in curves_of(plan, reading, stored, fingerprint)}
        for seed in range(plan.seeds):
            if seed not in finished:
                settings = reading.settings.replace(seed=seed, device=workspace.device, steps=1)
                run = settings, reading.vectors
                rankings.setdefault(run, []).append(reading.ranking)
                steps[run] = max(steps.get(run, 1), reading.settings.steps)
    return [
        Job(settings.replace(steps=steps[settings, vectors]), vectors, tuple(dict.fromkeys(own)))
        for (settings, vectors), own in rankings.items()
    ]


def _groups(jobs: Sequence[Job], device: str) -> list[list[Job]]:
    """The jobs, each by itself."""
    return [[job] for job in jobs]


def evaluation_steps(settings: FewShotSettings) -> list[int]:
    """The steps to evaluate at: every `evaluate_every` steps, every fifth of that before the first, and at the end."""
    every = settings.evaluate_every
    steps = settings.steps
    early = range(max(1, every // EARLY), every, max(1, every // EARLY))
    return sorted({step for step in (*early, *range(every, steps, every)) if step < steps} | {steps})


def _run_group(group: Sequence[Job], workspace: Workspace) -> None:
    """Train a group of jobs, or continue it, and store the curves."""
    benchmark = workspace.data
    title = _title(group)
    vectors = {job.vectors: _vectors(job, workspace) for job in group}
    progress_of = GroupProgress(workspace.work / "readings" / _digest(group, benchmark))
    with deterministic(workspace.device), _tf32():
        (job,) = group
        learner = FewShotLearner(benchmark, vectors[job.vectors], job.settings, [job.settings.seed])
        points = _train(learner, group, benchmark, progress_of, title, workspace.log)
    for job, of_job in zip(group, points, strict=True):
        facts = {**_plain(job.vectors), "sha256": vectors[job.vectors].digest()}
        for ranking, curve in zip(job.rankings, of_job, strict=True):
            if not curve:
                workspace.log(f"{title}: seed {job.settings.seed} diverged before its first evaluation")
                continue
            workspace.store.add(
                ReadingCurve(
                    benchmark=benchmark.name,
                    data_sha256=benchmark.fingerprint,
                    model=job.settings.model,
                    seed=job.settings.seed,
                    shots=job.settings.shots,
                    candidates=ranking.candidates,
                    references=ranking.references,
                    settings=job.settings.as_dict(),
                    vectors=facts,
                    points=curve,
                )
            )
    progress_of.remove()


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    """Let a GPU multiply in TF32, which changes figures by less than another seed does."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _vectors(job: Job, workspace: Workspace) -> Embeddings:
    """The pretrained vectors of a job, trained if necessary."""
    family = trained_family(job.settings.model)
    folder = workspace.work / family.vectors_name(job.settings, job.vectors, workspace.data)
    family.pretrain(workspace.data, job.settings, job.vectors, folder, workspace.on_epoch)
    vectors: Embeddings = family.open_vectors(folder, workspace.data.graph.fingerprint)
    family.check_vectors(workspace.data, vectors)
    return vectors


Points = list[list[list[CurvePoint]]]  # by job, ranking and evaluation


def _train(
    learner: FewShotLearner,
    group: Sequence[Job],
    benchmark: Benchmark,
    saved: GroupProgress,
    title: str,
    log: Callable[[str], None],
) -> Points:
    """Train to the end, evaluating on the way; a run whose loss is not finite keeps the points it has."""
    settings = learner.settings
    step, points = saved.load(learner, group)
    diverged: set[int] = set()
    first = step
    with progress(title, settings.steps) as advance:
        for target in (each for each in evaluation_steps(settings) if each > step):
            while step < target:
                count = min(learner.steps_at_once, target - step)
                losses = learner.run_steps(step, count).losses["loss"]  # (steps, runs)
                step += count
                advance(step, f"step {step:,} of {settings.steps:,}")
            finite = torch.isfinite(losses).all(0).tolist()
            diverged |= {run for run, fine in enumerate(finite) if not fine}
            for run, job in enumerate(group):
                if run not in diverged and _is_finite(learner, run):
                    for number, point in enumerate(_evaluate(learner, run, job, benchmark, step)):
                        points[run][number].append(point)
            if step < settings.steps:
                saved.save_if_due(learner, step, points)
    log(f"{title}: steps {first:,} to {step:,}")
    return points


def _is_finite(learner: FewShotLearner, run: int) -> bool:
    return all(math.isfinite(float(weight.detach()[run].sum())) for weight in learner.weights.values())


def _evaluate(learner: FewShotLearner, run: int, job: Job, benchmark: Benchmark, step: int) -> Iterator[CurvePoint]:
    """The point of a run at a step for each way to rank."""
    scorer = learner.scorer(run)
    settings = job.settings
    for ranking in job.rankings:
        figures = {}
        for split in ("dev", "test"):
            micro = evaluate(benchmark, scorer, ranking.protocol(split, settings.shots, settings.seed)).metrics()[
                "micro"
            ]
            figures[split] = {metric: round(micro[metric], 4) for metric in COLUMNS.values()}
        yield CurvePoint(step=step, **figures)


def _digest(group: Sequence[Job], benchmark: Benchmark) -> str:
    """A name for the progress of a group."""
    jobs = [
        [
            job.settings.replace(device="cpu").as_dict(),
            _plain(job.vectors),
            [dataclasses.astuple(r) for r in job.rankings],
        ]
        for job in group
    ]
    return hashlib.sha256(json.dumps([jobs, benchmark.fingerprint], sort_keys=True).encode()).hexdigest()[:12]


class GroupProgress:
    """The weights, moments and points of an unfinished group, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._saved_at = time.monotonic()
        self._seconds = 0.0  # of the last save, and how long it took

    def load(self, learner: FewShotLearner, group: Sequence[Job]) -> tuple[int, Points]:
        """The step and the points so far; the learner gets its state. 0 and no points if nothing is saved."""
        if not exists(self.folder):
            return 0, [[[] for _ in job.rankings] for job in group]

        def read(place: Path, manifest: dict[str, Any]) -> tuple[int, Points]:
            weights, moments = (load_file(place / f"{name}.safetensors") for name in ("weights", "moments"))
            states = [RunState(_of_run(weights, run), _of_run(moments, run)) for run in range(len(group))]
            learner.load_state(states)
            points = [[[CurvePoint(**p) for p in curve] for curve in job] for job in manifest["points"]]
            return int(manifest["step"]), points

        return read_folder(self.folder, FORMAT, read)

    def save_if_due(self, learner: FewShotLearner, step: int, points: Points) -> None:
        """Save at most once a minute, and so seldom that saving takes a small share of the time."""
        began = time.monotonic()
        if began - self._saved_at >= max(SAVE_EVERY_SECONDS, self._seconds / SAVING_SHARE):
            self.save(learner, step, points)
            self._saved_at = time.monotonic()
            self._seconds = self._saved_at - began

    def save(self, learner: FewShotLearner, step: int, points: Points) -> None:
        states = [learner.state(run) for run in range(len(learner.seeds))]
        facts = {"step": step, "points": [[[p.model_dump() for p in curve] for curve in job] for job in points]}
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(self.folder, FORMAT, facts) as draft:
            for name, kind in (("weights", "weights"), ("moments", "optimizer")):
                tensors = {f"{i}/{n}": t for i, state in enumerate(states) for n, t in getattr(state, kind).items()}
                save_tensors(tensors, draft / f"{name}.safetensors")

    def remove(self) -> None:
        """Remove the folder of a finished group."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _of_run(tensors: Mapping[str, Tensor], run: int) -> dict[str, Tensor]:
    start = f"{run}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


STUDY = Study(show, pending, run)
