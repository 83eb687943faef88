"""Table 3: figures of each test relation, and the paper's figures, which number the relations without naming them."""

from __future__ import annotations

from fewlink.studies import tables
from fewlink.studies.charts import BarChart, relation_bars
from fewlink.studies.jobs import finished_records
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.tables import COLUMNS, Table
from fewlink.studies.workspace import Workspace


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Show a table for each set of candidates, and a chart for the last one."""
    records = finished_records(plan, workspace)
    shots = plan.shots[0]
    benchmark = workspace.benchmark.name
    output = [tables.by_relation(records, plan.models, candidates=c, shots=shots) for c in plan.candidates]
    published = _published(plan, benchmark)
    if published.rows:
        output.append(published)
    candidates = plan.candidates[-1]
    on_test = tables.select(records, split="test", candidates=candidates, shots=shots)
    title = f"{benchmark}, test relations, {candidates} candidates"
    return StudyOutput(output, {"relations": BarChart(title, relation_bars(on_test, plan.models), "MRR")})


def _published(plan: Plan, benchmark: str) -> Table:
    """The paper's figures of each relation, by its number."""
    rows = [
        [number, model, *(tables.figure(figures[metric]) for metric in COLUMNS.values())]
        for model, relations in plan.published.get(benchmark, {}).items()
        for number, figures in relations.items()
    ]
    rows.sort(key=lambda row: int(row[0]))
    return Table("as published, paper", ["relation", "model", *COLUMNS], rows)


STUDY = Study(show)
