"""Whether this version of fewlink gives the figures and weights that another version gave, to the last bit.

python benchmarks/same_figures.py FOLDER [--bench BENCH]

FOLDER holds what the other version made: runs/NAME/ (run folders) and eval-NAME.json (`fewlink evaluate RUN --json`, or
`fewlink evaluate BENCH --scorer NAME … --json` for a scorer that is made on the spot). Each run is opened and evaluated
again as its records say; then it is trained again from its seed, on its own vectors, and its weights are compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from fewlink.data import Benchmark, open_benchmark
from fewlink.evaluation import Protocol, evaluate
from fewlink.models import family_of
from fewlink.models.family import BaselineFamily
from fewlink.scorers import Scorer
from fewlink.training import RunConfig, open_run
from fewlink.training.checkpoints import load_last, load_state
from fewlink.training.run import EMBEDDINGS, benchmark_of
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
    before = {_renamed(weight): tensor for weight, tensor in theirs[0].items()}
    same = before.keys() == ours[0].keys() and all(torch.equal(ours[0][each], before[each]) for each in before)
    print(f"{name:16} {state.step} steps from seed {settings.seed}: {len(ours[0])} tensors {_verdict(same)}")


def _renamed(weight: str) -> str:
    """The name that a weight of version 0.1 has since."""
    return weight.replace("parts.trails.near.", "parts.paths.").replace("parts.trails.", "parts.paths.")


def _verdict(same: bool) -> str:
    return "equal" if same else "DIFFERENT"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bench", default="nell-one", help="benchmark of the scorers that are made on the spot")
    given = parser.parse_args()
    for path in sorted(given.folder.glob("eval-*.json")):
        name, content = path.stem.removeprefix("eval-"), json.loads(path.read_text())
        records = content if isinstance(content, list) else [content]
        run = given.folder / "runs" / name
        if run.exists():
            benchmark = benchmark_of(run)
            compare_figures(name, open_run(run, benchmark), benchmark, records)
            compare_weights(name, run, benchmark)
            continue
        benchmark, family = open_benchmark(given.bench), family_of(name)
        assert isinstance(family, BaselineFamily)
        values = records[0]["config"].get("settings")
        settings = family.settings(**values) if family.settings and values else None
        shots, seed = records[0]["shots"], records[0]["seed"]
        prepared = family.prepare(name, benchmark, settings, shots=shots, seed=seed)
        compare_figures(name, prepared.scorer, benchmark, records)


if __name__ == "__main__":
    main()
