"""The scripts of tables and figures run on built-in data, and measure only what has no record."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Answer

import readings
import wiki_one
from common import RESULTS, published, run
from fewlink.evaluation.records import RecordStore

Script = Callable[..., Answer]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Run a script in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEWLINK_DATA", str(tmp_path / "home"))

    def call(name: str, *words: str) -> Answer:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        code = 0
        try:
            run(importlib.import_module(name).main)
        except SystemExit as end:
            code = int(end.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("datasets", ["| umls |"]),
        ("overall", ["| rules |", "| transe |", "| fsrl |", "| trail |"]),
        ("between", ["| random | rank |", "| trail | score |"]),
        ("later_links", ["| popularity |", "| rules |"]),
        ("unseen_graphs", ["| TRAIL without names |", "| rules |"]),
        ("leaderboard", ["| rules |", "best with ranks"]),
    ],
)
def test_a_script_prints_its_table_on_built_in_data(script: Script, name: str, rows: list[str]) -> None:
    done = script(name, "--tiny")
    assert done.code == 0, done.err
    assert not [row for row in rows if row not in done.out]
    assert "not measured" not in done.out


@pytest.mark.slow
def test_what_has_a_record_is_not_measured_again_and_new_seeds_are(script: Script, tmp_path: Path) -> None:
    words = ("overall", "--tiny", "--models", "rules", "--results", "mine")
    first = script(*words)
    assert "rules" in first.err
    again = script(*words)
    assert again.out == first.out and "rules" not in again.err
    assert script("overall", "--tiny", "--show", "--results", "mine").out == first.out
    assert {record.model for record in RecordStore(tmp_path / "mine").records} == {"rules"}


@pytest.mark.slow
def test_a_reading_is_repeated_and_its_curve_stored(script: Script, tmp_path: Path) -> None:
    done = script("readings", "--tiny", "--repeat", "paper+negatives-released", "--results", "mine")
    assert done.code == 0, done.err
    (curve,) = RecordStore(tmp_path / "mine").read(readings.ReadingCurve)
    assert curve.readings == {"paper+negatives-released": 20}
    assert [point.step for point in curve.points] == [10, 20]
    assert "| paper+negatives-released | dev |" in done.out


def test_wiki_one_is_not_measured_without_its_files(script: Script) -> None:
    done = script("wiki_one")
    assert done.code == 0, done.err
    assert "not measured" in done.out and "| *fsrl, as published* | test | *.241*" in done.out
    assert "| *wiki-one, as published* | *4,838,244* |" in done.out


def test_without_the_data_stored_records_are_shown(script: Script) -> None:
    done = script("overall")
    assert done.code == 0 and "| trail | full |" in done.out
    assert "nell-one" in done.err


@pytest.mark.parametrize(
    ("words", "token"),
    [
        (("overall", "--models", "fsrk"), "fsrl"),
        (("readings", "--repeat", "paper+transe"), "--results"),
        (("readings", "--repeat", "transe", "--results", "mine"), "base"),
        (("unseen_graphs",), "--tiny"),
        (("overall", "--benchmark", "nothing", "--results", "mine"), "nothing"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(script: Script, words: tuple[str, ...], token: str) -> None:
    done = script(*words)
    assert done.code == 2 and done.err.splitlines()[-1].startswith("error: ") and token in done.err


def test_every_row_of_the_papers_tables_is_there() -> None:
    models = {model for benchmark, model, split in published() if (benchmark, split) == ("wiki-one", "test")}
    assert len(models) == 8
    assert sum(split.startswith("relation") for _, _, split in published()) == 22
    assert published()["nell-one", "fsrl", "test"] == {"mrr": 0.318, "hits@10": 0.507, "hits@5": 0.433, "hits@1": 0.211}
    assert len(wiki_one.not_measured().rows) == 32


def test_the_scripts_that_documents_name_exist() -> None:
    root = RESULTS.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    named = {
        script
        for page in pages
        for script in re.findall(r"(?:experiments|benchmarks)/\w+\.py", page.read_text("utf-8"))
    }
    assert "experiments/overall.py" in named
    assert not [script for script in named if not (root / script).is_file()]
