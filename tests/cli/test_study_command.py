"""`fewlink study`: its list, its output and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Fewlink

from fewlink.studies import NAMES


def test_the_studies_are_listed(fewlink: Fewlink) -> None:
    listed = json.loads(fewlink("study", "--json").out)
    assert tuple(s["name"] for s in listed) == NAMES
    assert "Table 2" in fewlink("study").out


def test_a_study_runs_is_shown_and_written(fewlink: Fewlink) -> None:
    words = ("study", "overall", "--tiny", "--model", "rules", "--model", "transe")
    assert fewlink(*words, "--todo").out.splitlines() == ["rules, K = 3", "transe, K = 3, seeds 0"]
    done = fewlink(*words, "--out", "page")
    assert done.code == 0, done.err
    assert "[1/2] rules" in done.err and "left" in done.err
    assert "expected:" in done.out and "macro MRR" in done.out
    assert fewlink(*words, "--todo").out.startswith("nothing to do")
    stored = fewlink(*words)
    assert "nothing is run: these are the records stored in runs/tiny" in stored.err
    assert "--results" in stored.err and "[1/2]" not in stored.err
    again = fewlink(*words, "--show", "--json")
    assert [table["title"] for table in json.loads(again.out)["tables"]] == ["test", "dev"]
    assert "| rules |" in Path("page/overall.md").read_text()


def test_a_leaderboard_lists_what_is_missing_with_commands_and_runs_what_it_can(fewlink: Fewlink) -> None:
    todo = fewlink("study", "rivals", "--todo", "--model", "ultra-3g", "--model", "rules", "-k", 3).out.splitlines()
    assert len(todo) == 10
    assert todo[3] == (
        "umls, rules: K = 3; full, paper, open; seeds 0: fewlink evaluate umls --scorer rules --split test -k 3"
        " --candidates full --candidates paper --candidates open --results results"
    )
    assert "(needs ULTRA's published weights, ultra_3g.pth): fewlink evaluate umls --scorer ultra" in todo[6]
    words = ("study", "rivals", "umls", "--model", "rules", "--model", "ultra-3g", "-k", 3)
    done = fewlink(*words)
    assert done.code == 0, done.err
    assert "not run: umls, ultra-3g" in done.err and "rules" in done.out
    assert [line[:15] for line in fewlink(*words, "--todo").out.splitlines()] == ["umls, ultra-3g:"]
    assert fewlink("study", "rivals", "--tiny").code == 0
    assert fewlink("study", "rivals", "--tiny", "--todo").out.startswith("nothing to do")


def test_a_plan_is_a_file_of_any_name_and_a_study_without_records_says_so(fewlink: Fewlink) -> None:
    Path("plan.txt").write_text("title = 1 2")
    assert "plan.txt" in fewlink("study", "overall", "umls", "--plan", "plan.txt").err
    shown = fewlink("study", "overall", "--tiny", "--show")
    assert shown.code == 0 and "runs/tiny" in shown.err


@pytest.mark.parametrize(
    ("study", "line", "message"),
    [
        ("ablation", "models = ['rules', 'fsrl']", "rules, fsrl"),
        ("attack", "relations = ['group_uses_toool']", "'group_uses_tool'"),
    ],
)
def test_a_plan_that_does_not_fit_its_study_is_refused(study: str, line: str, message: str, fewlink: Fewlink) -> None:
    Path("mine.toml").write_text(f"title = 'x'\nabout = ''\nexpect = ''\nbenchmark = 'umls'\n{line}\n")
    refused = fewlink("study", study, "--plan", "mine.toml", "--show")
    assert refused.code == 2 and message in refused.err and "Traceback" not in refused.err


@pytest.mark.slow
def test_pictures_are_files_of_their_own(fewlink: Fewlink) -> None:
    done = fewlink("study", "relations", "--tiny", "--model", "gmatching-maxp", "--out", "page")
    assert done.code == 0, done.err
    assert "<svg" in Path("page/relations-relations.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("overal",), "'overall'"),
        (("overall", "umls", "--tiny"), "BENCH"),
        (("overall", "--tiny", "--model", "trial"), "'trail'"),
        (("overall", "--tiny", "--todo", "--show"), "--todo"),
        (("overall", "--plan", "nowhere.toml"), "nowhere.toml"),
        (("overall", "--plan", "nowhere.txt"), "nowhere.txt"),
        (("datasets", "nowhere"), "nowhere"),
    ],
)
def test_a_mistake_is_refused_with_a_reason(words: tuple[str, ...], message: str, fewlink: Fewlink) -> None:
    refused = fewlink("study", *words)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err and "Traceback" not in refused.err
