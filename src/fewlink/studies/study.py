"""Studies: functions that show results, list pending jobs and run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fewlink.core.files import write_bytes
from fewlink.studies.charts import Chart
from fewlink.studies.jobs import pending_jobs, run_jobs
from fewlink.studies.plan import Plan
from fewlink.studies.tables import Table
from fewlink.studies.workspace import Workspace


@dataclass(frozen=True)
class StudyOutput:
    """Tables, and charts by name."""

    tables: list[Table]
    charts: Mapping[str, Chart] = field(default_factory=dict)

    def write(self, folder: Path, name: str, plan: Plan) -> None:
        """Write the tables as one Markdown page, `NAME.md`, with the charts beside it as SVG files."""
        folder.mkdir(parents=True, exist_ok=True)
        paragraphs = [f"# {plan.title}\n\n{plan.about}. Expected: {plan.expect}.\n"]
        paragraphs += [f"## {table.title}\n\n{table.markdown()}" for table in self.tables]
        for title, chart in self.charts.items():
            file = f"{name}-{title}.svg".replace("/", "-").replace(":", "-")
            write_bytes(folder / file, chart.svg().encode())
            paragraphs.append(f"![{title}]({file})\n")
        write_bytes(folder / f"{name}.md", "\n".join(paragraphs).encode())


def pending_cells(plan: Plan, workspace: Workspace) -> list[str]:
    """The unfinished jobs of a plan, as text."""
    return [str(job) for job in pending_jobs(plan, workspace)]


def run_cells(plan: Plan, workspace: Workspace) -> None:
    """Train and evaluate every cell of a plan that has no record."""
    run_jobs(pending_jobs(plan, workspace), workspace)


@dataclass(frozen=True)
class Study:
    """A study.

    show     the tables and charts of the stored results
    pending  the unfinished jobs, as text
    run      run the unfinished jobs

    A study that only evaluates the models of its plan defines only `show`, which reads `finished_records`.
    """

    show: Callable[[Plan, Workspace], StudyOutput]
    pending: Callable[[Plan, Workspace], list[str]] = pending_cells
    run: Callable[[Plan, Workspace], None] = run_cells
