"""A fit of a small graph that several tests share: made once, and never changed by a test."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tests.conftest import QUICK_FIT, quickly, town_lines, written

from fewlink.pipeline.fit import Fitted, fit

KEPT = tempfile.TemporaryDirectory()


@functools.cache
def graph_file() -> Path:
    return written(town_lines(), Path(KEPT.name) / "towns.tsv")


@functools.cache
def fitted() -> Fitted:
    """A fit of few steps: enough for everything but quality."""
    with quickly():
        return fit(graph_file(), Path(KEPT.name) / "towns", change=QUICK_FIT)
