"""Table 2: every system, on test and dev, against each kind of candidates, with the paper's figures."""

from __future__ import annotations

from fewlink.report import tables
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench
from fewlink.studies.study import Shown, cells_to_do, finished, run_cells

todo, run = cells_to_do, run_cells


def show(plan: Plan, bench: Bench) -> Shown:
    return Shown(tables.overall(finished(plan, bench), plan.published.get(bench.benchmark.name)))
