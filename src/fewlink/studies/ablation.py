"""Table 4, and the same of TRAIL: a model without its parts, one at a time, with the paper's figures."""

from __future__ import annotations

from fewlink.report import tables
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench
from fewlink.studies.study import Shown, cells_to_do, finished, run_cells

todo, run = cells_to_do, run_cells


def show(plan: Plan, bench: Bench) -> Shown:
    records = finished(plan, bench)
    whole = next(model for model, variants in tables.ablations().items() if {*plan.models} <= {*variants})
    lost = [tables.ablation(records, whole, candidates=c) for c in plan.candidates]
    return Shown([*tables.overall(records, plan.published.get(bench.benchmark.name)), *lost])
