"""The command line as a whole: help pages, and mistakes, each answered by one line and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.conftest import Answer, Fewlink

from fewlink import __version__, cli


def error_line(answer: Answer) -> str:
    """The one-line error message of a command."""
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    return answer.err


def commands() -> list[tuple[str, ...]]:
    """The words of every command; those in a group begin with the group's name."""
    words: list[tuple[str, ...]] = []
    group: Any = typer.main.get_command(cli.app)
    for name in group.commands:
        inside = getattr(group.get_command(None, name), "commands", {})
        words += [(name, each) for each in inside] or [(name,)]
    return words


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_help_loads_nothing_heavy() -> None:
    answer = python("-X", "importtime", "-m", "fewlink", "--help")
    assert answer.returncode == 0
    assert "few" in answer.stdout
    loaded = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert "fewlink.cli" in loaded
    assert not loaded & {"torch", "numpy", "pyarrow", "pydantic", "pandas"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_one_line() -> None:
    source = str(Path(cli.__file__).parents[2])
    with open("/dev/full", "w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "fewlink", "data", "list", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
            check=False,
        )
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: No space left on device") and answer.stderr.count("\n") == 1


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_help_page_fits_80_columns_and_shows_an_example(
    command: tuple[str, ...], fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    answer = fewlink(*command, "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert f"Example: fewlink {' '.join(command)}" in re.sub(r"[\s│]+", " ", answer.out)
    assert "--quiet" in answer.out
    assert not re.findall(r"--[\w-]*…|\t|\[\[|<(?:bool|str|int|float|path)", answer.out)


def test_help_lists_every_command_once_in_one_line_under_a_heading(
    fewlink: Fewlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    page = fewlink("--help").out
    headings = re.findall(r"╭─ (.+?) ─+╮", page)
    assert headings == ["Options", *cli.COMMANDS]
    _, _, lists = page.partition(f"╭─ {headings[1]} ")
    listed = re.findall(r"^│ (\S+) +\S", lists, re.MULTILINE)
    names = [name for group in cli.COMMANDS.values() for name, _, _ in group]
    assert listed == names and {*listed} == {words[0] for words in commands()}
    assert not re.findall(r"^│   ", lists, re.MULTILINE)  # no line goes on in the next


def test_the_version_with_what_a_report_of_a_bug_needs(fewlink: Fewlink) -> None:
    shown = fewlink("--version").out
    assert shown.startswith(f"fewlink {__version__} ") and "Python" in shown and "torch" in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("serve umls --device gpu", "gpu"),
        ("train umls --model nosuch --out r", "nosuch"),
        ("models nosuch", "nosuch"),
        ("evaluate umls --scorer rulez", "rules"),
        ("evaluate umls --scorer trail --set steps=3", "trail"),
        ("evaluate umls --shots 0", "shots"),
        ("evaluate umls --shots 900", "900"),
        ("evaluate umls --engine processes:0", "processes:0"),
        ("evaluate umls --scorer popularity --results /dev/null/x", "/dev/null/x"),
        ("evaluate attack --scorer rules", "attack-few"),
        ("data get nell", "'nell-one'"),
        ("data get attack --from nell.tar.gz", "--from"),
        ("data get nell-one --out here", "--out"),
        ("data check attack", "fewlink data get attack --out"),
    ],
)
def test_a_user_error_is_one_line_that_names_the_mistake(arguments: str, named: str, fewlink: Fewlink) -> None:
    assert named in error_line(fewlink(*arguments.split()))


def test_an_argument_that_is_not_valid_text_causes_no_traceback(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path / "r") + b"\xff")
    answer = python("-m", "fewlink", "evaluate", "umls", "--scorer", "popularity", "--results", folder)
    assert "Traceback" not in answer.stderr
