"""The effect of choosing the step on test: learning curves of the same runs on dev and test."""

from __future__ import annotations

from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.files import write_json
from fewlink.core.recipes import same_settings
from fewlink.evaluation.curves import CurvePoint, LearningCurve
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.stored import read_result
from fewlink.models.contract import Scorer
from fewlink.models.run import RunConfig
from fewlink.models.settings import ModelSettings
from fewlink.studies.charts import Chart, LineChart, step_lines
from fewlink.studies.jobs import run_models
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import COLUMNS, by_selection
from fewlink.studies.workspace import Workspace
from fewlink.training.trainer import Watch

CURVE = "course.json"  # the learning curve so far, in a run folder


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    curves = _finished(plan, workspace)
    charts: dict[str, Chart] = {}
    for model in plan.models:
        if lines := step_lines([curve for curve in curves if curve.model == model]):
            title = f"{workspace.benchmark.name}, {model}, {plan.candidates[0]} candidates"
            charts[f"{model}-mrr"] = LineChart(title, lines, "steps", "MRR")
    return StudyOutput([by_selection(curves, plan.published.get(workspace.benchmark.name))], charts)


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing(plan, workspace).items()]


def run(plan: Plan, workspace: Workspace) -> None:
    """Train each model, and evaluate it on dev and test at every evaluation of its run."""
    watch = _curve_watch(plan, workspace)
    for model, seeds in _missing(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} is not trained in steps: choose few-shot models")
        workspace.log(f"{model}, seeds {', '.join(map(str, seeds))}")
        for trained in run_models(settings, plan.shots[0], seeds, workspace, watch=watch).values():
            assert trained.run is not None
            workspace.store.add(read_result(LearningCurve, trained.run / CURVE))


def _curve_watch(plan: Plan, workspace: Workspace) -> Watch:
    """A function that evaluates a run on dev and test and adds the point to its learning curve."""
    benchmark = workspace.data
    shots = plan.shots[0]
    candidates = plan.candidates[0]

    def watch(run: Path, step: int, scorer: Scorer) -> None:
        figures = {}
        for split in ("dev", "test"):
            micro = evaluate(benchmark, scorer, Protocol(split, shots, candidates)).metrics()["micro"]
            figures[split] = {metric: round(micro[metric], 4) for metric in COLUMNS.values()}
        point = CurvePoint(step=step, **figures)
        if (run / CURVE).exists():
            curve = read_result(LearningCurve, run / CURVE).with_point(point)
        else:
            settings = RunConfig.read(run).settings
            curve = LearningCurve(
                benchmark=benchmark.name,
                data_sha256=benchmark.fingerprint,
                model=settings.model,
                seed=settings.seed,
                shots=shots,
                candidates=candidates,
                settings=settings.as_dict(),
                points=[point],
            )
        write_json(run / CURVE, curve.as_json())

    return watch


def _missing(plan: Plan, workspace: Workspace) -> dict[str, list[int]]:
    """The seeds of each model that have no learning curve."""
    finished = {(curve.model, curve.seed) for curve in _finished(plan, workspace)}
    missing = {model: [s for s in range(plan.seeds) if (model, s) not in finished] for model in plan.models}
    return {model: seeds for model, seeds in missing.items() if seeds}


def _finished(plan: Plan, workspace: Workspace) -> list[LearningCurve]:
    return [
        curve
        for curve in workspace.store.curves
        if curve.data_sha256 == workspace.benchmark.fingerprint
        and curve.model in plan.models
        and (curve.shots, curve.candidates) == (plan.shots[0], plan.candidates[0])
        and curve.seed < plan.seeds
        and same_settings(curve.settings, plan.settings_of(curve.model))
    ]


STUDY = Study(show, pending, run)
