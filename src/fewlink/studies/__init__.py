"""The paper's tables and figures as studies, and tables, charts and a report of stored records.

A study is a module of this package, listed in `NAMES`, with a plan of the same name in `recipes`. Importing the package
does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fewlink.studies.names import NAMES, open_study

if TYPE_CHECKING:
    from fewlink.studies.jobs import finished_records
    from fewlink.studies.plan import Plan, published_figures, read_plan
    from fewlink.studies.study import Study, StudyOutput
    from fewlink.studies.workspace import Workspace

MODULES = {
    "Plan": "plan",
    "Study": "study",
    "StudyOutput": "study",
    "Workspace": "workspace",
    "finished_records": "jobs",
    "published_figures": "plan",
    "read_plan": "plan",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)


__all__ = [
    "NAMES",
    "Plan",
    "Study",
    "StudyOutput",
    "Workspace",
    "finished_records",
    "open_study",
    "published_figures",
    "read_plan",
]
