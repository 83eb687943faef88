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
    assert "fsrl-as3 on umls, 2 shots" in done.stdout and "dev hits@10" in done.stdout
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["model"], settings["shots"], settings["steps"]) == ("fsrl-as3", 2, 4)
    more = command(*words, "--set", "steps=6")
    assert "step 4/6  continued" in more.stderr and more.stderr.count("steps/s") == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6]


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
