"""The studies by name."""

from __future__ import annotations

from typing import cast

from fewlink.base.resolver import choose
from fewlink.studies import ablation, datasets, embedding, overall, relations, selection, shots
from fewlink.studies.study import Study

STUDIES = {
    "overall": overall,
    "relations": relations,
    "ablation": ablation,
    "trail": ablation,
    "shots": shots,
    "embedding": embedding,
    "selection": selection,
    "datasets": datasets,
}


def study(name: str) -> Study:
    return cast(Study, choose("study", name, STUDIES))
