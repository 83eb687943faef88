"""A compilation that is killed goes on to the same bytes, wherever it was killed."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import os, sys
from pathlib import Path
from fewlink.graph.compile import compile_to_folder
from fewlink.graph.source import GraphSource

folder, fatal, calls = Path(sys.argv[1]), int(sys.argv[2]), 0

def ends_at(call):
    def counted(*args, **more):
        global calls
        calls += 1
        if calls == fatal:
            os._exit(9)
        return call(*args, **more)
    return counted

for name in ("fsync", "rename", "replace", "unlink", "rmdir", "link"):
    setattr(os, name, ends_at(getattr(os, name)))
large = {"large": 100, "small": 10_000}[sys.argv[3]]  # triples above which more is stored
source = GraphSource.of(folder / "graph.tsv", names=folder / "names.tsv", types=folder / "types.tsv")
compile_to_folder(source, folder / "out", large=large)
print(calls)
"""


def write_graph(folder: Path) -> None:
    """800 triples with literals that are left out, and a tenth of them twice."""
    rng = random.Random(0)
    rows = [f"e{rng.randrange(99)}\tr{rng.randrange(5)}\te{rng.randrange(99)}\n" for _ in range(640)]
    rows += [f"e{number}\tborn\t{1900 + number}-01-02\n" for number in range(80)]
    rows += rng.choices(rows, k=80)
    folder.mkdir()
    (folder / "graph.tsv").write_text("".join(rows))
    (folder / "names.tsv").write_text("".join(f"e{number}\tEntity {number}\n" for number in range(99)))
    (folder / "types.tsv").write_text("".join(f"e{number}\tkind {number % 3}\n" for number in range(99)))


def compiled(folder: Path, fatal: int, size: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMPILE, str(folder), str(fatal), size]
    return subprocess.run(command, capture_output=True, text=True)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}


@pytest.mark.parametrize(
    ("size", "step"),
    [("small", 89), ("large", 61), pytest.param("large", 1, marks=pytest.mark.long)],
)
def test_a_killed_compilation_goes_on_to_the_same_bytes(tmp_path: Path, size: str, step: int) -> None:
    write_graph(tmp_path / "whole")
    whole = compiled(tmp_path / "whole", 0, size)
    assert whole.returncode == 0, whole.stderr
    for fatal in range(1, int(whole.stdout) + 1, step):
        folder = tmp_path / str(fatal)
        write_graph(folder)
        assert compiled(folder, fatal, size).returncode == 9
        again = compiled(folder, 0, size)
        assert again.returncode == 0, again.stderr
        assert content(folder) == content(tmp_path / "whole"), fatal
