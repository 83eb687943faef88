"""Train TRAIL on several benchmarks at once, measure every seed on each of them, and store the records.

python benchmarks/trail_records.py pooled nell-one fb15k-237-few codex-s-few attack-few umls --seeds 5 --device cuda
python benchmarks/trail_records.py without nell-one fb15k-237-few codex-s-few attack-few umls --device cuda
python benchmarks/trail_records.py own nell-one fb15k-237-few codex-s-few attack-few umls --device cuda

`pooled` stores records of the model trail in RESULTS/BENCH/, its seeds trained side by side on a GPU; `without` (each
benchmark with weights trained on the others) and `own` (with weights trained on it alone) append lines to
benchmarks/tries/transfer.jsonl. Runs are kept in --runs: a command that was stopped continues them. `--only` names
benchmarks to measure, by default all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from fewlink.core.memory import hardware
from fewlink.data import Benchmark, open_benchmark
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.evaluation.ranks import QueryRanks
from fewlink.evaluation.records import RecordStore, make_record
from fewlink.models import training_recipe
from fewlink.models.family import NoVectors
from fewlink.scorers.cached import CachedScorer
from fewlink.training import RunConfig, open_run, train_runs

ROOT = Path(__file__).resolve().parent.parent
SHOTS = (3, 1, 5)


def trained(names: list[str], seeds: Sequence[int], asked: argparse.Namespace) -> list[Path]:
    """The runs of these seeds with weights trained on these benchmarks."""
    runs = {seed: asked.runs / f"{'+'.join(names)}-seed-{seed}" for seed in seeds}
    recipe = training_recipe("trail")
    settings = recipe.settings.adjusted([f"also={','.join(names[1:])}", f"device={asked.device}", *asked.set])
    settings = settings.replace(evaluate_every=settings.steps)
    train_runs(open_benchmark(names[0]), NoVectors(), settings, runs)
    return list(runs.values())


def pooled(asked: argparse.Namespace) -> None:
    for seed in asked.seed or range(5):
        (run,) = trained(asked.benchmarks, [seed], asked)
        config = {"settings": RunConfig.read(run).settings.as_dict()}
        for name in asked.only or asked.benchmarks:
            benchmark = open_benchmark(name)
            scorer = CachedScorer(open_run(run, benchmark, device=asked.device))
            for protocol in protocols(benchmark, seed):
                figures = evaluate(benchmark, scorer, protocol)
                facts = {"benchmark": benchmark.name, "data_sha256": benchmark.fingerprint}
                record = make_record(figures, model="trail", config=config, **facts)
                command = f"fewlink train {' '.join(asked.benchmarks)} --model trail --seed {seed} --out RUN"
                command += f" && fewlink evaluate RUN --bench {name} --split {protocol.split}"
                record = record.model_copy(update={"command": command})
                RecordStore(asked.results).add(record, ranks=QueryRanks.of(figures), replace=asked.replace)
            print(f"seed {seed}: {name} measured", flush=True)


def protocols(benchmark: Benchmark, seed: int) -> list[Protocol]:
    fewest = {split: min(len(task.pairs) for task in benchmark.split(split)) for split in ("dev", "test")}
    kinds = [(split, k, kind) for split in fewest for k in SHOTS for kind in ("full", "paper", "open")]
    return [Protocol(split, k, kind, 0, seed) for split, k, kind in kinds if k < fewest[split]]


def transfer(asked: argparse.Namespace) -> None:
    """Each benchmark's test relations with weights of the others, or with weights of its own."""
    for name in asked.only or asked.benchmarks:
        names = [name] if asked.what == "own" else [other for other in asked.benchmarks if other != name]
        benchmark = open_benchmark(name)
        (run,) = trained(names, [0], asked)
        scorer = open_run(run, benchmark, device=asked.device)
        for split in ("dev", "test"):
            figures = evaluate(benchmark, scorer, Protocol(split, 3, "full")).metrics()
            row = {"benchmark": name, "weights": asked.what, "trained_on": names, "split": split, "shots": 3}
            row |= {"candidates": "full", "seed": 0, "metrics": figures, "hardware": hardware(), "set": asked.set}
            with (asked.tries / "transfer.jsonl").open("a") as file:
                print(json.dumps(row), file=file)
        print(f"{name} with {asked.what} weights: {figures['micro']['mrr']:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pooled", "without", "own"))
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--only", action="append", metavar="BENCH")
    parser.add_argument("--seed", action="append", type=int, help="by default 0 to 4")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--replace", action="store_true", help="replace records that have other figures")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--tries", type=Path, default=ROOT / "benchmarks" / "tries")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "trail")
    asked = parser.parse_args()
    for folder in (asked.results, asked.tries):
        folder.mkdir(parents=True, exist_ok=True)
    pooled(asked) if asked.what == "pooled" else transfer(asked)


if __name__ == "__main__":
    main()
