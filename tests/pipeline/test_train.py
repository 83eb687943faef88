"""One call from a file of triples to a trained run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import QUICK_FIT, quickly
from tests.pipeline.fits import graph_file, town_lines, written

from fewlink.base.errors import FewlinkError
from fewlink.data import open_benchmark
from fewlink.pipeline.train import train
from fewlink.prediction import Linker
from fewlink.training import RunConfig


def test_a_file_of_triples_becomes_a_run_and_the_same_call_continues_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with quickly():
        train(graph_file(), "trail", out=run, change=QUICK_FIT)
        weights = (run / "best" / "weights.safetensors").read_bytes()
        train(graph_file(), "trail", out=run, change=QUICK_FIT)
    assert (run / "best" / "weights.safetensors").read_bytes() == weights
    benchmark = open_benchmark(run / "benchmark")
    config = RunConfig.read(run).benchmark
    assert (config["source"], config["fingerprint"]) == (benchmark.source, benchmark.fingerprint)
    assert (tmp_path / "run-vectors").is_dir()
    assert len(Linker.load(run).predict([("p1", "t1")], ["p2"], k=3)) == 3


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    run, other = tmp_path / "run", written(town_lines()[:-3], tmp_path / "other.tsv")
    with quickly():
        train(graph_file(), "trail", out=run, change=QUICK_FIT)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(FewlinkError, match="was trained on another graph"):
        train(other, "trail", out=run, change=QUICK_FIT)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_text("dear …")
    with pytest.raises(FewlinkError, match="is not a training run"):
        train(graph_file(), "trail", out=tmp_path / "precious", change=QUICK_FIT)
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["letter.txt"]
