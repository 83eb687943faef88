"""Names from a stranger's files reach neither the terminal as control characters nor a spreadsheet as formulas."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Answer, Fewlink

from fewlink import cli
from fewlink.curation.store import ProjectFile
from fewlink.graph.compile import read_names_of

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"  # OSC 52: the terminal puts "evil" on the clipboard
HOSTILE = [f"alga{CLIPBOARD}", "virus\x9b31m", "cell‮drow", "=cmd|'/c calc'!A0", "+1", "-1", "@SUM(1)", "b\x08ell"]
RELATION = f"affects{CLIPBOARD}"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ENTITIES = [*HOSTILE, *(f"entity {i}" for i in range(8))]


def hostile_lines() -> Iterator[str]:
    count = len(ENTITIES)
    for number in range(count):
        for step in (1, 2, 5):
            yield f"{ENTITIES[number]}\t{RELATION}\t{ENTITIES[(number + step) % count]}\n"
        yield f"{ENTITIES[number]}\tother{number % 3}\u202e\t{ENTITIES[(number + 3) % count]}\n"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "hostile\x1b[2J.tsv"
    path.write_text("".join(hostile_lines()), "utf-8", newline="")
    (tmp_path / "types.tsv").write_text("".join(f"{e}\tkind{CLIPBOARD}\n" for e in ENTITIES), "utf-8", newline="")
    return path


def assert_safe(answer: Answer) -> None:
    for text in (answer.out, answer.err):
        assert UNSAFE.search(text) is None, UNSAFE.findall(text)


ASK = ("--reference", f"{HOSTILE[0]}\t{HOSTILE[1]}", "--head", HOSTILE[2])
COMMANDS: dict[str, tuple[str, ...]] = {
    "data check": ("data", "check", "GRAPH"),
    "data carve": ("data", "carve", "GRAPH", "--out", f"b{CLIPBOARD}", "--smallest", "4", "--largest", "20"),
    "ask": ("ask", "GRAPH", *ASK),
    "ask unknown": ("ask", "GRAPH", "--reference", "\x1b]0;t\x07 => b", "--head", "c"),
    "ask explain": ("ask", "GRAPH", *ASK, "--explain", "--top", "4"),
    "ask json": ("ask", "GRAPH", *ASK, "--json", "--explain"),
    "complete": ("complete", "GRAPH", "--relation", RELATION, "--out", "found.tsv", "--top", "20"),
    "relations": ("relations", "GRAPH", HOSTILE[0], HOSTILE[1]),
    "check": ("check", "GRAPH"),
    "missing": ("data", "check", "no\x1b[2Jfile.tsv"),
    "bad line": ("data", "check", "bad\x1b.tsv"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_control_character_is_printed(words: tuple[str, ...], graph: Path, fewlink: Fewlink) -> None:
    (graph.parent / "bad\x1b.tsv").write_text(f"{CLIPBOARD}\tb\n")
    answer = fewlink(*(str(graph) if word == "GRAPH" else word for word in words))
    assert answer.out or answer.err
    assert_safe(answer)
    if "--json" in words:
        json.loads(answer.out)


def test_json_holds_the_exact_names(graph: Path, fewlink: Fewlink) -> None:
    rows = json.loads(fewlink("ask", graph, *ASK, "--json", "--top", "100").out)
    assert {row["tail"] for row in rows} >= {HOSTILE[3], HOSTILE[0]}
    assert rows[0]["head"] == HOSTILE[2]


def test_a_benchmark_of_hostile_names_is_described_safely(graph: Path, fewlink: Fewlink) -> None:
    benchmark = f"bench{CLIPBOARD}"
    assert fewlink("data", "carve", graph, "--out", benchmark, "--smallest", 4, "--largest", 20).code == 0
    for words in (
        ("data", "info", benchmark),
        ("data", "info", benchmark, "--json"),
        ("evaluate", benchmark, "--shots", "1"),
        ("evaluate", benchmark, "--shots", "1", "--json"),
        ("data", "append", benchmark, graph),
    ):
        answer = fewlink(*words)
        assert answer.code == 0, answer.err
        assert_safe(answer)


def test_projects_are_shown_safely_and_exported_exactly(graph: Path, fewlink: Fewlink, tmp_path: Path) -> None:
    place = tmp_path / "x.decisions"
    with ProjectFile(place) as file:
        file.add_project(f"cures{CLIPBOARD}", [(HOSTILE[0], HOSTILE[3])], who="\x1b]0;me\x07")
        file.decide(f"cures{CLIPBOARD}", [("accepted", HOSTILE[4], "back\\slash")], who="\x1b]0;me\x07")
    for words in (("list",), ("list", "--json"), ("log",), ("log", "--json")):
        answer = fewlink("project", words[0], place, *words[1:])
        assert answer.code == 0
        assert_safe(answer)
    assert fewlink("project", "export", place, "--out", "x.nt").code == 0
    assert read_names_of(Path("x.nt")) == [
        (HOSTILE[0], f"cures{CLIPBOARD}", HOSTILE[3]),
        (HOSTILE[4], f"cures{CLIPBOARD}", "back\\slash"),
    ]
    assert_safe(fewlink("project", "undo", place, "--who", "\x1b]0;me\x07"))


def test_tables_for_spreadsheets_have_no_formulas(graph: Path, fewlink: Fewlink) -> None:
    names = {name: name.replace("\r", "\\r") for name in HOSTILE[3:7]}
    for words in (("ask", graph, *ASK, "--top", 100, "--tsv"), ("check", graph, "--tsv", "--top", 500)):
        cells = {cell for line in fewlink(*words).out.split("\n") for cell in line.split("\t")}
        assert cells >= {f"'{name}" for name in names.values()}
        assert not any(re.match(r"[=@]|[+-](?![\d.]+$)", cell) for cell in cells)


def test_completed_links_are_no_formulas_but_exact_as_json(graph: Path, fewlink: Fewlink) -> None:
    words = ("complete", graph, "--reference", f"{ENTITIES[0]}\t{ENTITIES[1]}", "--top", 300)
    assert fewlink(*words, "--out", "a.tsv").code == fewlink(*words, "--out", "b.jsonl").code == 0
    safe, exact = (Path(name).read_text("utf-8") for name in ("a.tsv", "b.jsonl"))
    assert "\t'=cmd" in safe and "\t=cmd" not in safe
    assert '"=cmd' in exact
    assert UNSAFE.search(safe) is None


def on_a_terminal(*words: str) -> str:
    """The output of a command on a terminal, where rich prints colours."""
    terminal, stream = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "fewlink", *words]
    with subprocess.Popen(command, stdin=stream, stdout=stream, stderr=stream, env=environment):
        os.close(stream)
        written = bytearray()
        with contextlib.suppress(OSError):  # the command has closed its end
            while read := os.read(terminal, 1 << 16):
                written += read
        os.close(terminal)
    return written.decode()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("ask", *ASK, "--explain"), ("data", "check"), ("check",)], ids=" ".join)
def test_a_terminal_gets_no_hostile_sequence(words: tuple[str, ...], graph: Path) -> None:
    place = 2 if words[0] == "data" else 1
    text = on_a_terminal(*words[:place], str(graph), *words[place:])
    assert "\x1b[1m" in text and "\\x1b]52" in text  # rich's bold title, and the escaped name
    rest = re.sub(r"\x1b\[[0-9;?]*[mhlAKJ]", "", text).replace("\r", "")
    assert UNSAFE.search(rest) is None, UNSAFE.findall(rest)
    assert "\x1b]" not in text and "\x1b[2J" not in text
