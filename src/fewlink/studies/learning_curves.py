"""The study `selection`: what it is worth to choose the step of a run on test instead of dev."""

from __future__ import annotations

from pathlib import Path

from fewlink.base.errors import FewlinkError
from fewlink.base.storage import write_json
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import CurvePoint, LearningCurve, read_result, same_settings
from fewlink.report import charts
from fewlink.report.tables import COLUMNS, by_selection, step_lines
from fewlink.scorers import Scorer
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Study, StudyOutput, Workspace, run_models
from fewlink.training.family import ModelSettings
from fewlink.training.run import RunConfig
from fewlink.training.trainer import Watch

CURVE = "course.json"  # in a run: its learning curve so far


def show_selection(plan: Plan, workspace: Workspace) -> StudyOutput:
    curves, candidates = _finished(plan, workspace), plan.candidates[0]
    pictures = {}
    for model in plan.models:
        if lines := step_lines([curve for curve in curves if curve.model == model]):
            title = f"{workspace.benchmark.name}, {model}, {candidates} candidates"
            pictures[f"{model}-mrr"] = charts.lines(lines, title=title, x_label="steps", y_label="MRR")
    return StudyOutput([by_selection(curves, plan.published.get(workspace.benchmark.name))], pictures)


def pending_curves(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing(plan, workspace).items()]


def run_curves(plan: Plan, workspace: Workspace) -> None:
    """Train each model to its end, and evaluate it on dev and test at every evaluation of its run."""
    watch = _watch(plan, workspace)
    for model, seeds in _missing(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no steps to choose among: choose few-shot models")
        workspace.tell(f"{model}, seeds {', '.join(map(str, seeds))}")
        for trained in run_models(settings, plan.shots[0], seeds, workspace, watch=watch).values():
            assert trained.run is not None
            workspace.store.add(read_result(LearningCurve, trained.run / CURVE))


SELECTION = Study(show_selection, pending_curves, run_curves)


def _watch(plan: Plan, workspace: Workspace) -> Watch:
    """A function that evaluates a run on dev and test, and adds the point to its learning curve."""
    benchmark, shots, candidates = workspace.benchmark, plan.shots[0], plan.candidates[0]

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
        write_json(run / CURVE, curve.model_dump())

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
