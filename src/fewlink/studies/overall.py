"""Table 2: every model on test and dev with each set of candidates, compared with the paper's figures."""

from __future__ import annotations

from fewlink.studies import tables
from fewlink.studies.jobs import finished_records
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.workspace import Workspace


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    published = plan.published.get(workspace.benchmark.name)
    return StudyOutput(tables.overall(finished_records(plan, workspace), published))


STUDY = Study(show)
