"""`fewlink train`: meta-train a few-shot model into a run folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer


def train(
    bench: str = typer.Argument(..., metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    embeddings: Path = typer.Option(..., help="Folder of pretrained vectors (fewlink pretrain)."),
    out: Path = typer.Option(..., help="Folder of the run; one that was stopped is continued."),
    model: str = typer.Option("fsrl", help="fsrl, an ablation of it, or gmatching-maxp, -meanp, -max."),
    shots: int = typer.Option(3, "--shots", "-k", help="References of each relation."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting."),
    seed: int = typer.Option(0, help="Seed."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
) -> None:
    """Meta-train on the train relations, choose on dev, and keep the best model.

    A run that was stopped continues from its last evaluation when the same command is given again; more steps may be
    asked for, other settings not.

    Example: `fewlink train umls --model fsrl --embeddings runs/umls-complex --out runs/umls-fsrl`
    """
    from fewlink.cli import show
    from fewlink.cli.training import working_device
    from fewlink.embeddings import Embeddings
    from fewlink.tasks import open_benchmark
    from fewlink.training import TrainingSettings
    from fewlink.training import train as run

    settings = TrainingSettings(model, shots, seed=seed, device=working_device(device)).adjusted(change)
    benchmark = open_benchmark(bench)
    vectors = Embeddings.open(embeddings, benchmark.graph.fingerprint)
    result = run(benchmark, vectors, settings, out, on_event=step_lines(settings.model))
    reasons = {"steps": "all steps made", "patience": "no better dev MRR for a while"}
    rows: list[list[Any]] = [
        ["steps", result.step],
        ["stopped", reasons[result.stopped]],
        ["best step", result.best_step],
        *([f"dev {name}", result.best[name]] for name in ("mrr", "hits@1", "hits@5", "hits@10")),
        ["seconds", result.seconds],
    ]
    title = (
        f"{settings.model} on {benchmark.name}, {settings.shots} shots, dev {settings.evaluate_candidates}, in {out}"
    )
    show.table(["what", "value"], rows, title=title)


def step_lines(title: str) -> Callable[[dict[str, Any]], None]:
    """A reporter for `train(on_event=…)`: a line an evaluation with speed, dev MRR and time left."""
    begun, first = time.monotonic(), 0

    def show(event: dict[str, Any]) -> None:
        nonlocal first
        place = f"{title}  step {event['step']}/{event['steps']}"
        if event["event"] == "continued":
            first = event["step"]
            line = f"{place}  continued"
        else:
            left = (time.monotonic() - begun) / (event["step"] - first) * (event["steps"] - event["step"])
            line = (
                f"{place}  loss {event['loss']:.4f}  dev MRR {event['dev']['mrr']:.3f}"
                f" (best {event['best_mrr']:.3f} at {event['best_step']})"
                f"  {event['steps_per_second']:,.0f} steps/s  {left:.0f} s left"
            )
        print(line, file=sys.stderr, flush=True)

    return show
