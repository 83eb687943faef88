"""`fewlink train`: meta-train a few-shot model into a run folder."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fewlink.embeddings import Embeddings
    from fewlink.recipes import Recipe
    from fewlink.tasks import Benchmark
    from fewlink.training import TrainingSettings


def train(
    bench: str = typer.Argument(None, metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    out: Path = typer.Option(None, help="Folder of the run; with several seeds, of a folder seed-N for each."),
    model: str = typer.Option("fsrl", help="A name from `fewlink models`."),
    recipe: str = typer.Option(None, help="A recipe's name or TOML file; the model's own by default."),
    embeddings: Path = typer.Option(
        None, help="Folder of pretrained vectors (fewlink pretrain); without it the recipe's are trained first."
    ),
    shots: int = typer.Option(3, "--shots", "-k", help="References of each relation."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting."),
    seed: list[int] = typer.Option([0], help="Seed; given several times, the runs train side by side on a GPU."),
    resume: Path = typer.Option(None, help="Continue this run with its own settings and vectors; --set steps=N adds."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
) -> None:
    """Meta-train on the train relations, choose on dev, and keep the best model.

    A run that was stopped continues from its last evaluation with --resume, or when the same command is given again;
    more steps may be asked for, other settings not. `torchrun --nproc-per-node N -m fewlink train …` trains with
    several processes.

    Example: `fewlink train umls --model fsrl --out runs/umls-fsrl`
    """
    from fewlink import together
    from fewlink.cli import show
    from fewlink.cli.training import working_device
    from fewlink.errors import FewlinkError
    from fewlink.tasks import open_benchmark
    from fewlink.training import RunConfig, train_together

    with together.processes(working_device(device)) as own_device:
        if resume is not None:
            config = RunConfig.read(resume)
            settings = dataclasses.replace(config.settings, device=own_device).adjusted(change)
            benchmark, runs = open_benchmark(bench or config.benchmark["name"]), {settings.seed: resume}
            vectors = _vectors(benchmark, resume / "embeddings")
        elif bench is None or out is None:
            raise FewlinkError("give a BENCH and --out FOLDER to train, or --resume RUN to continue")
        else:
            chosen = _recipe(model, recipe)
            settings = dataclasses.replace(chosen.settings, shots=shots, device=own_device).adjusted(change)
            benchmark = open_benchmark(bench)
            runs = {seed[0]: out} if len(seed) == 1 else {s: out / f"seed-{s}" for s in seed}
            ready = embeddings or together.from_first(lambda: _pretrained(benchmark, chosen, out, own_device))
            vectors = _vectors(benchmark, ready)
        alone = together.rank() == 0
        results = train_together(
            benchmark, vectors, settings, runs, on_event=step_lines(settings.model, len(runs)) if alone else None
        )
        if alone:
            reasons = {"steps": "all steps made", "patience": "no better dev MRR for a while"}
            columns = ["run", "steps", "stopped", "best step", "dev MRR", "Hits@1", "Hits@5", "Hits@10", "seconds"]
            figures = ("mrr", "hits@1", "hits@5", "hits@10")
            rows = [
                [r.run, r.step, reasons[r.stopped], r.best_step, *(r.best[f] for f in figures), r.seconds]
                for r in results
            ]
            against = f"{settings.shots} shots, dev {settings.evaluate_candidates}"
            show.table(columns, rows, title=f"{settings.model} on {benchmark.name}, {against}")


def _recipe(model: str, name: str | None) -> Recipe[TrainingSettings]:
    """The recipe asked for, or the model's own; a model without one is trained as the paper says."""
    from fewlink.choices import choose
    from fewlink.errors import FewlinkError
    from fewlink.models import MODELS
    from fewlink.recipes import Recipe, recipe_texts
    from fewlink.recipes import recipe as load
    from fewlink.training import TrainingSettings

    choose("model", model, MODELS)
    if name is None and model not in recipe_texts():
        return Recipe(model, "", "", TrainingSettings(model))
    found = load(name or model, TrainingSettings)
    if found.settings.model != model:
        raise FewlinkError(f"recipe '{found.name}' is for {found.settings.model}, not for {model}")
    return found


def _pretrained(benchmark: Benchmark, chosen: Recipe[TrainingSettings], out: Path, device: str) -> Path:
    """The folder of the vectors the recipe was chosen with, beside the run; trained now if it is not there."""
    from fewlink.cli.training import chosen_settings, epoch_lines
    from fewlink.recipes import model_of
    from fewlink.training.pretraining import pretrain

    wanted = {"recipe": "complex", "with_train_tasks": False, "set": [], **chosen.vectors}
    place = out.with_name(f"{out.name}-vectors")
    if not place.exists():
        model = model_of(wanted["recipe"])
        settings = chosen_settings(model, wanted["recipe"], wanted["set"], 0, device)
        whole = wanted["with_train_tasks"]
        pretrain(benchmark, settings, out=place, with_train_tasks=whole, on_epoch=epoch_lines(f"{model} vectors"))
    return place


def _vectors(benchmark: Benchmark, folder: Path) -> Embeddings:
    from fewlink.embeddings import Embeddings

    return Embeddings.open(folder, benchmark.graph.fingerprint)


def step_lines(title: str, runs: int = 1) -> Callable[[dict[str, Any]], None]:
    """A reporter for `train(on_event=…)`: a line an evaluation with speed, dev MRR and time left."""
    begun: dict[int, tuple[float, int]] = {}

    def show(event: dict[str, Any]) -> None:
        seed = event["seed"]
        place = f"{title}{f' seed {seed}' if runs > 1 else ''}  step {event['step']}/{event['steps']}"
        if event["event"] == "continued":
            begun[seed] = time.monotonic(), event["step"]
            line = f"{place}  continued"
        else:
            since, first = begun.setdefault(seed, (time.monotonic() - sum(event["seconds"].values()), 0))
            left = (time.monotonic() - since) / (event["step"] - first) * (event["steps"] - event["step"])
            line = (
                f"{place}  loss {event['loss']:.4f}  dev MRR {event['dev']['mrr']:.3f}"
                f" (best {event['best_mrr']:.3f} at {event['best_step']})"
                f"  {event['steps_per_second']:,.0f} steps/s  {left:.0f} s left"
            )
        print(line, file=sys.stderr, flush=True)

    return show
