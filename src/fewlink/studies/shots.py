"""Figure "Impact of few-shot size": four metrics by the number of references, with bands over seeds."""

from __future__ import annotations

from fewlink.report import charts, series, tables
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench
from fewlink.studies.study import Shown, cells_to_do, finished, run_cells

todo, run = cells_to_do, run_cells


def show(plan: Plan, bench: Bench) -> Shown:
    records = finished(plan, bench)
    told, pictures = [], {}
    for candidates in plan.candidates:
        asked = tables.chosen(records, split="test", candidates=candidates)
        for name, metric in tables.COLUMNS.items():
            told.append(tables.by_shots(records, metric, candidates=candidates))
            pictures[f"{metric.replace('@', '-at-')}-{candidates}"] = charts.lines(
                series.by_shots(asked, plan.models, metric),
                title=f"{bench.benchmark.name}, test, {name}, {candidates} candidates",
                x_label="references (K)",
                y_label=name,
            )
    return Shown(told, pictures)
