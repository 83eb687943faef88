"""Studies that are tables and charts: of evaluated models, of the benchmark itself, and of runs step by step."""

from __future__ import annotations

from pathlib import Path

from fewlink.base.errors import FewlinkError
from fewlink.base.storage import write_json
from fewlink.data.benchmark import SPLITS, Benchmark
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.records import CurvePoint, LearningCurve, read_result, same_settings
from fewlink.report import charts, tables
from fewlink.report.tables import COLUMNS, Table, by_selection, step_lines
from fewlink.scorers import Scorer
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Study, StudyOutput, Workspace, finished_records, run_models
from fewlink.training.family import ModelSettings
from fewlink.training.run import RunConfig
from fewlink.training.trainer import Watch

CURVE = "course.json"  # in a run: its learning curve so far


def show_overall(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 2: every system on test and dev, under each candidates protocol, with the paper's figures."""
    published = plan.published.get(workspace.benchmark.name)
    return StudyOutput(tables.overall(finished_records(plan, workspace), published))


def show_ablation(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 4, and the same of TRAIL: a model without its parts, one at a time, with the paper's figures."""
    records = finished_records(plan, workspace)
    whole = next(model for model, variants in tables.ablations().items() if {*plan.models} <= {*variants})
    changes = [tables.ablation(records, whole, candidates=c) for c in plan.candidates]
    return StudyOutput([*tables.overall(records, plan.published.get(workspace.benchmark.name)), *changes])


def show_relations(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 3: each test relation with its number of candidates, and the paper's relations, which it only numbers."""
    records, shots = finished_records(plan, workspace), plan.shots[0]
    output = [tables.by_relation(records, plan.models, candidates=c, shots=shots) for c in plan.candidates]
    rows = [
        [number, model, *(charts.figure(figures[metric]) for metric in tables.COLUMNS.values())]
        for model, relations in plan.published.get(workspace.benchmark.name, {}).items()
        for number, figures in relations.items()
    ]
    if rows:
        rows.sort(key=lambda row: int(row[0]))
        output.append(Table("as published, paper", ["relation", "model", *tables.COLUMNS], rows))
    candidates = plan.candidates[-1]
    on_test = tables.select(records, split="test", candidates=candidates, shots=shots)
    title = f"{workspace.benchmark.name}, test relations, {candidates} candidates"
    picture = charts.bars(tables.relation_bars(on_test, plan.models), title=title, value_label="MRR")
    return StudyOutput(output, {"relations": picture})


def show_shots(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Figure "Impact of few-shot size": four metrics by the number of references, with bands over seeds."""
    records = finished_records(plan, workspace)
    output, pictures = [], {}
    for candidates in plan.candidates:
        on_test = tables.select(records, split="test", candidates=candidates)
        for name, metric in tables.COLUMNS.items():
            output.append(tables.by_shots(records, metric, candidates=candidates))
            pictures[f"{metric.replace('@', '-at-')}-{candidates}"] = charts.lines(
                tables.shots_lines(on_test, plan.models, metric),
                title=f"{workspace.benchmark.name}, test, {name}, {candidates} candidates",
                x_label="references (K)",
                y_label=name,
            )
    return StudyOutput(output, pictures)


COUNTS = ("entities", "triples", "relations", "tasks", *SPLITS)


def show_datasets(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Table 1: the size of a benchmark, with the paper's counts."""
    benchmark = workspace.benchmark
    rows = [[benchmark.name, *(f"{n:,}" for n in counts(benchmark).values())]]
    if published := plan.published_data.get(benchmark.name):
        rows.append([f"*{benchmark.name}, as published*", *(f"*{published[name]:,}*" for name in COUNTS)])
    note = (
        "triples are those of the background; relations are background and task relations; tasks are split three ways"
    )
    return StudyOutput([Table("data sets", ["data set", *COUNTS], rows, note)])


def counts(benchmark: Benchmark) -> dict[str, int]:
    """The counts of the paper's Table 1, and the tasks of each split."""
    splits = {split: len(benchmark.split(split)) for split in SPLITS}
    graph, tasks = benchmark.graph, sum(splits.values())
    sizes = {"entities": len(graph.entities), "triples": graph.triple_count, "relations": len(graph.relations) + tasks}
    return {**sizes, "tasks": tasks, **splits}


DATASETS = Study(show_datasets, pending=lambda plan, workspace: [], run=lambda plan, workspace: None)


def show_selection(plan: Plan, workspace: Workspace) -> StudyOutput:
    curves, candidates = _finished_curves(plan, workspace), plan.candidates[0]
    pictures = {}
    for model in plan.models:
        if lines := step_lines([curve for curve in curves if curve.model == model]):
            title = f"{workspace.benchmark.name}, {model}, {candidates} candidates"
            pictures[f"{model}-mrr"] = charts.lines(lines, title=title, x_label="steps", y_label="MRR")
    return StudyOutput([by_selection(curves, plan.published.get(workspace.benchmark.name))], pictures)


def pending_curves(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{model}, seeds {', '.join(map(str, seeds))}" for model, seeds in _missing_curves(plan, workspace).items()]


def run_curves(plan: Plan, workspace: Workspace) -> None:
    """Train each model to its end, and evaluate it on dev and test at every evaluation of its run."""
    watch = _curve_watch(plan, workspace)
    for model, seeds in _missing_curves(plan, workspace).items():
        settings = plan.settings_of(model)
        if not isinstance(settings, ModelSettings):
            raise FewlinkError(f"{model} has no steps to choose among: choose few-shot models")
        workspace.tell(f"{model}, seeds {', '.join(map(str, seeds))}")
        for trained in run_models(settings, plan.shots[0], seeds, workspace, watch=watch).values():
            assert trained.run is not None
            workspace.store.add(read_result(LearningCurve, trained.run / CURVE))


SELECTION = Study(show_selection, pending_curves, run_curves)


def _curve_watch(plan: Plan, workspace: Workspace) -> Watch:
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


def _missing_curves(plan: Plan, workspace: Workspace) -> dict[str, list[int]]:
    """The seeds of each model that have no learning curve."""
    finished = {(curve.model, curve.seed) for curve in _finished_curves(plan, workspace)}
    missing = {model: [s for s in range(plan.seeds) if (model, s) not in finished] for model in plan.models}
    return {model: seeds for model, seeds in missing.items() if seeds}


def _finished_curves(plan: Plan, workspace: Workspace) -> list[LearningCurve]:
    return [
        curve
        for curve in workspace.store.curves
        if curve.data_sha256 == workspace.benchmark.fingerprint
        and curve.model in plan.models
        and (curve.shots, curve.candidates) == (plan.shots[0], plan.candidates[0])
        and curve.seed < plan.seeds
        and same_settings(curve.settings, plan.settings_of(curve.model))
    ]
