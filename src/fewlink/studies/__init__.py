"""The paper's tables and figures: each study is a plan (in `recipes`) and a function that shows its results."""

from collections.abc import Iterator

from fewlink.core.errors import choose
from fewlink.data.carving import FrozenGraph
from fewlink.models.ultra.family import name_of
from fewlink.studies import attack
from fewlink.studies.attack_tables import stored_tables
from fewlink.studies.runner import Plan, Study, StudyOutput, Workspace, published_figures, read_plan
from fewlink.studies.table_studies import (
    DATASETS,
    EMBEDDING,
    RIVALS,
    SELECTION,
    show_ablation,
    show_overall,
    show_relations,
    show_shots,
)


def show_attack(plan: Plan, workspace: Workspace) -> StudyOutput:
    return StudyOutput(stored_tables(workspace.store, plan.shots, _frozen(plan)))


def pending_attack(plan: Plan, workspace: Workspace) -> list[str]:
    return [f"{name}, {setting}" for name, _, setting in _missing(plan, workspace, _frozen(plan))]


def run_attack(plan: Plan, workspace: Workspace) -> None:
    """Ask each model for the later links, with each number of references that has no record."""
    if "ultra" in plan.models and workspace.checkpoint is None:
        workspace.tell("ultra is left out: give its weights with --checkpoint FILE")
    frozen, place = _frozen(plan), attack.Place(workspace.work, workspace.device, workspace.checkpoint)
    for name, model, setting in list(_missing(plan, workspace, frozen)):
        workspace.tell(f"{name}, {setting}")
        record, ranks = attack.measure(name, model, setting, frozen, place)
        workspace.store.add(record, ranks=ranks)


def _frozen(plan: Plan) -> FrozenGraph:
    """ATT&CK at the end of 2023, with later links of the plan's relations, or of all."""
    whole = attack.frozen_attack()
    later = {r: choose("relation with later links", r, whole.later) for r in plan.relations} or whole.later
    return FrozenGraph(whole.graph, later, {relation: whole.days[relation] for relation in later})


def _missing(plan: Plan, workspace: Workspace, frozen: FrozenGraph) -> Iterator[tuple[str, str, attack.Setting]]:
    """What has no record: the name of a model in records, the model, and its references."""
    records = [r for r in workspace.store.records if (r.benchmark, r.data_sha256) == (attack.NAME, frozen.fingerprint)]
    held = {(r.model, r.shots, r.references) for r in records}
    draws = range(1, plan.seeds + 1)
    few = [attack.Setting(shots, draw) for shots in plan.shots for draw in draws]
    ultra = [name_of(workspace.checkpoint)] if workspace.checkpoint else []
    names = {"trail": [attack.WITHOUT_ATTACK, "trail-shipped"], "ultra": ultra}
    for model in plan.models:
        every = [attack.Setting(attack.ALL, draw) for draw in (draws if model == "trail" else [0])]
        for name in names.get(model, [model]):
            for setting in (*every, *few):
                if (name, setting.shots, setting.chosen) not in held:
                    yield name, model, setting


STUDIES = {
    "overall": Study(show_overall),
    "relations": Study(show_relations),
    "ablation": Study(show_ablation),
    "trail-0.1": Study(show_ablation),
    "shots": Study(show_shots),
    "embedding": EMBEDDING,
    "selection": SELECTION,
    "datasets": DATASETS,
    "rivals": RIVALS,
    "attack": Study(show_attack, pending_attack, run_attack),
}

__all__ = ["STUDIES", "Plan", "Study", "StudyOutput", "Workspace", "published_figures", "read_plan"]
