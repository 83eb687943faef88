"""Table 3: each test relation, with how many candidates it has, and the paper's relations, which have only numbers."""

from __future__ import annotations

from fewlink.report import charts, series, tables
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench
from fewlink.studies.study import Shown, cells_to_do, finished, run_cells

todo, run = cells_to_do, run_cells


def show(plan: Plan, bench: Bench) -> Shown:
    records = finished(plan, bench)
    told = [tables.by_relation(records, plan.models, candidates=c, shots=plan.shots[0]) for c in plan.candidates]
    rows = [
        [number, model, *(charts.figure(figures[metric]) for metric in tables.COLUMNS.values())]
        for model, relations in plan.published.get(bench.benchmark.name, {}).items()
        for number, figures in relations.items()
    ]
    if rows:
        rows.sort(key=lambda row: int(row[0]))
        told.append(tables.Table("as published, paper", ["relation", "model", *tables.COLUMNS], rows))
    shown = tables.chosen(records, split="test", candidates=plan.candidates[-1], shots=plan.shots[0])
    picture = charts.bars(
        series.by_relation(shown, plan.models),
        title=f"{bench.benchmark.name}, test relations, {plan.candidates[-1]} candidates",
        value_label="MRR",
    )
    return Shown(told, {"relations": picture})
