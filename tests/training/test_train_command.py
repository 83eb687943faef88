"""`fewlink train`: what it writes, what it says, that it continues, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from fewlink.base.errors import FewlinkError
from fewlink.cli.evaluate import evaluate
from fewlink.cli.train import train
from fewlink.data import Benchmark, open_benchmark
from fewlink.embeddings import Embeddings, EmbeddingSettings
from fewlink.evaluation.records import read_records
from fewlink.training import pretrain
from fewlink.training.family import trained_family

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
    assert isinstance(other.exception, FewlinkError) and "batch = 8, not 9" in str(other.exception)
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


def error_of(result: Result) -> str:
    assert isinstance(result.exception, FewlinkError), result.output
    return str(result.exception)


def test_a_recipe_brings_its_model_and_shots_and_options_that_would_be_ignored_are_refused(
    vectors: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[settings]\nmodel = "fsrl-as3"\nshots = 2\nsteps = 2\nbatch = 8\nneighbours = 4\n')
    run = tmp_path / "run"
    done = command("umls", "--recipe", mine, "--embeddings", vectors, "--out", run, "--json")
    assert done.exit_code == 0, done.output
    settings = json.loads((run / "config.json").read_text())["settings"]
    assert (settings["model"], settings["shots"]) == ("fsrl-as3", 2)
    assert json.loads(done.stdout)[0]["step"] == 2
    assert "--shots cannot be given with --resume" in error_of(command("--resume", run, "--shots", 5))
    assert "use --seed" in error_of(command("umls", "--set", "seed=9", "--out", run))
    assert "given twice" in error_of(command("umls", "--seed", 1, "--seed", 1, "--out", tmp_path / "twice"))
    assert "see fewlink pretrain" in error_of(command("umls", "--recipe", "transe", "--out", tmp_path / "other"))
    mine.write_text('[settings]\nmodel = "fsrl"\n[vectors]\nrecipes = "transe"\n')
    assert "did you mean 'recipe'" in error_of(command("umls", "--recipe", mine, "--out", tmp_path / "other"))


def test_what_cannot_be_trained_is_refused_before_vectors_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep me")
    assert "is a file" in error_of(command("umls", "--out", tmp_path / "file"))
    assert "too few" in error_of(command("umls", "--shots", 400, "--out", tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_vectors_left_by_another_recipe_are_not_taken(vectors: Path, tmp_path: Path) -> None:
    vectors.rename(tmp_path / "run-vectors")
    assert "holds transe vectors of other settings" in error_of(command("umls", "--out", tmp_path / "run"))
    pretrain(open_benchmark("umls"), EmbeddingSettings("transe", 8, epochs=1), out=tmp_path / "other-vectors")
    assert "holds transe vectors" in error_of(command("umls", "--out", tmp_path / "other"))


def test_a_run_that_came_to_nothing_may_begin_anew_and_more_patience_goes_on(vectors: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("umls", "--embeddings", vectors, "--out", run, *QUICK)
    assert "smaller learning_rate" in error_of(command(*words, "--set", "learning_rate=1e38"))
    assert command(*words, "--set", "patience=1", "--set", "learning_rate=1e-12").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
    assert command("--resume", run, "--set", "steps=8").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2  # stopped by patience
    assert command("--resume", run, "--set", "steps=8", "--set", "patience=9").exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4


def ranked(*words: object) -> Result:
    app = typer.Typer()
    app.command()(evaluate)
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def test_runs_are_evaluated_with_their_own_seeds_where_their_benchmark_is(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_benchmark("umls").save(tmp_path / "mine")
    command("mine", "--embeddings", vectors, "--seed", 1, "--seed", 2, "--out", "runs", *QUICK)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = ranked("../runs", "--results", "kept", "--json")
    assert done.exit_code == 0, done.output
    assert [record["seed"] for record in json.loads(done.stdout)] == [1, 2]
    assert len(read_records(Path("kept"))) == 2
    assert json.loads(done.stdout)[0]["config"]["measured"]["best_step"] in (2, 4)
    for words in (("--seed", 3), ("--scorer", "rules"), ("--processes", 2)):
        assert "is not for a run" in error_of(ranked("../runs", *words))
    assert "is not for a benchmark" in error_of(ranked("umls", "--bench", "mine"))
    (tmp_path / "mine").rename(tmp_path / "moved")
    assert "say where it is" in error_of(ranked("../runs"))
    assert ranked("../runs", "--bench", tmp_path / "moved", "--results", "kept").exit_code == 0


def test_a_run_is_not_evaluated_on_relations_it_was_trained_on(vectors: Path, tmp_path: Path) -> None:
    umls = open_benchmark("umls")
    swapped = Benchmark("swapped", umls.graph, {**umls.tasks, "train": umls.tasks["test"], "test": umls.tasks["train"]})
    swapped.save(tmp_path / "swapped")
    command("umls", "--embeddings", vectors, "--out", tmp_path / "run", *QUICK)
    words = (tmp_path / "run", "--bench", tmp_path / "swapped", "--results", tmp_path / "kept")
    assert "which swapped has in test" in error_of(ranked(*words, "--split", "test"))
    assert ranked(*words, "--split", "dev").exit_code == 0
    saw = pretrain(umls, EmbeddingSettings("transe", 8, epochs=1), out=tmp_path / "saw", with_train_tasks=True)
    with pytest.raises(FewlinkError, match="may have seen its answers"):
        trained_family("fsrl").check_vectors(swapped, saw)
    trained_family("fsrl").check_vectors(umls, saw)


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
