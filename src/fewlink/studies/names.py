"""The names of the studies. Importing this module does not import torch."""

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
    "readings",
    "between",
    "datasets",
    "rivals",
    "attack",
)


def open_study(name: str) -> Study:
    """The study with this name: `STUDY` in the module of that name."""
    choose("study", name, dict.fromkeys(NAMES))
    study: Study = importlib.import_module(f"fewlink.studies.{name}").STUDY
    return study
