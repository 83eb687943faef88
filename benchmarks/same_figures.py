"""Check that this version of fewlink reproduces the figures and weights of another version, to the last bit.

python benchmarks/same_figures.py FOLDER [--bench BENCH]

FOLDER holds the output of the other version: runs/NAME/ (run folders) and eval-NAME.json, which is printed by
`fewlink evaluate RUN --json` or, for a scorer without a run, by `fewlink evaluate BENCH --scorer NAME --json`. This
script evaluates each run again as its records describe, trains it again from its seed and vectors, and compares the
weights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from fewlink.evaluation import Protocol, evaluate
from fewlink.models import family_of
from fewlink.models.checkpoints import load_last, load_state
from fewlink.models.contract import Scorer
from fewlink.models.family import BaselineFamily
from fewlink.models.folder import EMBEDDINGS
from fewlink.models.run import benchmark_of
from fewlink.tasks import Benchmark, open_benchmark
from fewlink.training import RunConfig, open_run
from fewlink.training.trainer import train_run


def compare_figures(name: str, scorer: Scorer, benchmark: Benchmark, records: list[dict[str, Any]]) -> None:
    for record in records:
        protocol = Protocol(record["split"], record["shots"], record["candidates"], 0, record["seed"])
        evaluation = evaluate(benchmark, scorer, protocol)
        same = evaluation.metrics() == record["metrics"] and evaluation.relations() == record["relations"]
        ours, theirs = evaluation.metrics()["micro"]["mrr"], record["metrics"]["micro"]["mrr"]
        print(f"{name:16} {protocol.split:5} {protocol.candidates:6} MRR {ours!r} {theirs!r} {_verdict(same)}")


def compare_weights(name: str, run: Path, benchmark: Benchmark) -> None:
    config, state = RunConfig.read(run), load_state(run)
    settings = config.settings.replace(steps=state.step)
    vectors = config.family.open_vectors(run / EMBEDDINGS, benchmark.graph.fingerprint)
    with tempfile.TemporaryDirectory() as folder:
        train_run(benchmark, vectors, settings, folder)
        ours, theirs = load_last(Path(folder)), load_last(run)
    assert ours is not None and theirs is not None
    new_weights, old_weights = ours[0], theirs[0]
    same = new_weights.keys() == old_weights.keys()
    same = same and all(torch.equal(new_weights[weight], old_weights[weight]) for weight in old_weights)
    print(f"{name:16} {state.step} steps from seed {settings.seed}: {len(new_weights)} tensors {_verdict(same)}")


def _verdict(same: bool) -> str:
    return "equal" if same else "DIFFERENT"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bench", default="nell-one", help="the benchmark of scorers without a run")
    options = parser.parse_args()
    for path in sorted(options.folder.glob("eval-*.json")):
        name, content = path.stem.removeprefix("eval-"), json.loads(path.read_text())
        records = content if isinstance(content, list) else [content]
        run = options.folder / "runs" / name
        if run.exists():
            benchmark = benchmark_of(run)
            compare_figures(name, open_run(run, benchmark), benchmark, records)
            compare_weights(name, run, benchmark)
            continue
        benchmark, family = open_benchmark(options.bench), family_of(name)
        assert isinstance(family, BaselineFamily)
        values = records[0]["config"].get("settings")
        settings = family.settings(**values) if family.settings and values else None
        shots, seed = records[0]["shots"], records[0]["seed"]
        prepared = family.prepare(name, benchmark, settings, shots=shots, seed=seed)
        compare_figures(name, prepared.scorer, benchmark, records)


if __name__ == "__main__":
    main()
