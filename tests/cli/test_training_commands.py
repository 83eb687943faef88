"""The commands that train embeddings: files, continuing, and error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Fewlink

from fewlink.evaluation.records import read_records
from fewlink.models import DEFAULT_MODEL, training_recipe

QUICK = ("--set", "epochs=2", "--set", "negatives=64", "--dim", "16")


def test_pretrained_vectors_are_traced_and_exported(fewlink: Fewlink, tmp_path: Path) -> None:
    result = fewlink("pretrain", "umls", "--out", "vectors", "--with-train-tasks", *QUICK)
    assert result.code == 0, result.err
    assert "triples/s" in result.err and "left" in result.err
    trace = [json.loads(line) for line in (tmp_path / "vectors" / "trace.jsonl").read_text().splitlines()]
    assert [epoch["epoch"] for epoch in trace] == [1, 2]
    assert {"sampling", "step", "evaluation"} <= set(trace[0]["seconds"])
    assert fewlink("embeddings", "export", "umls", "vectors", "--out", "exported").code == 0
    assert (tmp_path / "exported" / "entities.npy").exists()


def test_vectors_of_another_graph_raise(fewlink: Fewlink) -> None:
    fewlink("pretrain", "umls", "--out", "vectors", *QUICK)
    rows = [f"a{i}\t{r}\tb{(i * k) % 7}\n" for k, r in enumerate("pqrs", 1) for i in range(12)]
    Path("graph.tsv").write_text("".join(rows + [f"a{i}\tknows\tb{i % 7}\n" for i in range(40)]))
    assert fewlink("data", "carve", "graph.tsv", "--smallest", "9", "--largest", "12", "--out", "other").code == 0
    result = fewlink("embeddings", "export", "other", "vectors", "--out", "x")
    assert result.code == 2 and "umls" in result.err


@pytest.mark.slow
def test_killed_pretraining_continues_to_the_same_bytes(tmp_path: Path) -> None:
    words = ["pretrain", "umls", "--device", "cpu", "--dim", "16", "--set", "epochs=40", "--set", "negatives=64"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fewlink", *words, "--out", str(tmp_path / out)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)

    process = start("killed")
    while not list(tmp_path.glob(".killed.state*")) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    both = start("killed"), start("whole")
    assert [each.wait(120) for each in both] == [0, 0]
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
    assert not list(tmp_path.glob(".killed*"))


def test_a_baseline_is_trained_and_evaluated_for_each_seed_and_number_of_shots(
    fewlink: Fewlink, tmp_path: Path
) -> None:
    grid = ("--split", "dev", "--split", "test", "--shots", "1", "--shots", "3", "--seed", "0", "--seed", "1")
    result = fewlink("evaluate", "umls", "--scorer", "distmult", *grid, "--set", "epochs=1", "--set", "dim=8", "--json")
    assert result.code == 0, result.err
    records = json.loads(result.out)
    assert len(records) == len(read_records(tmp_path / "fewlink-results")) == 8
    assert {r["model"] for r in records} == {"distmult"}
    assert records[0]["config"]["settings"]["dim"] == 8
    table = fewlink("results", "--split", "test").out
    assert table.count("distmult") == 2 and "±" in table


def test_ordinary_link_prediction_stores_a_record(fewlink: Fewlink, tmp_path: Path) -> None:
    rows = [f"e{i}\tnext\te{(i + 1) % 30}\n" for i in range(30)]
    for name, part in (("train", rows), ("valid", rows[:5]), ("test", rows[5:9])):
        Path(f"{name}.tsv").write_text("".join(part))
    words = ("--valid", "valid.tsv", "--test", "test.tsv", "--name", "ring", "--set", "epochs=1", "--set", "dim=8")
    result = fewlink("links", "train.tsv", *words, "--json")
    assert result.code == 0, result.err
    record = json.loads(result.out)
    assert (record["benchmark"], record["candidates"], record["queries"]) == ("ring", "all", 8)


def write_ring() -> tuple[str, ...]:
    """Splits of a ring of 30 entities with two relations, and the words that name them."""
    rows = [f"e{i}\t{r}\te{(i + k) % 30}\n" for k, r in enumerate(("next", "second"), 1) for i in range(30)]
    for name, part in (("train", rows[5:]), ("valid", rows[:3]), ("test", rows[3:5])):
        Path(f"{name}.tsv").write_text("".join(part))
    return "links", "train.tsv", "--valid", "valid.tsv", "--test", "test.tsv", "--set", "dim=8", "--set", "epochs=2"


def test_link_prediction_says_what_it_chose_on_valid(fewlink: Fewlink, tmp_path: Path) -> None:
    words = write_ring()
    result = fewlink(*words, "--out", "runs/ring", "--json")
    assert result.code == 0, result.err
    config = json.loads(result.out)["config"]
    chosen = config["settings"]["n3"]
    assert "complex on 30 entities: 8 reals per entity, k-vs-all; searching for n3" in result.err
    assert f"chosen: n3 = {chosen:g} (" in result.err and "epoch 2/2" in result.err
    assert config["valid_mrr"][f"{chosen:g}"] == max(config["valid_mrr"].values()) and len(config["valid_mrr"]) > 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["ring"], "the states are removed"


def test_stopped_link_prediction_continues(fewlink: Fewlink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*write_ring(), "--out", "ring", "--json")
    whole = json.loads(fewlink(*words, "--results", "a").out)
    weights = (tmp_path / "ring" / "weights.safetensors").read_bytes()

    def stop(trace: dict[str, Any]) -> None:
        if trace["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fewlink.cli.common.epoch_reporter", lambda title: stop)
        assert fewlink(*words, "--results", "b").code != 0
    assert (tmp_path / ".ring.states").exists()
    result = fewlink(*words, "--results", "b")
    assert "n3=0.01  epoch" not in result.err and "n3=0.003  epoch 1/2" in result.err
    assert json.loads(result.out)["metrics"] == whole["metrics"]
    assert (tmp_path / "ring" / "weights.safetensors").read_bytes() == weights


def test_a_folder_of_something_else_is_refused_before_links_are_trained(fewlink: Fewlink) -> None:
    words = write_ring()
    result = fewlink(*words, "--out", ".")
    assert result.code == 2 and "--out" in result.err
    assert "epoch" not in result.err


def test_an_unwritable_folder_is_refused_before_links_are_trained(fewlink: Fewlink) -> None:
    Path("file").touch()
    result = fewlink(*write_ring(), "--out", "file/ring")
    assert result.code == 2 and "file/ring" in result.err and "epoch" not in result.err


def test_a_search_without_trials_and_a_folder_without_vectors_are_refused(fewlink: Fewlink) -> None:
    refused = fewlink("tune", "umls", "--trials", 0, "--out", "search")
    assert refused.code == 2 and "'--trials'" in refused.err and "Traceback" not in refused.err
    Path("empty").mkdir()
    refused = fewlink("embeddings", "export", "umls", "empty", "--out", "exported")
    assert refused.code == 2 and "empty" in refused.err


def test_link_prediction_with_a_given_weight_or_recipe_searches_for_nothing(fewlink: Fewlink) -> None:
    words = write_ring()
    given = fewlink(*words, "--set", "n3=0.2", "--json")
    assert given.code == 0 and "searching" not in given.err
    assert json.loads(given.out)["config"]["settings"]["n3"] == 0.2
    recipe = fewlink(*words, "--recipe", "complex-fb15k-237", "--name", "other", "--json")
    assert recipe.code == 0 and "searching" not in recipe.err and "held-out" not in recipe.err
    assert json.loads(recipe.out)["config"]["settings"]["n3"] == 0.02


def test_tune_writes_a_recipe_that_evaluate_accepts(fewlink: Fewlink) -> None:
    pytest.importorskip("optuna")
    small = ("--set", "dim=8", "--set", "epochs=1", "--set", "negatives=32")
    result = fewlink("tune", "umls", "--model", "transe", "--trials", "1", "--out", "search", *small)
    assert result.code == 0, result.err
    used = fewlink("evaluate", "umls", "--scorer", "transe", "--recipe", "search/transe.toml")
    assert used.code == 0, used.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pretrain", "umls", "--out", "x", "--model", "complx"), "'complex'"),
        (("pretrain", "umls", "--out", "x", "--set", "epoch=3"), "'epochs'"),
        (("pretrain", "umls", "--out", "x", "--device", "cuda"), "GPU"),
        (("pretrain", "umls", "--out", "x", "--recipe", "transe"), "transe"),
        (("tune", "umls", "--out", "x", "--objective", "tes"), "objective"),
        (("embeddings", "import", "umls", "none", "--out", "x"), "none"),
        (("embeddings", "import", "umls", "a.npy", "--kind", "numpy", "--out", "x"), "--relations"),
    ],
)
def test_user_errors_are_one_line_with_exit_code_2(words: tuple[str, ...], message: str, fewlink: Fewlink) -> None:
    if "cuda" in words:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    result = fewlink(*words)
    assert result.code == 2
    assert message in result.err and len(result.err.splitlines()) == 1
    assert not Path("x").exists()


def test_python_dash_m_fewlink_prints_the_same(fewlink: Fewlink) -> None:
    words = ("pretrain", "umls", "--out", "x", "--model", "complx")
    command = [sys.executable, "-m", "fewlink", *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout, result.stderr) == fewlink(*words)


def test_the_command_and_the_function_train_the_same_model_by_default(fewlink: Fewlink) -> None:
    assert training_recipe(None).settings.model == DEFAULT_MODEL == "trail"
    assert json.loads(fewlink("models", "--settings", "--json").out)[0] == {
        "name": "model",
        "default": "trail",
        "about": "a name of `fewlink models`",
    }
