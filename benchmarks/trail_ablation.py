"""TRAIL without one of its parts: trained on folds of known relations, measured on the held-out ones and on test.

python benchmarks/trail_ablation.py nell-one [--variant "no walks" …] [--seeds 5] [--set steps=600]

It needs a GPU. Seed s holds out fold s mod 2, for every variant the same; what it learnt is measured on the held-out
relations and on the test relations. Appends a line for each run to benchmarks/tries/ablation.jsonl, from which
docs/trail.md has its table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from fewlink.models.trail.reading import HOPS, ReadGraph, TaskReading, Tasks
from torch import Tensor

import fewlink.models.trail.episodes
import fewlink.models.trail.learner
from fewlink.core.memory import hardware
from fewlink.data import open_benchmark
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models.trail.family import graphs_of
from fewlink.models.trail.learner import TrailLearner
from fewlink.models.trail.network import Encoded, Shape, TrailNetwork
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.propagation.edges import EdgeOrder, EdgeTable

ROOT = Path(__file__).resolve().parent.parent
FOLDS = 2


class NoWalks(TrailNetwork):
    """Relations are not told which walks join references."""

    def encode(self, graph: ReadGraph, tasks: Tasks, reading: TaskReading) -> Encoded:
        relations, task = reading.relations.clone(), reading.task.clone()
        relations[..., : 3 * len(HOPS)] = 0
        task[:, 1:4] = 0
        return super().encode(graph, tasks, reading._replace(relations=relations, task=task))


class HeadOnly(TrailNetwork):
    """Messages start at the head alone, and no reference is an edge."""

    def propagate(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, dtype: torch.dtype) -> Tensor:
        return super().propagate(graph, tasks._replace(weights=torch.zeros_like(tasks.weights)), encoded, dtype)


class PlainSums(TrailNetwork):
    """Messages are added up as they are, not divided by fan-out and fan-in."""

    def propagate(self, graph: ReadGraph, tasks: Tasks, encoded: Encoded, dtype: torch.dtype) -> Tensor:
        if not hasattr(graph, "plain"):
            graph.plain = graph.part(plain_edges(graph.edges), torch.arange(graph.edges.nodes).numpy())  # type: ignore[attr-defined]
        return super().propagate(graph.plain, tasks, encoded, dtype)  # type: ignore[attr-defined]


def plain_edges(edges: EdgeTable) -> EdgeTable:
    def plain(order: EdgeOrder) -> EdgeOrder:
        ones = torch.ones_like(order.fan_out)
        return EdgeOrder(order.segments, order.row, order.first, order.second, order.offsets, ones, ones)

    return dataclasses.replace(
        edges, by_tail=plain(edges.by_tail), by_head=plain(edges.by_head), by_relation=plain(edges.by_relation)
    )


VARIANTS: dict[str, dict[str, Any]] = {
    "TRAIL": {},
    "no walks": {"network": NoWalks},
    "no layers among relations": {"settings": ["relation_layers=0"]},
    "messages from the head alone": {"network": HeadOnly},
    "sums not divided": {"network": PlainSums},
    "no other relation hidden": {"hidden": 0.0},
    "no average of weights": {"settings": ["average=0"]},
}


def commit() -> str:
    """The commit of this code; empty where git is not installed."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark")
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "tries" / "ablation.jsonl")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("skipped: torch finds no GPU")
    benchmark, usual = open_benchmark(options.benchmark), fewlink.models.trail.episodes.HIDDEN
    for seed in range(options.seeds):
        fold = fold_benchmark(benchmark, seed % FOLDS, FOLDS)
        for name in options.variant or VARIANTS:
            variant = VARIANTS[name]
            made = variant.get("network", TrailNetwork)
            fewlink.models.trail.episodes.HIDDEN = variant.get("hidden", usual)
            fewlink.models.trail.learner.network_of = lambda s, made=made: made(
                Shape(s.width, s.layers, s.relation_layers)
            )
            given = [f"seed={seed}", "device=cuda", *options.set, *variant.get("settings", [])]
            settings = TrailSettings().adjusted(given)
            learner = TrailLearner(graphs_of(fold, settings), settings)
            for step in range(0, settings.steps, learner.steps_at_once):
                learner.run_steps(step, min(learner.steps_at_once, settings.steps - step))
            scorer = learner.scorer(0)
            read = ReadGraph.of(known_graph(benchmark)).to(learner.device)
            on_test = TrailScorer(name, scorer.network, read)
            figures = {
                "folds": evaluate(fold, scorer, Protocol("dev", 3, "full")).metrics(),
                "test": evaluate(benchmark, on_test, Protocol("test", 3, "full")).metrics(),
            }
            row = {"benchmark": options.benchmark, "variant": name, "seed": seed, "fold": seed % FOLDS}
            row |= {"steps": settings.steps, "shots": 3, "candidates": "full", "metrics": figures}
            row |= {"hardware": hardware(), "commit": commit()}
            with options.out.open("a") as file:
                print(json.dumps(row), file=file)
            print(f"seed {seed}, {name}: {figures['folds']['micro']['mrr']:.4f} on the fold", flush=True)


if __name__ == "__main__":
    main()
