"""The paper's tables and figures: each study is a plan (in `recipes`) and a function that shows its results."""

from fewlink.studies.attack import ATTACK
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
    "attack": ATTACK,
}

__all__ = ["STUDIES", "Plan", "Study", "StudyOutput", "Workspace", "published_figures", "read_plan"]
