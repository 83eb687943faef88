"""`fewlink train` and `fewlink models`: embedding models as any other, cards, continuing, and mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import Fewlink

from fewlink.evaluation.records import read_records
from fewlink.models import DEFAULT_MODEL, training_recipe

QUICK = ("--set", "epochs=2", "--set", "negatives=64", "--set", "dim=16")
FSRL = ("--model", "fsrl", "--set", "steps=2", "--set", "evaluate_every=2", "--set", "batch=8", "--set", "neighbours=4")


def test_an_embedding_model_is_trained_evaluated_and_read_by_fsrl(fewlink: Fewlink, tmp_path: Path) -> None:
    trained = fewlink("train", "umls", "--model", "transe", "--out", "vectors", *QUICK, "--json")
    assert trained.code == 0, trained.err
    assert "triples/s" in trained.err and "left" in trained.err
    (facts,) = json.loads(trained.out)
    assert (facts["step"], facts["card"]) == (2, None) and 0 < facts["best"]["mrr"] < 1
    record = json.loads(fewlink("evaluate", "vectors", "--json").out)
    assert (record["benchmark"], record["model"], record["shots"]) == ("umls", "transe", 3)
    assert record["metrics"]["micro"]["mrr"] == pytest.approx(facts["best"]["mrr"])
    again = fewlink("train", "umls", "--model", "transe", "--out", "vectors", *QUICK)
    assert again.code == 0 and "epoch" not in again.err
    other = fewlink("train", "umls", "--model", "transe", "--out", "vectors", *QUICK, "--set", "dim=8")
    assert other.code == 2 and "vectors" in other.err
    assert fewlink("train", "umls", "--model", "transe", "--shots", 0, "--out", "background", *QUICK).code == 0
    assert fewlink("evaluate", "background").code == 2  # has no vectors of the relations of the tasks
    for vectors in ("vectors", "background"):
        read = fewlink("train", "umls", *FSRL, "--embeddings", vectors, "--out", f"fsrl-{vectors}")
        assert read.code == 0, read.err
    assert (tmp_path / "fsrl-background" / "README.md").exists()


def test_a_trained_model_has_a_card_and_probabilities(fewlink: Fewlink) -> None:
    trained = fewlink("train", "umls", *FSRL, "--out", "run", "--json")
    assert trained.code == 0, trained.err
    (facts,) = json.loads(trained.out)
    assert "fsrl on umls" in Path(facts["card"]).read_text()
    (asked,) = json.loads(fewlink("ask", "run", "--relation", "causes", "--head", "alga", "-k", 1, "--json").out)
    assert asked["score"]


@pytest.mark.slow
def test_killed_training_of_vectors_continues_to_the_same_bytes(tmp_path: Path) -> None:
    words = ["train", "umls", "--model", "complex", "--device", "cpu"]
    words += [word for change in ("epochs=40", "negatives=64", "dim=16") for word in ("--set", change)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fewlink", *words, "--out", str(tmp_path / out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    process = start("killed")
    while not list(tmp_path.glob(".killed.state*")) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    both = start("killed"), start("whole")
    assert [each.wait(120) for each in both] == [0, 0]
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "complx"), "'complex'"),
        (("--model", "complex", "--set", "epoch=3"), "'epochs'"),
        (("--model", "complex", "--device", "cuda"), "GPU"),
        (("--model", "complex", "--recipe", "transe"), "transe"),
        (("--model", "complex", "--embeddings", "."), "reads no vectors"),
        (("--model", "rules"), "rules"),
        (("--set", "seed=1"), "--seed"),
    ],
)
def test_user_errors_are_one_line_with_exit_code_2(words: tuple[str, ...], message: str, fewlink: Fewlink) -> None:
    if "cuda" in words:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
    result = fewlink("train", "umls", "--out", "x", *words)
    assert result.code == 2
    assert message in result.err and len(result.err.splitlines()) == 1
    assert not Path("x").exists()


def test_models_shows_models_or_the_settings_and_recipes_of_one(fewlink: Fewlink) -> None:
    assert training_recipe(None).settings.model == DEFAULT_MODEL == "trail"
    assert {"complex", "fsrl", "rules", "trail"} <= {row["name"] for row in json.loads(fewlink("models", "--json").out)}
    assert "gmatching" in fewlink("models").out
    facts = json.loads(fewlink("models", "complex", "--json").out)
    assert {row["name"]: row["default"] for row in facts["settings"]}["model"] == "complex"
    recipes = {recipe["name"]: recipe for recipe in facts["recipes"]}
    assert recipes["complex"]["settings"]["dim"] == 100 and recipes["complex"]["measured"]
    shown = fewlink("models", "complex").out
    assert "learning_rate" in shown and "recipe complex: " in shown
    assert fewlink("models", "rules").code == 0
