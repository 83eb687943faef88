"""Every command in README runs, on a small graph; commands that take minutes get less to do.

`test_packaging.py` runs the first block.
"""

from __future__ import annotations

import gzip
import re
import shlex
from importlib.resources import files
from pathlib import Path

import pytest
from tests.conftest import Fewlink

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
LESS = {  # added to commands that take minutes
    "fewlink fit my-graph.tsv": ["--minutes", "0.2"],
    "fewlink train umls": ["--set", "steps=5", "--set", "evaluate_every=5"],
    "fewlink complete": ["--top", "20"],
}
CALLED = {"virus": "A", "cell": "B", "fungus": "C", "plant": "D", "alga": "E", "affects": "R"}


def commands() -> list[str]:
    """The commands of all blocks but the first; those that serve run until they are stopped."""
    blocks = re.findall(r"^```\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)[1:]
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("fewlink ") and not line.startswith("fewlink serve")]


@pytest.mark.long
def test_all_commands_run(fewlink: Fewlink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEWLINK_DATA", str(tmp_path / "data"))
    lines = gzip.decompress((files("fewlink") / "builtin" / "umls.tsv.gz").read_bytes()).decode().splitlines()
    renamed = ["\t".join(CALLED.get(word, word) for word in line.split("\t")) for line in lines]
    Path("my-graph.tsv").write_text("\n".join(renamed) + "\n")
    Path("new.tsv").write_text("A\tR\tE\n")
    Path("pairs.tsv").write_text("A\tB\nC\tD\n")
    Path("heads.txt").write_text("E\n")
    assert len(commands()) > 12
    for command in commands():
        more = [word for start, words in LESS.items() if command.startswith(start) for word in words]
        done = fewlink(*shlex.split(command)[1:], *more)
        assert done.code == 0, f"{command}\n{done.out}\n{done.err}"
    assert Path("missing.tsv").stat().st_size > 100 and Path("runs/mine/README.md").is_file()
