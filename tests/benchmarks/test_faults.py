"""Commands killed before operations on the disk, and appends side by side: nothing is lost, nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "faults.py"


def long(command: str, points: int) -> Any:
    return pytest.param(command, points, marks=pytest.mark.long)


def faults(*words: object) -> dict[str, Any]:
    """What the script finds, in a process that has started no threads."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("command, points", [("compile", 40), long("append", 70), long("evaluate", 25)])
def test_killed_before_every_operation(command: str, points: int) -> None:
    found = faults(command)[command]
    assert found["problems"] == [] and found["points"] >= points
    assert found["before"] > 10 and found["after"] > 10


@pytest.mark.long
@pytest.mark.parametrize("command, every", [("save", 29), ("pretrain", 11), ("card", 5), ("append to a run", 19)])
def test_killed_before_some_operations(command: str, every: int) -> None:
    found = faults(command, "--every", every)[command]
    assert found["problems"] == [] and found["points"] > 3


@pytest.mark.slow
def test_concurrent_appends_lose_nothing() -> None:
    found = faults("--appends", 3)["appends"]
    assert found == {"rounds": 3, "kept": 3, "fewest": 48}


def test_what_is_left_is_found() -> None:
    """The script itself: it fails where a command leaves its draft, or the folder in another state."""
    code = """
import sys; sys.path.insert(0, {folder!r})
import faults, pathlib, tempfile
bad = faults.Command(
    lambda: pathlib.Path("a").write_text("1"),
    lambda: (pathlib.Path(".a.new").write_text("2"), pathlib.Path(".a.new").rename("a"), pathlib.Path(".left").touch()),
    lambda: pathlib.Path("a").read_text(),
)
with tempfile.TemporaryDirectory() as place:
    print(faults.check(bad, pathlib.Path(place) / "bad")["problems"])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code.format(folder=str(SCRIPT.parent))]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert ".left is left by a command that was not killed" in done.stdout, done.stderr
