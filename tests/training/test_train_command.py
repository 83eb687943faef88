"""`fewlink train`: files, output, continuing, and error messages; and `fewlink evaluate` of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import town_lines, written
from typer.testing import CliRunner, Result

import fewlink
from fewlink.cli import app
from fewlink.core.errors import FewlinkError
from fewlink.core.recipes import Vectors
from fewlink.evaluation.records import read_records
from fewlink.fitting.fit import fit
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.vectors import pretrain
from fewlink.tasks import Benchmark, open_benchmark

QUICK = ("--set", "steps=4", "--set", "evaluate_every=2", "--set", "batch=8", "--set", "neighbours=4")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    graph, random = open_benchmark("umls").graph, torch.Generator().manual_seed(0)
    sizes = (len(graph.entities), 8), (2 * len(graph.relations), 8)
    table = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    table.save(tmp_path / "vectors", graph.fingerprint, graph="umls")
    return tmp_path / "vectors"


def train_command(*words: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, words), "--device", "cpu"])


def test_training_reports_progress_and_continues(vectors: Path, tmp_path: Path) -> None:
    words = ("umls", "--model", "fsrl-as3", "--shots", 2, "--embeddings", vectors, "--out", tmp_path / "run", *QUICK)
    result = train_command(*words)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("steps/s") == 2 and "s left" in result.stderr and "dev MRR" in result.stderr
    assert "Hits@10" in result.stdout and "README.md" in result.stdout
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["model"], settings["shots"], settings["steps"]) == ("fsrl-as3", 2, 4)
    more = train_command(*words, "--set", "steps=6")
    assert "step 4/6  continued" in more.stderr and more.stderr.count("steps/s") == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6]


def test_the_command_and_the_function_write_the_same_run(vectors: Path, tmp_path: Path) -> None:
    result = train_command("umls", "--model", "fsrl-as3", "--embeddings", vectors, "--out", tmp_path / "a", *QUICK)
    assert result.exit_code == 0, result.output
    fewlink.train("umls", "fsrl-as3", vectors=vectors, change=QUICK[1::2], out=tmp_path / "b")
    config, other = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("a", "b"))
    assert config["settings"] == other["settings"] and config["id"] == other["id"]
    weights = [(tmp_path / name / "best" / "weights.safetensors").read_bytes() for name in ("a", "b")]
    assert weights[0] == weights[1]


def test_a_run_is_resumed_with_its_own_settings_and_vectors(vectors: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_command("umls", "--model", "fsrl-as2a", "--shots", 2, "--embeddings", vectors, "--out", run, *QUICK)
    more = train_command("--resume", run, "--set", "steps=6")
    assert more.exit_code == 0, more.output
    assert "step 6/6" in more.stderr
    other = train_command("--resume", run, "--set", "batch=9")
    assert "batch = 8" in error_of(other)
    assert "--out" in error_of(train_command("umls"))


def test_each_seed_has_a_run_and_missing_vectors_are_pretrained(tmp_path: Path) -> None:
    short = tmp_path / "short.toml"
    short.write_text(
        'about = "short"\n[settings]\nmodel = "fsrl"\nsteps = 2\nbatch = 8\nneighbours = 4\n'
        '[vectors]\nrecipe = "transe"\nwith_train_tasks = true\nset = ["epochs=1", "dim=8", "negatives=16"]\n'
    )
    result = train_command("umls", "--recipe", short, "--seed", 1, "--seed", 2, "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert "transe vectors  epoch 1/1" in result.stderr and "fsrl seed 2  step 2/2" in result.stderr
    for seed in (1, 2):
        config = json.loads((tmp_path / "runs" / f"seed-{seed}" / "config.json").read_text())
        assert (config["settings"]["seed"], config["embeddings"]["model"]) == (seed, "transe")
    again = train_command("umls", "--recipe", short, "--seed", 1, "--seed", 2, "--out", tmp_path / "runs")
    assert "vectors" not in again.stderr and again.stderr.count("continued") == 2
    other = train_command("umls", "--model", "fsrl-as1", "--recipe", short, "--out", tmp_path / "more")
    assert "fsrl-as1" in error_of(other)


def error_of(result: Result) -> str:
    assert isinstance(result.exception, FewlinkError), result.output
    return str(result.exception)


def test_a_recipe_sets_model_and_shots_and_options_without_effect_raise(vectors: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[settings]\nmodel = "fsrl-as3"\nshots = 2\nsteps = 2\nbatch = 8\nneighbours = 4\n')
    run = tmp_path / "run"
    result = train_command("umls", "--recipe", mine, "--embeddings", vectors, "--out", run, "--json")
    assert result.exit_code == 0, result.output
    settings = json.loads((run / "config.json").read_text())["settings"]
    assert (settings["model"], settings["shots"]) == ("fsrl-as3", 2)
    assert json.loads(result.stdout)[0]["step"] == 2
    assert "--shots" in error_of(train_command("--resume", run, "--shots", 5))
    assert "--seed" in error_of(train_command("umls", "--set", "seed=9", "--out", run))
    assert "1, 1" in error_of(train_command("umls", "--seed", 1, "--seed", 1, "--out", tmp_path / "twice"))
    mine.write_text('[settings]\nmodel = "fsrl"\n[vectors]\nrecipes = "transe"\n')
    assert "'recipe'" in error_of(train_command("umls", "--recipe", mine, "--out", tmp_path / "other"))


def test_impossible_training_raises_before_pretraining(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep me")
    assert str(tmp_path / "file") in error_of(train_command("umls", "--model", "fsrl", "--out", tmp_path / "file"))
    assert "400" in error_of(train_command("umls", "--model", "fsrl", "--shots", 400, "--out", tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


SHORT = (
    'about = "short"\n[settings]\nmodel = "fsrl"\nsteps = 2\nbatch = 8\nneighbours = 4\n'
    '[vectors]\nrecipe = "transe"\nset = ["epochs=1", "dim=8", "negatives=16"]\n'
)


def test_other_vectors_in_the_folder_for_them_are_kept(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SHORT)
    vectors.rename(tmp_path / "run-vectors")
    result = train_command("umls", "--recipe", tmp_path / "short.toml", "--out", tmp_path / "run")
    assert str(tmp_path / "run-vectors") in error_of(result)
    assert Embeddings.open(tmp_path / "run-vectors").facts == {}


def test_a_run_of_another_benchmark_is_refused_before_anything_is_trained(vectors: Path, tmp_path: Path) -> None:
    train_command("umls", "--model", "fsrl", "--embeddings", vectors, "--out", tmp_path / "run", *QUICK)
    umls = open_benchmark("umls")
    other = replace(umls, tasks={**umls.tasks, "train": umls.tasks["train"][1:]})
    other.save(tmp_path / "other")
    result = train_command(tmp_path / "other", "--model", "fsrl", "--out", tmp_path / "run", *QUICK)
    assert "benchmark (umls" in error_of(result)
    result = train_command("umls", "--model", "fsrl-as3", "--out", tmp_path / "run", *QUICK)
    assert "fsrl-as3" in error_of(result)
    assert not (tmp_path / "run-vectors").exists()


def test_a_fit_is_not_trained_further(tmp_path: Path) -> None:
    lines, run = town_lines(), tmp_path / "run"
    fit(written(lines[:30], tmp_path / "towns.tsv"), run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command = f"fewlink fit GRAPH --out {run} --minutes N"
    assert command in error_of(train_command("--resume", run))
    assert command in error_of(train_command("umls", "--model", "trail", "--out", run))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_failed_run_can_start_again_and_more_patience_continues(vectors: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("umls", "--model", "fsrl", "--embeddings", vectors, "--out", run, *QUICK)
    assert "learning_rate" in error_of(train_command(*words, "--set", "learning_rate=1e38"))
    assert train_command(*words, "--set", "patience=1", "--set", "learning_rate=1e-12").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
    assert train_command("--resume", run, "--set", "steps=8").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2  # stopped by patience
    assert train_command("--resume", run, "--set", "steps=8", "--set", "patience=9").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4


def evaluate_command(*words: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, words), "--device", "cpu"])


def test_runs_are_evaluated_with_their_own_seeds_on_their_benchmark(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_benchmark("umls").save(tmp_path / "mine")
    train_command("mine", "--model", "fsrl", "--embeddings", vectors, "--seed", 1, "--seed", 2, "--out", "runs", *QUICK)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = evaluate_command("../runs", "--results", "kept", "--json")
    assert result.exit_code == 0, result.output
    assert [record["seed"] for record in json.loads(result.stdout)] == [1, 2]
    assert len(read_records(Path("kept"))) == 2
    assert json.loads(result.stdout)[0]["config"]["measured"]["best_step"] in (2, 4)
    for option, value in (("--seed", 3), ("--scorer", "rules")):
        assert option in error_of(evaluate_command("../runs", option, value))
    assert "--bench" in error_of(evaluate_command("umls", "--bench", tmp_path / "mine"))
    (tmp_path / "mine").rename(tmp_path / "moved")
    assert "--bench PATH" in error_of(evaluate_command("../runs"))
    assert evaluate_command("../runs", "--bench", tmp_path / "moved", "--results", "kept").exit_code == 0


def test_evaluating_relations_seen_in_training_raises(vectors: Path, tmp_path: Path) -> None:
    umls = open_benchmark("umls")
    swapped = Benchmark("swapped", umls.graph, {**umls.tasks, "train": umls.tasks["test"], "test": umls.tasks["train"]})
    swapped.save(tmp_path / "swapped")
    train_command("umls", "--model", "fsrl", "--embeddings", vectors, "--out", tmp_path / "run", *QUICK)
    words = (tmp_path / "run", "--bench", tmp_path / "swapped", "--results", tmp_path / "kept")
    assert "swapped" in error_of(evaluate_command(*words, "--split", "test"))
    assert evaluate_command(*words, "--split", "dev").exit_code == 0
    seen = pretrain(
        umls, EmbeddingSettings(model="transe", dim=8, epochs=1), out=tmp_path / "seen", with_train_tasks=True
    )
    with pytest.raises(FewlinkError, match="swapped"):
        trained_family("fsrl").check_vectors(swapped, seen)
    trained_family("fsrl").check_vectors(umls, seen)


def test_vectors_that_have_seen_references_refuse_other_references(tmp_path: Path) -> None:
    """Otherwise pairs that the vectors have seen would be queries."""
    umls, settings = open_benchmark("umls"), EmbeddingSettings(model="transe", dim=8, epochs=1)
    seen = pretrain(umls, settings, out=tmp_path / "seen", with_train_tasks=True, with_references=3)
    tasks = [task for split in ("dev", "test") for task in umls.split(split)]
    assert len(seen.relations) // 2 == len(umls.graph.relations) + len(umls.split("train")) + len(tasks)
    train_command("umls", "--model", "fsrl", "--embeddings", tmp_path / "seen", "--out", tmp_path / "run", *QUICK)
    words = (tmp_path / "run", "--results", tmp_path / "kept")
    assert evaluate_command(*words, "--shots", "3").exit_code == 0
    assert evaluate_command(*words, "--shots", "4").exit_code == 0
    for refused in (("--shots", "2"), ("--draws", "1")):
        assert "first 3 pairs" in error_of(evaluate_command(*words, *refused))
    with pytest.raises(FewlinkError, match="references of dev and test"):
        trained_family("metar").check_vectors(umls, seen)
    wanted = Vectors(recipe="transe", set=("dim=8", "epochs=1"), with_train_tasks=True)
    with pytest.raises(FewlinkError, match="other settings"):
        trained_family("fsrl").pretrain(umls, FewShotSettings(), wanted, tmp_path / "seen")


@pytest.mark.parametrize(
    ("words", "token"),
    [
        (("--model", "fsrll"), "'fsrl'"),
        (("--set", "step=3"), "'steps'"),
        (("--shots", "0"), "shots"),
        (("--embeddings", "nowhere"), "nowhere"),
    ],
)
def test_user_errors_leave_no_run_folder(words: tuple[str, ...], token: str, vectors: Path) -> None:
    run = vectors.parent / "run"
    assert token in error_of(train_command("umls", "--embeddings", vectors, "--out", run, *words))
    assert not run.exists()


def test_trail_takes_several_graphs(tmp_path: Path) -> None:
    rows = [f"p{i}\tlives\tc{i % 5}\np{i}\tknows\tp{(i * 7) % 30}\n" for i in range(30)]
    (tmp_path / "more.tsv").write_text("".join(rows))
    short = {"width": 8, "layers": 2, "steps": 2, "evaluate_every": 2, "relations": 1, "queries": 2, "candidates": 32}
    change = [word for name, value in short.items() for word in ("--set", f"{name}={value}")]
    run = tmp_path / "run"
    words = ("umls", tmp_path / "more.tsv", "--model", "trail", "--out", run, *change)
    result = train_command(*words)
    assert result.exit_code == 0, result.output
    assert json.loads((run / "config.json").read_text())["settings"]["also"] == str(tmp_path / "more.tsv")
    assert "step 2/2  continued" in train_command(*words).stderr
    resumed = train_command("--resume", run)
    assert resumed.exit_code == 0 and "step 2/2  continued" in resumed.stderr
    assert "--resume" in error_of(train_command("umls", tmp_path / "more.tsv", "--resume", run))
    other = train_command("umls", tmp_path / "more.tsv", "--model", "fsrl", "--out", tmp_path / "other")
    assert "fsrl" in error_of(other)
