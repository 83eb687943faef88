"""Every command answers a path that cannot be read with one line and exit code 2."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Fewlink

from fewlink.core.errors import InputError, check_file, read_file
from fewlink.curation.store import ProjectFile

ASK = ("--reference", "a0 => b0", "--head", "a1")
ONE = ("--reference", "a0 => b0")
COMMANDS = [
    ("ask", "PATH", *ASK),
    *(("ask", "g.tsv", *ASK, option, "PATH") for option in ("--references", "--rejected", "--types", "--names")),
    *(("ask", "g.tsv", *ASK, option, "PATH") for option in ("--bench", "--candidates")),
    *(("ask", "g.tsv", *ONE, option, "PATH") for option in ("--heads", "--tails")),
    ("relations", "g.tsv", "a0", "b0", "--references", "PATH"),
    ("check", "PATH"),
    ("serve", "PATH"),
    ("data", "get", "nell-one", "--from", "PATH"),
    ("data", "compile", "PATH", "--out", "o"),
    ("data", "info", "PATH"),
    ("data", "check", "PATH"),
    ("data", "append", "PATH", "g.tsv"),
    ("data", "append", "umls", "PATH"),
    ("data", "to-neo4j", "bolt://localhost:1", "PATH"),
    ("project", "list", "PATH"),
    ("project", "export", "PATH", "--out", "o.tsv"),
    ("project", "import", "x.decisions", "PATH", "--project", "p"),
    ("evaluate", "PATH"),
    ("evaluate", "umls", "--scorer", "PATH.py:f"),
    ("evaluate", "umls", "--scorer", "ultra", "--checkpoint", "PATH"),
    ("evaluate", "umls", "--scorer", "complex", "--recipe", "PATH.toml"),
    ("compare", "a", "b", "--benchmark", "umls", "--results", "PATH"),
    ("train", "PATH", "--out", "o"),
    ("train", "umls", "--model", "fsrl", "--embeddings", "PATH", "--out", "o"),
    ("train", "--resume", "PATH"),
    ("fit", "PATH", "--out", "o"),
]


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Paths that cannot be read, by kind."""
    graph = "".join(f"a{i % 7}\tr{i % 3}\tb{i % 5}\n" for i in range(60))
    (tmp_path / "g.tsv").write_text(graph)
    (tmp_path / "bundle.json").write_text('{"type": "bundle", "objects": []}')
    with ProjectFile(tmp_path / "x.decisions"):
        pass
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    here = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        os.chdir(here)
        names = ("folder", "fifo", "socket", "loop", "missing")
        yield {**{name: name for name in names}, "device": "/dev/zero", "long": "x" * 300, "under a file": "g.tsv/x"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_path_that_cannot_be_read_is_one_line(
    words: tuple[str, ...], paths: dict[str, str], fewlink: Fewlink
) -> None:
    for kind, path in paths.items():
        answer = fewlink(*(word.replace("PATH", path) for word in words))
        lines = [line for line in answer.err.splitlines() if line.startswith("error: ")]
        assert (answer.code, len(lines)) == (2, 1), (kind, answer)
        assert "Traceback" not in answer.err


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
def test_a_file_must_be_a_file(tmp_path: Path, make: object) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    for read in (check_file, read_file):
        with pytest.raises(InputError, match=r"x: "):
            read(tmp_path / "x")
    for path in ("a\0b", tmp_path / ("x" * 300), tmp_path / "missing"):
        with pytest.raises(InputError):
            check_file(path)


def test_a_pipe_of_the_shell_is_read(tmp_path: Path) -> None:
    """`fewlink ask graph.tsv --references <(…)`"""
    read, write = os.pipe()
    os.write(write, b"a\tb\n")
    os.close(write)
    try:
        assert read_file(f"/dev/fd/{read}") == b"a\tb\n"
    finally:
        os.close(read)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_line(tmp_path: Path, fewlink: Fewlink) -> None:
    (tmp_path / "g.tsv").write_text("a\tr\tb\n")
    (tmp_path / "g.tsv").chmod(0)
    for words in (("data", "check", "g.tsv"), ("ask", "g.tsv", *ASK), ("project", "list", "g.tsv")):
        answer = fewlink(*words)
        assert answer.code == 2 and "Permission denied" in answer.err and "Traceback" not in answer.err
