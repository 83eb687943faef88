"""`fewlink fit` and `fewlink data append`: output and error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import QUICK_FIT, benchmark_of, graph_of, town_lines, written
from typer.testing import CliRunner

from fewlink.cli import app
from fewlink.core.errors import FewlinkError

CHANGES = [word for change in QUICK_FIT for word in ("--set", change)]


def run_command(*words: str | Path) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def error_of(*words: str | Path) -> str:
    with pytest.raises(FewlinkError) as error:
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.slow
def test_fit_predict_and_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    graph, run = written(town_lines(24), tmp_path / "towns.tsv"), tmp_path / "run"
    first = run_command("fit", graph, "--out", run, *CHANGES)
    assert f"fewlink ask {run}" in first.stdout and str(run / "README.md") in first.stdout
    assert "(deployed)" in first.stdout and "rules" in first.stdout and "10 minutes" in first.stdout
    assert "note: " in first.stderr and str(run) in first.stderr and "all 4 steps" in first.stderr
    again = json.loads(run_command("fit", graph, "--out", run, *CHANGES, "--json").stdout)
    assert set(again["figures"]) == {"3", "all", "any"} and again["seconds"] > 0
    assert {"mrr", "hits@1", "hits@10", "error", "relations", "queries"} == {*again["figures"]["any"]}
    assert "seed = 0" in error_of("fit", graph, "--out", run, *CHANGES, "--seed", "1")
    graph.unlink()
    query = ["--reference", "p1 => t1", "--reference", "p3 => t3", "--top", "2", "--json"]
    predicted = run_command("ask", run, *query, "--head", "p2")
    assert len(json.loads(predicted.stdout)) == 2
    new = written([("newcomer", "lives in", "t3"), ("p1", "knows", "newcomer"), ("p1", "knows")], tmp_path / "new.tsv")
    assert "new.tsv:3" in error_of("data", "append", run, new)
    result = run_command("data", "append", run, new, "--on-error", "skip")
    assert "triples         2" in result.stdout and "1 bad line skipped" in result.stderr
    counts = json.loads(run_command("data", "append", run, new, "--on-error", "skip", "--json").stdout)
    assert (counts["triples"], counts["duplicates"]) == (0, 2)
    assert len(json.loads(run_command("ask", run, *query, "--head", "newcomer").stdout)) == 2
    monkeypatch.chdir(tmp_path)
    record = json.loads(run_command("evaluate", run, "--split", "dev", "--json").stdout)
    assert len(record["relations"]) == again["figures"]["3"]["relations"]


def test_append_remarks_on_a_new_entity_that_has_the_name_of_an_old_one(tmp_path: Path) -> None:
    bench, new = tmp_path / "bench", written([("seth", "knows", "Adam")], tmp_path / "new.tsv")
    benchmark_of(graph_of("eve knows adam")).save(bench)
    result = run_command("data", "append", bench, new, "--json")
    assert "note: 'Adam' is a new entity, but also the name of 'adam': write the id if you mean that" in result.stderr
    assert json.loads(result.stdout)["namesakes"] == {"Adam": ["adam"]}


def test_fit_errors_are_one_line_and_leave_no_folder(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "run"]
    graph = written(town_lines(), tmp_path / "towns.tsv")
    assert "nothing.tsv" in error_of("fit", tmp_path / "nothing.tsv", *out)
    assert "--seed" in error_of("fit", graph, *out, "--set", "seed=1")
    assert "nonsense" in error_of("fit", graph, *out, "--set", "nonsense=1")
    assert "layers" in error_of("fit", graph, *out, "--set", "layers=2")
    assert not (tmp_path / "run").exists()


def test_a_graph_of_which_nothing_can_be_measured_is_fitted_all_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = run_command("fit", written(town_lines()[:30], tmp_path / "few.tsv"), "--out", run)
    assert "deployed: " in result.stdout
    assert json.loads(run_command("ask", run, "--reference", "p1 => t1", "--head", "p2", "--json").stdout)
    again = json.loads(run_command("fit", tmp_path / "few.tsv", "--out", run, "--json").stdout)
    assert (again["card"], again["held_out"], again["deployed"]) == (None, {}, "shipped")


def test_a_fit_without_tuning(tmp_path: Path) -> None:
    graph = written(town_lines(), tmp_path / "towns.tsv")
    made = json.loads(run_command("fit", graph, "--out", tmp_path / "run", "--no-tune", "--json").stdout)
    assert (made["deployed"], [*made["held_out"]], [*made["figures"]]) == ("shipped", ["shipped"], ["all"])
    assert "no fine-tuning" in made["why"]
    before = (tmp_path / "run" / "fit.json").read_bytes()
    again = run_command("fit", graph, "--out", tmp_path / "run", "--no-tune")
    assert f"{tmp_path / 'run'} is already fitted: nothing was done; choose another --out to fit again" in again.stderr
    assert "measuring" not in again.stderr and (tmp_path / "run" / "fit.json").read_bytes() == before


def interrupted(words: list[str], at: str) -> tuple[int, str]:
    """Run the command as a process of its own and send it SIGINT at the first line with this text."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "fewlink", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # jobs in the background ignore it
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if at in lines[-1]:
            process.send_signal(signal.SIGINT)
            at = "no other line"
    return process.wait(), "".join(lines)


@pytest.mark.slow
@pytest.mark.long
def test_ctrl_c_at_any_stage_leaves_a_run_that_answers(tmp_path: Path) -> None:
    graph, run = written(town_lines(), tmp_path / "towns.tsv"), tmp_path / "run"
    words = ["fit", str(graph), "--out", str(run), *CHANGES]
    for at in ("holding", "measuring the built-in", "  fine-tuning", "measuring the fine-tuned", "what to expect"):
        code, text = interrupted(words, at)
        told = f"fewlink ask {run}" in text and "Traceback" not in text
        assert (code, told) == (130, True), (at, text)
        rows = json.loads(run_command("ask", run, "--reference", "p1 => t1", "--head", "p2", "--json").stdout)
        assert len(rows) == 8
    last = run_command(*words)
    assert f"{run} continues: " in last.stderr and "holding" not in last.stderr and "README.md" in last.stdout
