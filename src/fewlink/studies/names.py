"""The names of the studies. Importing this module loads no model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from fewlink.core.errors import choose

if TYPE_CHECKING:
    from fewlink.studies.study import Study

NAMES = (
    "overall",
    "relations",
    "ablation",
    "shots",
    "embedding",
    "selection",
    "datasets",
    "rivals",
    "attack",
)


def open_study(name: str) -> Study:
    """A study by its name: the `STUDY` of the module of that name in this package."""
    choose("study", name, dict.fromkeys(NAMES))
    study: Study = importlib.import_module(f"fewlink.studies.{name}").STUDY
    return study
