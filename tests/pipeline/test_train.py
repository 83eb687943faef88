"""One call from a file of triples to a trained run."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import QUICK_FIT, quickly
from tests.pipeline.fits import graph_file

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
