"""The figure "Impact of few-shot size": four metrics by number of references, with bands over seeds."""

from __future__ import annotations

from fewlink.studies import tables
from fewlink.studies.charts import Chart, LineChart, shots_lines
from fewlink.studies.jobs import finished_records
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.workspace import Workspace


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    records = finished_records(plan, workspace)
    output: list[tables.Table] = []
    charts: dict[str, Chart] = {}
    for candidates in plan.candidates:
        on_test = tables.select(records, split="test", candidates=candidates)
        for name, metric in tables.COLUMNS.items():
            output.append(tables.by_shots(records, metric, candidates=candidates))
            title = f"{workspace.benchmark.name}, test, {name}, {candidates} candidates"
            lines = shots_lines(on_test, plan.models, metric)
            charts[f"{metric.replace('@', '-at-')}-{candidates}"] = LineChart(title, lines, "references (K)", name)
    return StudyOutput(output, charts)


STUDY = Study(show)
