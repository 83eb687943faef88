"""Table 4: a model without one component at a time, compared with the paper's figures."""

from __future__ import annotations

from fewlink.core.errors import FewlinkError
from fewlink.studies import tables
from fewlink.studies.jobs import finished_records
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.workspace import Workspace


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    """Show the tables; raise unless the models of the plan are one model and its ablations."""
    records = finished_records(plan, workspace)
    full_models = [model for model, variants in tables.ablations().items() if {*plan.models} <= {*variants}]
    if not full_models:
        raise FewlinkError(f"{', '.join(plan.models)} are not one model and its ablations: leave out some of them")
    overall = tables.overall(records, plan.published.get(workspace.benchmark.name))
    changes = [tables.ablation(records, full_models[0], candidates=candidates) for candidates in plan.candidates]
    return StudyOutput([*overall, *changes])


STUDY = Study(show)
