"""Studies that are tables and charts of evaluated models, and of the benchmark itself."""

from __future__ import annotations

from fewlink.data.benchmark import SPLITS, Benchmark
from fewlink.report import charts, tables
from fewlink.report.tables import Table
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Study, StudyOutput, Workspace, finished_records


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
