"""Try a variant of TRAIL on known relations of a benchmark that are held out in folds, and store the figures.

python benchmarks/trail_folds.py nell-one "width 64" --set width=64 --expected better [--fold 0] [--device cuda]

Appends a line to benchmarks/tries/BENCH.jsonl, from which docs/trail.md has its log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from fewlink.base.memory import hardware
from fewlink.data import open_benchmark
from fewlink.data.training_graph import fold_benchmark
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.trail.family import graphs_of
from fewlink.trail.learner import TrailLearner, TrailSettings

ROOT = Path(__file__).resolve().parent.parent
FOLDS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("idea")
    parser.add_argument("--expected", default="")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--fold", action="append", type=int, help="by default both")
    parser.add_argument("--shots", action="append", type=int, help="by default 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "tries")
    asked = parser.parse_args()
    given = [f"seed={asked.seed}", f"device={asked.device}", *asked.set]
    settings = TrailSettings().adjusted(given)
    folds, shots = asked.fold or list(range(FOLDS)), asked.shots or [3]
    figures: dict[int, list[dict[str, dict[str, float]]]] = {k: [] for k in shots}
    for fold in folds:
        benchmark = fold_benchmark(open_benchmark(asked.benchmark), fold, FOLDS)
        learner = TrailLearner(graphs_of(benchmark, settings), settings)
        for step in range(0, settings.steps, learner.most):
            learner.advance(step, min(learner.most, settings.steps - step))
        for k in shots:
            figures[k].append(evaluate(benchmark, learner.scorer(0), Protocol("dev", k, "full")).metrics())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    place = asked.out / f"{Path(asked.benchmark).name}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a") as file:
        for k, found in figures.items():
            record = {
                **{"benchmark": asked.benchmark, "folds": folds, "idea": asked.idea, "expected": asked.expected},
                **{"settings": settings.as_dict(), "changed": asked.set, "steps": settings.steps},
                **{"shots": k, "candidates": "full", "seed": asked.seed},
                **{f"{kind}_mrr": [round(each[kind]["mrr"], 4) for each in found] for kind in ("micro", "macro")},
                **{"kept": "", "hardware": hardware(), "commit": commit.strip()},
            }
            print(json.dumps(record), file=file)
            print(f"{asked.idea}, K = {k}: micro {record['micro_mrr']}, macro {record['macro_mrr']}")


if __name__ == "__main__":
    main()
