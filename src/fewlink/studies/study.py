"""What every study is: something to run, and a way to show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fewlink.evaluation.records import Record
from fewlink.report.tables import Table
from fewlink.studies.jobs import RecordStore, jobs, of_plan
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Bench, run_jobs


@dataclass(frozen=True)
class Shown:
    """Tables, and pictures (SVG) by name."""

    tables: list[Table]
    pictures: dict[str, str] = field(default_factory=dict)


class Study(Protocol):
    """A module of this room."""

    def todo(self, plan: Plan, bench: Bench) -> list[str]:
        """What there is still to run, in words."""
        ...

    def run(self, plan: Plan, bench: Bench) -> None:
        """Run what is not finished."""
        ...

    def show(self, plan: Plan, bench: Bench) -> Shown:
        """What the stored results come to."""
        ...


def cells_to_do(plan: Plan, bench: Bench) -> list[str]:
    """For studies of models: what no record is there of."""
    return [str(job) for job in jobs(plan, bench.benchmark, RecordStore(bench.results))]


def run_cells(plan: Plan, bench: Bench) -> None:
    """For studies of models: train and evaluate what no record is there of."""
    run_jobs(jobs(plan, bench.benchmark, RecordStore(bench.results)), bench)


def finished(plan: Plan, bench: Bench) -> list[Record]:
    """The records a study is shown from, in the plan's order of models."""
    found = of_plan(RecordStore(bench.results).records, plan, bench.benchmark)
    return sorted(found, key=lambda r: (plan.models.index(r.model), r.split, r.candidates, r.shots, r.seed))
