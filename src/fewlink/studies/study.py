"""What a study is: how to show it, what is pending, and how that is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fewlink.core.storage import write_bytes
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
    """The jobs of a plan that are not finished, as text."""
    return [str(job) for job in pending_jobs(plan, workspace)]


def run_cells(plan: Plan, workspace: Workspace) -> None:
    """Train and evaluate everything in a plan that has no record."""
    run_jobs(pending_jobs(plan, workspace), workspace)


@dataclass(frozen=True)
class Study:
    """How to show a study, what of it is pending and how that is run.

    A study that only evaluates the models of its plan gives `show`, which reads `finished_records`, and nothing else.
    """

    show: Callable[[Plan, Workspace], StudyOutput]
    pending: Callable[[Plan, Workspace], list[str]] = pending_cells
    run: Callable[[Plan, Workspace], None] = run_cells
