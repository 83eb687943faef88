"""The commands that train: what they write, that they continue, and how they refuse."""

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

QUICK = ("--set", "epochs=2", "--set", "negatives=64", "--dim", "16")


def test_pretrain_writes_a_folder_that_exports_and_belongs_to_its_graph(fewlink: Fewlink, tmp_path: Path) -> None:
    done = fewlink("pretrain", "umls", "--out", "vectors", "--with-train-tasks", *QUICK)
    assert done.code == 0, done.err
    assert "triples/s" in done.err and "left" in done.err
    trace = [json.loads(line) for line in (tmp_path / "vectors" / "trace.jsonl").read_text().splitlines()]
    assert [epoch["epoch"] for epoch in trace] == [1, 2]
    assert {"sampling", "step", "evaluation"} <= set(trace[0]["seconds"])
    for kind, file in (("numpy", "entities.npy"), ("word2vec", "entities.txt"), ("projector", "metadata.tsv")):
        assert fewlink("embeddings", "export", "umls", "vectors", "--to", kind, "--out", kind).code == 0
        assert (tmp_path / kind / file).exists()


def test_vectors_of_another_graph_are_refused(fewlink: Fewlink) -> None:
    fewlink("pretrain", "umls", "--out", "vectors", *QUICK)
    rows = [f"a{i}\t{r}\tb{(i * k) % 7}\n" for k, r in enumerate("pqrs", 1) for i in range(12)]
    Path("graph.tsv").write_text("".join(rows + [f"a{i}\tknows\tb{i % 7}\n" for i in range(40)]))
    assert fewlink("data", "carve", "graph.tsv", "--smallest", "9", "--largest", "12", "--out", "other").code == 0
    refused = fewlink("embeddings", "export", "other", "vectors", "--out", "x")
    assert refused.code == 2 and "was trained on umls" in refused.err


@pytest.mark.slow
def test_a_killed_run_continues_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
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


def test_a_baseline_is_trained_and_ranked_for_each_seed_and_number_of_references(
    fewlink: Fewlink, tmp_path: Path
) -> None:
    grid = ("--split", "dev", "--split", "test", "--shots", "1", "--shots", "3", "--seed", "0", "--seed", "1")
    done = fewlink("evaluate", "umls", "--scorer", "distmult", *grid, "--set", "epochs=1", "--set", "dim=8", "--json")
    assert done.code == 0, done.err
    records = json.loads(done.out)
    assert len(records) == len(read_records(tmp_path / "fewlink-results")) == 8
    assert {r["model"] for r in records} == {"distmult"}
    assert records[0]["config"]["settings"]["dim"] == 8
    table = fewlink("results", "--split", "test").out
    assert table.count("distmult") == 2 and "±" in table


def test_ordinary_link_prediction_leaves_a_record(fewlink: Fewlink, tmp_path: Path) -> None:
    rows = [f"e{i}\tnext\te{(i + 1) % 30}\n" for i in range(30)]
    for name, part in (("train", rows), ("valid", rows[:5]), ("test", rows[5:9])):
        Path(f"{name}.tsv").write_text("".join(part))
    words = ("--valid", "valid.tsv", "--test", "test.tsv", "--name", "ring", "--set", "epochs=1", "--set", "dim=8")
    done = fewlink("links", "train.tsv", *words, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["benchmark"], record["candidates"], record["queries"]) == ("ring", "all", 8)


def test_a_search_writes_a_recipe_that_evaluate_takes(fewlink: Fewlink) -> None:
    pytest.importorskip("optuna")
    small = ("--set", "dim=8", "--set", "epochs=1", "--set", "negatives=32")
    done = fewlink("tune", "umls", "--model", "transe", "--trials", "1", "--out", "search", *small)
    assert done.code == 0, done.err
    used = fewlink("evaluate", "umls", "--scorer", "transe", "--recipe", "search/transe.toml")
    assert used.code == 0, used.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pretrain", "umls", "--out", "x", "--model", "complx"), "did you mean 'complex'"),
        (("pretrain", "umls", "--out", "x", "--set", "epoch=3"), "did you mean 'epochs'"),
        (("pretrain", "umls", "--out", "x", "--device", "cuda"), "no GPU"),
        (("pretrain", "umls", "--out", "x", "--recipe", "transe"), "is for transe"),
        (("tune", "umls", "--out", "x", "--objective", "tes"), "objective"),
        (("embeddings", "import", "umls", "none", "--out", "x"), "none"),
        (("embeddings", "import", "umls", "a.npy", "--kind", "numpy", "--out", "x"), "--relations"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: tuple[str, ...], message: str, fewlink: Fewlink) -> None:
    if "cuda" in words:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
    done = fewlink(*words)
    assert done.code == 2
    assert message in done.err and len(done.err.splitlines()) == 1
    assert not Path("x").exists()


def test_a_process_of_its_own_answers_as_the_command_does_here(fewlink: Fewlink) -> None:
    words = ("pretrain", "umls", "--out", "x", "--model", "complx")
    command = [sys.executable, "-m", "fewlink", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == fewlink(*words)
