"""`fewlink train`: what it writes, what it says, that it continues, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from fewlink.cli.train import train
from fewlink.embeddings import Embeddings
from fewlink.errors import FewlinkError
from fewlink.tasks import open_benchmark

QUICK = ("--set", "steps=4", "--set", "evaluate_every=2", "--set", "batch=8", "--set", "neighbours=4")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    graph, random = open_benchmark("umls").graph, torch.Generator().manual_seed(0)
    sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
    table = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    table.save(tmp_path / "vectors", graph.fingerprint, graph="umls")
    return tmp_path / "vectors"


def command(*words: object) -> Result:
    app = typer.Typer()
    app.command()(train)
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def test_it_trains_reports_and_continues(vectors: Path, tmp_path: Path) -> None:
    words = ("umls", "--model", "fsrl-as3", "--shots", 2, "--embeddings", vectors, "--out", tmp_path / "run", *QUICK)
    done = command(*words)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("steps/s") == 2 and "s left" in done.stderr and "dev MRR" in done.stderr
    assert "fsrl-as3 on umls, 2 shots" in done.stdout and "Hits@10" in done.stdout
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["model"], settings["shots"], settings["steps"]) == ("fsrl-as3", 2, 4)
    more = command(*words, "--set", "steps=6")
    assert "step 4/6  continued" in more.stderr and more.stderr.count("steps/s") == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6]


def test_a_run_is_resumed_with_its_own_settings_and_vectors(vectors: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command("umls", "--model", "fsrl-as2a", "--shots", 2, "--embeddings", vectors, "--out", run, *QUICK)
    more = command("--resume", run, "--set", "steps=6")
    assert more.exit_code == 0, more.output
    assert "fsrl-as2a  step 6/6" in more.stderr and "fsrl-as2a on umls, 2 shots" in more.stdout
    other = command("--resume", run, "--set", "batch=9")
    assert isinstance(other.exception, FewlinkError) and "batch = 8, and 9 is asked for" in str(other.exception)
    none = command("umls")
    assert isinstance(none.exception, FewlinkError) and "--out FOLDER" in str(none.exception)


def test_several_seeds_have_a_run_each_and_vectors_are_trained_where_none_are_given(tmp_path: Path) -> None:
    short = tmp_path / "short.toml"
    short.write_text(
        'about = "short"\n[settings]\nmodel = "fsrl"\nsteps = 2\nbatch = 8\nneighbours = 4\n'
        '[vectors]\nrecipe = "transe"\nwith_train_tasks = true\nset = ["epochs=1", "dim=8", "negatives=16"]\n'
    )
    done = command("umls", "--recipe", short, "--seed", 1, "--seed", 2, "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    assert "transe vectors  epoch 1/1" in done.stderr and "fsrl seed 2  step 2/2" in done.stderr
    for seed in (1, 2):
        config = json.loads((tmp_path / "runs" / f"seed-{seed}" / "config.json").read_text())
        assert (config["settings"]["seed"], config["embeddings"]["model"]) == (seed, "transe")
    again = command("umls", "--recipe", short, "--seed", 1, "--seed", 2, "--out", tmp_path / "runs")
    assert "vectors" not in again.stderr and again.stderr.count("continued") == 2
    other = command("umls", "--model", "fsrl-as1", "--recipe", short, "--out", tmp_path / "more")
    assert isinstance(other.exception, FewlinkError) and "is for fsrl, not for fsrl-as1" in str(other.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "fsrll"), "did you mean 'fsrl'"),
        (("--set", "step=3"), "did you mean 'steps'"),
        (("--shots", "0"), "shots is 0"),
        (("--embeddings", "nowhere"), "nowhere: does not exist"),
    ],
)
def test_a_mistake_is_named_and_leaves_nothing(words: tuple[str, ...], message: str, vectors: Path) -> None:
    run = vectors.parent / "run"
    done = command("umls", "--embeddings", vectors, "--out", run, *words)
    assert isinstance(done.exception, FewlinkError) and message in str(done.exception)
    assert not run.exists()
