"""`fewlink train`: meta-train a few-shot model into a run folder."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.base.metrics import labelled

if TYPE_CHECKING:
    from fewlink.training import RunResult

REASONS = {"steps": "all steps made", "patience": "no better dev MRR; --set patience=N goes on"}
FIGURES = {"dev MRR": "mrr", **labelled("hits@1", "hits@5", "hits@10")}


def train(
    context: typer.Context,
    bench: str = typer.Argument(None, metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    out: Path = typer.Option(None, help="Folder of the run; with several seeds, of a folder seed-N for each."),
    model: str = typer.Option(None, help="A name from `fewlink models`; the recipe's, or fsrl, by default."),
    recipe: str = typer.Option(None, help="A recipe's name or TOML file; the model's own by default."),
    embeddings: Path = typer.Option(
        None, help="Folder of pretrained vectors (fewlink pretrain); without it the recipe's are trained first."
    ),
    shots: int = typer.Option(
        None, "--shots", "-k", help="References of each relation; the recipe's, or 3, by default."
    ),
    change: list[str] = typer.Option(
        [], "--set", metavar="NAME=VALUE", help="Change one of `fewlink models --settings`."
    ),
    seed: list[int] = typer.Option([0], help="Seed; given several times, the runs train side by side on a GPU."),
    resume: Path = typer.Option(
        None, help="Continue this run with its own settings and vectors; --set steps=N or patience=N adds to them."
    ),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    json: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Meta-train on the train relations, choose on dev, and keep the best model.

    A run that was stopped continues from its last evaluation with --resume, or when the same command is given again;
    more steps or patience may be asked for, other settings not; where the benchmark has moved, give its new place too.
    `torchrun --nproc-per-node N -m fewlink train …` trains with several processes.

    Example: `fewlink train umls --model fsrl --out runs/umls-fsrl`, or `--model trail`
    """
    from fewlink.base import distributed
    from fewlink.base.errors import FewlinkError
    from fewlink.cli.training import epoch_lines, refuse_given, refuse_own, working_device
    from fewlink.data import open_benchmark
    from fewlink.pipeline.train import pretrained_beside
    from fewlink.training import RunConfig, train_runs, trained_family, training_recipe
    from fewlink.training.run import benchmark_of, check_folder
    from fewlink.training.trainer import check

    refuse_own(change)
    runs: dict[int, Path]
    with distributed.processes(working_device(device)) as own_device:
        if resume is not None:
            own = ("out", "model", "recipe", "embeddings", "shots", "seed")
            refuse_given(context, own, "cannot be given with --resume: a run keeps its own")
            config = RunConfig.read(resume)
            settings = dataclasses.replace(config.settings, device=own_device).adjusted(change)
            benchmark, runs = benchmark_of(resume, bench), {settings.seed: resume}
            folder = resume / "embeddings"
        elif bench is None or out is None:
            raise FewlinkError("give a BENCH and --out FOLDER to train, or --resume RUN to continue")
        else:
            if len(set(seed)) < len(seed):
                raise FewlinkError(f"--seed is given twice with the same value: {', '.join(map(str, seed))}")
            chosen = training_recipe(model, recipe)
            more = {} if shots is None else {"shots": shots}
            settings = dataclasses.replace(chosen.settings, **more, device=own_device).adjusted(change)
            benchmark = open_benchmark(bench)
            runs = {seed[0]: out} if len(seed) == 1 else {s: out / f"seed-{s}" for s in seed}
            check(benchmark, settings)
            for run in runs.values():
                check_folder(run)
            folder = embeddings or pretrained_beside(out, benchmark, settings, chosen.vectors, epoch_lines)
        vectors = trained_family(settings.model).open_vectors(folder, benchmark.graph.fingerprint)
        first = distributed.rank() == 0
        reporter = step_lines(settings.model, len(runs)) if first else None
        try:
            results = train_runs(benchmark, vectors, settings, runs, on_event=reporter)
        except KeyboardInterrupt:
            if first:
                print("stopped; fewlink train --resume RUN, or the same command, continues", file=sys.stderr)
            raise typer.Exit(130) from None
        if first:
            title = f"{settings.model} on {benchmark.name}, {settings.shots} shots, dev {settings.evaluate_candidates}"
            _show(results, title, json)


def _show(results: Sequence[RunResult], title: str, json: bool) -> None:
    from fewlink.cli import show

    if json:
        show.as_json([{**dataclasses.asdict(result), "run": str(result.run)} for result in results])
        return
    columns = ["run", "steps", "stopped", "best step", *FIGURES, "seconds"]
    rows = [
        [r.run, r.step, REASONS[r.stopped], r.best_step, *(r.best[f] for f in FIGURES.values()), r.seconds]
        for r in results
    ]
    show.table(columns, rows, title=title)


def step_lines(title: str, runs: int = 1) -> Callable[[dict[str, Any]], None]:
    """A reporter for `train(on_event=…)`: a line an evaluation with speed, dev MRR and time left."""
    begun: dict[int, tuple[float, int]] = {}
    continued: dict[int, int] = {}

    def show(event: dict[str, Any]) -> None:
        seed = event["seed"]
        place = f"{title}{f' seed {seed}' if runs > 1 else ''}  step {event['step']}/{event['steps']}"
        if event["event"] == "continued":
            continued[seed] = event["step"]
            line = f"{place}  continued"
        else:
            before = time.monotonic() - sum(event["seconds"].values())
            since, first = begun.setdefault(seed, (before, continued.get(seed, 0)))
            rate = event["steps_per_second"]
            left = (time.monotonic() - since) / (event["step"] - first) * (event["steps"] - event["step"])
            line = (
                f"{place}  loss {event['loss']:.4f}  dev MRR {event['dev']['mrr']:.3f}"
                f" (best {event['best_mrr']:.3f} at {event['best_step']})"
                f"  {rate:{',.0f' if rate >= 10 else '.1f'}} steps/s  {left:.0f} s left"
            )
        print(line, file=sys.stderr, flush=True)

    return show
