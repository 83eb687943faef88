"""Try a variant of TRAIL on known relations of a benchmark that are held out in folds, and store the figures.

python benchmarks/trail_folds.py nell-one "width 64" --set width=64 --expected better [--fold 0] [--device cuda]

`--adapt STEPS:RATE` also measures adaptation: for each relation that many steps are taken on its references, each of
which is held out in turn, before its queries are answered. `--beside WEIGHT` also measures the scores plus WEIGHT
times the logarithm of those of the rules. Each appends a line to benchmarks/tries/BENCH.jsonl, from which
docs/trail.md has its log.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fewlink.core.memory import hardware
from fewlink.data import Benchmark, open_benchmark
from fewlink.data.folds import fold_benchmark
from fewlink.data.training_graph import known_graph
from fewlink.evaluation.evaluator import Protocol, evaluate
from fewlink.models.baselines.learning_free import learning_free
from fewlink.models.trail.family import graphs_of
from fewlink.models.trail.learner import TrailLearner, network_of
from fewlink.models.trail.reading import Tasks
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.settings import TrailSettings
from fewlink.scorers import Question, Scorer

ROOT = Path(__file__).resolve().parent.parent
FOLDS = 2
CANDIDATES = 2048  # of a step of adaptation


class Adapted:
    """TRAIL whose weights take a few steps on the references of a question, each held out in turn."""

    name = "trail, adapted"

    def __init__(self, learner: TrailLearner, steps: int, rate: float) -> None:
        self.learner, self.steps, self.rate = learner, steps, rate
        self.references, self.scorer = b"", learner.scorer(0)

    def __call__(self, question: Question) -> Tensor:
        if (references := question.references.tobytes()) != self.references:
            self.references, self.scorer = references, self.adapted(question)
        return self.scorer(question)

    def adapted(self, question: Question) -> TrailScorer:
        """The scorer after the steps; with fewer than three references it stays as it is."""
        learner, pairs = self.learner, torch.from_numpy(question.references.astype(np.int64))
        if len(pairs) < 3:
            return learner.scorer(0)
        network = network_of(learner.settings).to(learner.device)
        network.load_state_dict(learner.averaged)
        tasks, answers, excluded = held_out_tasks(pairs, question.candidates, learner.graphs[0].relations)
        tasks = Tasks(*(part.to(learner.device) for part in tasks))
        optimizer = torch.optim.Adam(network.parameters(), lr=self.rate)
        with torch.enable_grad():
            for _ in range(self.steps):
                scores = network(learner.graphs[0], tasks, learner.dtype)
                scores = scores.masked_fill(excluded.to(scores.device), -torch.inf)
                optimizer.zero_grad(set_to_none=True)
                loss = cross_entropy(scores.flatten(0, 1), answers.to(scores.device).flatten())
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), learner.settings.clip)
                optimizer.step()
        return TrailScorer(self.name, network, learner.graphs[0])


def held_out_tasks(pairs: Tensor, candidates: np.ndarray, relations: int) -> tuple[Tasks, Tensor, Tensor]:
    """A task for each reference, with the others as references; the answers (K, 1) and what is excluded (K, 1, C)."""
    count, draw = len(pairs), np.random.default_rng(0)
    some = candidates if len(candidates) <= CANDIDATES else draw.choice(candidates, CANDIDATES, replace=False)
    chosen = torch.from_numpy(np.union1d(some, pairs[:, 1].numpy()).astype(np.int64))
    others = [[other for other in range(count) if other != each] for each in range(count)]
    references = torch.zeros(count, 8 if count <= 9 else 16, 2, dtype=torch.long)
    references[:, : count - 1] = pairs[torch.tensor(others)]
    weights = torch.zeros(references.shape[:2])
    weights[:, : count - 1] = 1
    tasks = Tasks(
        references, weights, torch.ones(count, relations), pairs[:, :1].clone(), chosen.expand(count, -1).contiguous()
    )
    answers = torch.searchsorted(chosen, pairs[:, 1].contiguous())[:, None]
    same_head = pairs[:, None, 0] == pairs[None, :, 0]
    excluded = torch.zeros(count, len(chosen), dtype=torch.bool)
    for each in range(count):
        excluded[each, torch.searchsorted(chosen, pairs[same_head[each], 1].contiguous())] = True
    excluded[torch.arange(count), answers[:, 0]] = False
    return tasks, answers, excluded[:, None]


class BesideRules:
    """The scores of TRAIL plus `weight` times the logarithm of those of the rules."""

    name = "trail, beside rules"

    def __init__(self, scorer: Scorer, rules: Scorer, weight: float) -> None:
        self.scorer, self.rules, self.weight = scorer, rules, weight

    def __call__(self, question: Question) -> Tensor:
        scores = torch.as_tensor(self.scorer(question))
        rules = torch.as_tensor(np.asarray(self.rules(question)), dtype=scores.dtype, device=scores.device)
        return scores + self.weight * (rules + 0.01).log()


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
    parser.add_argument("--adapt", action="append", default=[], metavar="STEPS:RATE")
    parser.add_argument("--beside", action="append", type=float, default=[], metavar="WEIGHT")
    asked = parser.parse_args()
    given = [f"seed={asked.seed}", f"device={asked.device}", *asked.set]
    settings = TrailSettings().adjusted(given)
    folds, shots = asked.fold or list(range(FOLDS)), asked.shots or [3]
    figures: dict[tuple[str, int], list[dict[str, dict[str, float]]]] = {}
    for fold in folds:
        benchmark = fold_benchmark(open_benchmark(asked.benchmark), fold, FOLDS)
        learner = TrailLearner(graphs_of(benchmark, settings), settings)
        for step in range(0, settings.steps, learner.steps_at_once):
            learner.run_steps(step, min(learner.steps_at_once, settings.steps - step))
        for idea, make in ideas(asked, benchmark, learner).items():
            for k in shots:
                found = evaluate(benchmark, make(), Protocol("dev", k, "full")).metrics()
                figures.setdefault((idea, k), []).append(found)
                print(f"fold {fold}, {idea}, K = {k}: {found['micro']['mrr']:.4f}", flush=True)
    place = asked.out / f"{Path(asked.benchmark).name}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a") as file:
        for (idea, k), found in figures.items():
            record = {
                **{"benchmark": asked.benchmark, "folds": folds, "idea": idea, "expected": asked.expected},
                **{"settings": dict(each.split("=", 1) for each in asked.set), "steps": settings.steps},
                **{"shots": k, "candidates": "full", "seed": asked.seed},
                **{f"{kind}_mrr": [round(each[kind]["mrr"], 4) for each in found] for kind in ("micro", "macro")},
                **{"kept": "", "hardware": hardware(), "commit": commit()},
            }
            print(json.dumps(record), file=file)


def commit() -> str:
    """The commit of this code; empty where git is not installed."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def ideas(asked: argparse.Namespace, benchmark: Benchmark, learner: TrailLearner) -> dict[str, Callable[[], Scorer]]:
    """The scorers to measure by what they try: TRAIL as it is trained, adapted, and beside the rules."""
    found: dict[str, Callable[[], Scorer]] = {asked.idea: lambda: learner.scorer(0)}
    for given in asked.adapt:
        steps, rate = given.split(":")
        found[f"{asked.idea}, adapted by {steps} steps at {rate}"] = lambda steps=steps, rate=rate: Adapted(  # type: ignore[misc]
            learner, int(steps), float(rate)
        )
    rules = learning_free("rules", known_graph(benchmark))
    for weight in asked.beside:
        found[f"{asked.idea}, beside rules × {weight:g}"] = lambda weight=weight: BesideRules(  # type: ignore[misc]
            learner.scorer(0), rules, weight
        )
    return found


if __name__ == "__main__":
    main()
