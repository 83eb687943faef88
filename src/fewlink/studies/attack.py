"""A test in time: how well each model ranks links that MITRE added to ATT&CK after 2023, given the graph of 2023."""

from __future__ import annotations

from collections.abc import Iterator

from fewlink.core.errors import choose
from fewlink.models.published import PUBLISHED, model_of
from fewlink.studies import later_links
from fewlink.studies.attack_tables import stored_tables
from fewlink.studies.plan import Plan
from fewlink.studies.study import Study, StudyOutput
from fewlink.studies.workspace import Workspace
from fewlink.tasks.carving import FrozenGraph


def show(plan: Plan, workspace: Workspace) -> StudyOutput:
    return StudyOutput(stored_tables(workspace.store, plan.shots, _frozen(plan)))


def pending(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{name}, {setting}" for name, _, setting in _missing(plan, workspace, _frozen(plan))]


def run(plan: Plan, workspace: Workspace) -> None:
    """Rank the later links with each model and each number of references that has no record."""
    given = workspace.checkpoint and model_of(workspace.checkpoint)
    for model in [name for name in plan.models if name in PUBLISHED and name != given]:
        workspace.log(f"skipping {model}: give its weights with --checkpoint FILE")
    frozen = _frozen(plan)
    place = later_links.Place(workspace.work, workspace.device, workspace.checkpoint)
    for name, model, setting in list(_missing(plan, workspace, frozen)):
        workspace.log(f"{name}, {setting}")
        record, ranks = later_links.measure(name, model, setting, frozen, place)
        workspace.store.add(record, ranks=ranks)


def _frozen(plan: Plan) -> FrozenGraph:
    """ATT&CK at the end of 2023, with the later links of the plan's relations (by default of all)."""
    whole = later_links.frozen_attack()
    later = {r: choose("relation with later links", r, whole.later) for r in plan.relations} or whole.later
    return FrozenGraph(whole.graph, later, {relation: whole.days[relation] for relation in later})


def _missing(plan: Plan, workspace: Workspace, frozen: FrozenGraph) -> Iterator[tuple[str, str, later_links.Setting]]:
    """Yield each missing measurement: the model's name in records, the model, and its references."""
    stored = {
        (r.model, r.shots, r.references)
        for r in workspace.store.records
        if (r.benchmark, r.data_sha256) == (later_links.NAME, frozen.fingerprint)
    }
    draws = range(1, plan.seeds + 1)
    few = [later_links.Setting(shots, draw) for shots in plan.shots for draw in draws]
    names = {"trail": [later_links.BUILT_IN], **{model: [] for model in PUBLISHED}}
    if workspace.checkpoint:
        given = model_of(workspace.checkpoint)
        names[given] = [PUBLISHED[given].name_of(workspace.checkpoint)]
    for model in plan.models:
        for name in names.get(model, [model]):
            for setting in (later_links.Setting(later_links.ALL, 0), *few):
                if (name, setting.shots, setting.chosen) not in stored:
                    yield name, model, setting


STUDY = Study(show, pending, run)
