"""What it is worth to choose a model on test: the same runs, kept at the step that is best on dev, and on test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fewlink.base.errors import FewlinkError
from fewlink.base.storage import write_json
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import read_as
from fewlink.report import charts, series
from fewlink.report.tables import COLUMNS
from fewlink.scorers import Scorer
from fewlink.studies.jobs import same_settings
from fewlink.studies.learning_curves import Course, Station, by_choice, read_courses
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench, run_models
from fewlink.studies.study import Shown
from fewlink.training.family import ModelSettings
from fewlink.training.run import RunConfig
from fewlink.training.trainer import Watch

COURSE = "course.json"  # in a run: its course so far


def todo(plan: Plan, bench: Bench) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing(plan, bench).items()]


def run(plan: Plan, bench: Bench) -> None:
    watch = _watch(plan, bench)
    for model, seeds in _missing(plan, bench).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no steps to choose among: choose few-shot models")
        bench.tell(f"{model}, seeds {', '.join(map(str, seeds))}")
        for made in run_models(settings, plan.shots[0], seeds, bench, watch=watch).values():
            assert made.run is not None
            _read(made.run).save(bench.results)


def show(plan: Plan, bench: Bench) -> Shown:
    courses, candidates = _finished(plan, bench), plan.candidates[0]
    pictures = {
        f"{model}-mrr": charts.lines(
            found, title=f"{bench.benchmark.name}, {model}, {candidates} candidates", x_label="steps", y_label="MRR"
        )
        for model in plan.models
        if (found := series.by_step([course for course in courses if course.model == model]))
    }
    return Shown([by_choice(courses, plan.published.get(bench.benchmark.name))], pictures)


def _watch(plan: Plan, bench: Bench) -> Watch:
    """What evaluates a run on dev and test, and adds that to its course."""
    benchmark, shots, candidates = bench.benchmark, plan.shots[0], plan.candidates[0]

    def watch(run: Path, step: int, scorer: Scorer) -> None:
        figures = {}
        for split in ("dev", "test"):
            micro = evaluate(benchmark, scorer, Protocol(split, shots, candidates)).metrics()["micro"]
            figures[split] = {metric: round(micro[metric], 4) for metric in COLUMNS.values()}
        station, settings = Station(step=step, **figures), RunConfig.read(run).settings
        begun = Course(
            benchmark=benchmark.name,
            data_sha256=benchmark.fingerprint,
            model=settings.model,
            seed=settings.seed,
            shots=shots,
            candidates=candidates,
            settings=settings.as_dict(),
            stations=[station],
        )
        course = _read(run).passed(station) if (run / COURSE).exists() else begun
        write_json(run / COURSE, course.model_dump())

    return watch


def _read(run: Path) -> Course:
    return read_as(Course, run / COURSE, "a course")


def _missing(plan: Plan, bench: Bench) -> dict[str, Sequence[int]]:
    """The seeds of each model that there is no course of."""
    found = {(course.model, course.seed) for course in _finished(plan, bench)}
    missing = {model: [s for s in range(plan.seeds) if (model, s) not in found] for model in plan.models}
    return {model: seeds for model, seeds in missing.items() if seeds}


def _finished(plan: Plan, bench: Bench) -> list[Course]:
    return [
        course
        for course in (read_courses(bench.results) if bench.results.is_dir() else [])
        if course.data_sha256 == bench.benchmark.fingerprint
        and course.model in plan.models
        and (course.shots, course.candidates) == (plan.shots[0], plan.candidates[0])
        and course.seed < plan.seeds
        and same_settings(course.settings, plan.settings_of(course.model))
    ]
