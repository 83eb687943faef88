"""What a study is: something to run, and a way to show the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fewlink.evaluation.records import Record, same_settings
from fewlink.report.tables import Table
from fewlink.studies.plan import Plan
from fewlink.studies.runner import Workspace, pending_jobs, run_jobs


@dataclass(frozen=True)
class StudyOutput:
    """Tables, and pictures (SVG) by name."""

    tables: list[Table]
    pictures: dict[str, str] = field(default_factory=dict)


def pending_cells(plan: Plan, workspace: Workspace) -> list[str]:
    """The jobs of a plan that are not finished, as text."""
    return [str(job) for job in pending_jobs(plan, workspace)]


def run_cells(plan: Plan, workspace: Workspace) -> None:
    """Train and evaluate everything in a plan that has no record."""
    run_jobs(pending_jobs(plan, workspace), workspace)


@dataclass(frozen=True)
class Study:
    """How to show a study, what of it is pending and how that is run.

    A study that evaluates the models of its plan only needs `show`, which reads `finished_records`.
    """

    show: Callable[[Plan, Workspace], StudyOutput]
    pending: Callable[[Plan, Workspace], list[str]] = pending_cells
    run: Callable[[Plan, Workspace], None] = run_cells


def finished_records(plan: Plan, workspace: Workspace) -> list[Record]:
    """The records that a study shows, in the plan's order of models."""
    settings = {model: plan.settings_of(model) for model in plan.models}
    records = [
        r
        for r in workspace.store.records
        if r.model in settings
        and r.data_sha256 == workspace.benchmark.fingerprint
        and r.references == "first"
        and r.split in plan.splits
        and r.shots in plan.shots
        and r.candidates in plan.candidates
        and r.seed < plan.seeds
        and same_settings(r.config.get("settings"), settings[r.model])
    ]
    return sorted(records, key=lambda r: (plan.models.index(r.model), r.split, r.candidates, r.shots, r.seed))
