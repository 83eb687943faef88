"""The worked examples of docs/extending.md run: each section in a process and an empty folder of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.test_plugins import ROOT, installed, python

__all__ = ["installed"]
TEXT = (ROOT / "docs" / "extending.md").read_text("utf-8")


class Block(NamedTuple):
    language: str
    title: str  # a file: one of the repository that is quoted, or one that the section's code reads; empty: code to run
    code: str

    @property
    def quoted(self) -> bool:
        return bool(self.title) and (ROOT / self.title).is_file()


def sections() -> dict[str, list[Block]]:
    """The code blocks of each section, by its heading."""
    found = {}
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        blocks = re.findall(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', section, re.DOTALL | re.MULTILINE)
        found[section.splitlines()[0]] = [Block(*block) for block in blocks]
    return found


def scripts() -> dict[str, str]:
    """The Python code of each section that has some, in order."""
    code = {
        heading: "\n".join(block.code for block in blocks if block.language == "python" and not block.title)
        for heading, blocks in sections().items()
    }
    return {heading: text for heading, text in code.items() if text}


@pytest.mark.slow
@pytest.mark.parametrize("heading", scripts())
def test_the_python_of_a_section_runs(heading: str, tmp_path: Path) -> None:
    for block in sections()[heading]:
        if block.title and not block.quoted:
            (tmp_path / block.title).write_text(block.code, "utf-8")
    (tmp_path / "section.py").write_text(scripts()[heading], "utf-8")
    done = python(tmp_path, "section.py")
    assert done.returncode == 0, done.stderr


QUOTED = [block for blocks in sections().values() for block in blocks if block.quoted]


@pytest.mark.parametrize("block", QUOTED, ids=lambda block: block.title)
def test_a_quoted_part_is_in_its_file(block: Block) -> None:
    assert block.code in (ROOT / block.title).read_text("utf-8")


COMMANDS = [
    line.removeprefix("$ ")
    for blocks in sections().values()
    for block in blocks
    if block.language == "console"
    for line in block.code.splitlines()
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_with_the_example_package(command: str, installed: Path, tmp_path: Path) -> None:
    words = shlex.split(command)
    assert words[0] == "fewlink"
    done = python(tmp_path, "-m", *words, plugins=installed)
    assert done.returncode == 0, done.stderr


def test_the_table_names_every_section() -> None:
    links = re.findall(r"\]\(#(.+?)\)", TEXT)
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in sections()]
    assert links == anchors
