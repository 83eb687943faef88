"""A fit of a small graph shared by several tests: made once, and never changed by a test."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tests.conftest import QUICK_FIT, quickly, town_lines, written

from fewlink.fitting.fit import Fitted, fit

FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def graph_file() -> Path:
    return written(town_lines(), Path(FOLDER.name) / "towns.tsv")


@functools.cache
def fitted() -> Fitted:
    """A fit of few steps: sufficient for everything but quality."""
    with quickly():
        return fit(graph_file(), Path(FOLDER.name) / "towns", change=QUICK_FIT)
