"""`fewlink study`: what it lists, shows, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fewlink(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fewlink", *words], capture_output=True, text=True, timeout=120)


def test_the_studies_are_listed() -> None:
    listed = json.loads(fewlink("study", "--json").stdout)
    assert [s["name"] for s in listed] == [
        "overall",
        "relations",
        "ablation",
        "trail",
        "shots",
        "embedding",
        "datasets",
    ]
    assert "Table 2" in fewlink("study").stdout


def test_a_study_runs_is_shown_and_written() -> None:
    words = ("study", "overall", "--tiny", "--model", "rules", "--model", "transe")
    assert fewlink(*words, "--todo").stdout.splitlines() == ["rules, K = 3", "transe, K = 3, seeds 0"]
    done = fewlink(*words, "--out", "page")
    assert done.returncode == 0, done.stderr
    assert "[1/2] rules" in done.stderr and "left" in done.stderr
    assert "expected:" in done.stdout and "macro MRR" in done.stdout
    assert fewlink(*words, "--todo").stdout.strip() == "nothing: all of it is finished"
    again = fewlink(*words, "--show", "--json")
    assert [table["title"] for table in json.loads(again.stdout)["tables"]] == ["test", "dev"]
    assert "| rules |" in Path("page/overall.md").read_text()


def test_pictures_are_files_of_their_own() -> None:
    done = fewlink("study", "relations", "--tiny", "--model", "gmatching-maxp", "--out", "page")
    assert done.returncode == 0, done.stderr
    picture = Path("page/relations-relations.svg").read_text()
    assert picture.startswith('<svg xmlns="http://www.w3.org/2000/svg"') and "prefers-color-scheme" in picture


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("overal",), "did you mean 'overall'"),
        (("overall", "umls", "--tiny"), "leave BENCH out"),
        (("overall", "--tiny", "--model", "trial"), "did you mean 'trail'"),
        (("overall", "--tiny", "--todo", "--show"), "give one of them"),
        (("overall", "--plan", "nowhere.toml"), "cannot be read"),
        (("datasets", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be_done_is_refused(words: tuple[str, ...], message: str) -> None:
    refused = fewlink("study", *words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert message in refused.stderr and "Traceback" not in refused.stderr
