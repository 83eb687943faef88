"""Fits of small graphs shared by several tests: made once, and never changed by a test."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tests.conftest import QUICK_FIT, quickly, town_lines, written

from fewlink.fitting.fit import Fitted, fit

FOLDER = tempfile.TemporaryDirectory()
MANY = 24  # tasks of the towns that make relations enough to hold some out entirely


@functools.cache
def graph_file(tasks: int = 6) -> Path:
    return written(town_lines(tasks), Path(FOLDER.name) / f"towns-{tasks}.tsv")


@functools.cache
def fitted(tasks: int = 6) -> Fitted:
    """A fit of few steps: sufficient for everything but quality."""
    with quickly():
        return fit(graph_file(tasks), Path(FOLDER.name) / str(tasks) / "towns", change=QUICK_FIT)
