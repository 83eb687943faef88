"""`fewlink fit`, `fewlink train` and `fewlink models`: fitting, training and describing models."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import options, terminal
from fewlink.cli.options import ReadingOptions
from fewlink.core.metrics import labelled
from fewlink.core.progress import tell

if TYPE_CHECKING:
    from fewlink.training import RunResult

STOPPED = {"steps": "all steps done", "patience": "dev MRR no longer rises; continue with --set patience=N"}
DEV_METRICS = {"dev MRR": "mrr", **labelled("hits@1", "hits@5", "hits@10")}
OF_GRAPH = {"known": "all, of a relation of the graph"}
FIT_COLUMNS = ("relations", "queries", "MRR", "± error", "Hits@1", "Hits@10")


def train(
    context: typer.Context,
    bench: list[str] = typer.Argument(
        None,
        metavar="BENCH",
        help="A catalogue name, a benchmark folder, an archive or a file of triples. The model trail takes several: it"
        " learns from all of them and is evaluated on dev of the first.",
        autocompletion=options.complete_source,
    ),
    out: Path = typer.Option(
        None, metavar="FOLDER", help="Run folder; with several seeds, the parent of a folder seed-N for each."
    ),
    model: str = typer.Option(
        None,
        metavar="NAME",
        help="A name from `fewlink models`; by default the recipe's, or trail.",
        autocompletion=options.complete_model,
    ),
    recipe: str = options.RECIPE,
    change: list[str] = options.SET,
    shots: int = typer.Option(
        None,
        "--shots",
        "-k",
        metavar="NUMBER",
        min=0,
        help="References of each relation; by default the recipe's, or 3. With 0, an embedding model learns from the "
        "background only, to be another model's --embeddings.",
    ),
    embeddings: Path = typer.Option(
        None, metavar="FOLDER", help="Vectors of a trained embedding model; by default the recipe trains them."
    ),
    checkpoint: Path = options.CHECKPOINT,
    seed: list[int] = options.SEEDS,
    resume: Path = typer.Option(
        None,
        metavar="RUN",
        help="Run to continue with its settings and vectors; --set steps=N or patience=N raises a limit.",
    ),
    device: str = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Train a model into a run folder, and write its model card, README.md.

    A few-shot model learns from the train relations, and the weights that are best on dev are kept (for trail, the last
    ones). complex, distmult, rescal and transe learn from the background triples, the train relations and the
    references. --resume or the same command continues interrupted training. A continued run may get more steps or
    patience, but no other settings; if its benchmark has moved, also give BENCH.
    `torchrun --nproc-per-node N -m fewlink train …` trains a few-shot model with several processes.

    Example: `fewlink train umls --model fsrl --out runs/umls-fsrl`

    Example: `fewlink train my-benchmark umls more-triples.tsv --out runs/three-graphs`
    """
    from fewlink.core.errors import FewlinkError

    if resume is None and (not bench or out is None):
        raise FewlinkError("give a BENCH and --out FOLDER to train, or --resume RUN to continue")
    options.check_benchmarks(*(bench or []))
    options.check_files(resume, embeddings, checkpoint)
    if resume is not None:
        fixed = ("out", "model", "recipe", "checkpoint", "embeddings", "shots", "seed")
        options.reject_options(context, fixed, "cannot be changed with --resume: leave it out")
        if bench and len(bench) > 1:
            raise FewlinkError("--resume takes at most one BENCH: a run keeps its further graphs")
    if checkpoint is not None:
        change = [f"start={checkpoint.resolve()}", *change]
    device = options.resolve_device(device)
    from fewlink.core import distributed
    from fewlink.training.train import resume as resume_run
    from fewlink.training.train import train_seeds

    with distributed.processes(device) as own_device:
        first = distributed.rank() == 0
        reporter = terminal.report_step if first else None
        if resume is not None:
            moved = bench[0] if bench else None
            results = [resume_run(resume, bench=moved, change=change, device=own_device, on_event=reporter)]
        else:
            results = train_seeds(
                bench,
                model,
                out=out,
                vectors=embeddings,
                recipe=recipe,
                change=change,
                shots=shots,
                seeds=seed,
                device=own_device,
                on_epoch=terminal.epoch_reporter,
                on_event=reporter,
            )
    if first:
        cards = [_card(result.run, device) for result in results]
        _print_runs(results, cards, json)


def _card(run: Path, device: str) -> Path | None:
    """Calibrate a run and write its card; None if it is a table of vectors, or cannot be calibrated on dev."""
    from fewlink.core.errors import FewlinkError
    from fewlink.fitting.card import write_card
    from fewlink.models.run import is_run

    if not is_run(run):
        return None
    try:
        return write_card(run, device=device)
    except FewlinkError as error:
        terminal.print_notes([f"{run} has no model card: {error}"])
        return None


def _print_runs(results: Sequence[RunResult], cards: Sequence[Path | None], json: bool) -> None:
    if json:
        found = zip(results, cards, strict=True)
        terminal.print_json([{**dataclasses.asdict(result), "card": card} for result, card in found])
        return
    columns = ["run", "steps", "stopped", "best step", *DEV_METRICS, "seconds"]
    rows = [
        [
            result.run,
            result.step,
            STOPPED[result.stopped],
            result.best_step,
            *(result.best.get(metric, "") for metric in DEV_METRICS.values()),
            result.seconds,
        ]
        for result in results
    ]
    terminal.print_table(columns, rows)
    for card in filter(None, cards):
        print(f"model card: {card}")


def fit(
    reading: ReadingOptions,
    graph: Path = options.TRIPLES,
    out: Path = typer.Option(..., metavar="FOLDER", help="Run folder; it has everything that fewlink ask needs."),
    minutes: float = typer.Option(
        10.0, metavar="NUMBER", help="Time limit; the command ends earlier if it cannot use the time."
    ),
    no_tune: bool = typer.Option(False, "--no-tune", help="Do not fine-tune the built-in weights."),
    no_mix: bool = typer.Option(False, "--no-mix", help="Do not mix an embedding model in for relations of the graph."),
    no_names: bool = options.NO_NAMES,
    seed: int = options.SEED,
    change: list[str] = typer.Option(
        [],
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting of `fewlink models trail`; steps=N overrides the time limit.",
    ),
    device: str = options.DEVICE,
    json: bool = options.JSON,
) -> None:
    """Fit TRAIL to your own graph in limited time.

    After a few seconds the run answers with the built-in weights on the whole graph. Then the command holds relations
    out of the graph (pairs, if the graph has few relations) and asks about them as users do: with 3, 30 and all other
    pairs as references. It fine-tunes the weights on the rest, and deploys them only if they are better by two standard
    errors over the relations. In the time left it trains an embedding model, and mixes it in for relations that the
    graph has by the same rule. What to expect is measured on other questions. Stages that do not fit in the time are
    skipped and reported. The same command continues an interrupted fit; with more minutes it continues one that had
    too little time.

    Example: `fewlink fit my-graph.tsv --out runs/mine`, then `fewlink ask runs/mine --reference 'A => B' --head C`
    """
    begin = time.monotonic()  # the time to import torch counts
    options.check_triples(graph)
    from fewlink.core.errors import FewlinkError
    from fewlink.fitting.fit import fit as run

    for name in {each.partition("=")[0] for each in change} & {"seed", "device"}:
        raise FewlinkError(f"--set {name} is not possible: use --{name}")

    fitted = run(
        reading.source(graph),
        out,
        read_names=not no_names,
        minutes=minutes,
        tune=not no_tune,
        mix=not no_mix,
        seed=seed,
        change=change,
        device=options.resolve_device(device),
        tell=tell,
        begin=begin,
    )
    if json:
        terminal.print_json(dataclasses.asdict(fitted))
        return
    if fitted.held_out:
        rows = [
            [f"{name} (deployed)" if name == fitted.deployed else name, *_fit_row(figures)]
            for name, figures in fitted.held_out.items()
        ]
        terminal.print_table(["scorer", *FIT_COLUMNS], rows, title="held-out questions that the scorer is chosen on")
    print(f"deployed: {fitted.deployed_text}")
    print(f"{fitted.mixed}\n" if fitted.mixed else "")
    if fitted.figures:
        rows = [[OF_GRAPH.get(shots, shots), *_fit_row(figures)] for shots, figures in fitted.figures.items()]
        terminal.print_table(["references", *FIT_COLUMNS], rows, title="what to expect: other held-out questions")
    if fitted.card:
        print(f"model card: {fitted.card}")
    print(f"time: {fitted.seconds / 60:.2g} of {fitted.minutes:g} minutes")
    print(f"next: fewlink ask {fitted.run} --reference 'HEAD => TAIL' --head NAME --explain")


def _fit_row(figures: Mapping[str, float]) -> list[object]:
    error = f"{figures['error']:.3f}" if "error" in figures else "unknown"
    numbers = (f"{figures[name]:,}" for name in ("relations", "queries"))
    return [*numbers, figures["mrr"], error, figures["hits@1"], figures["hits@10"]]


def models(
    model: str = typer.Argument(
        None,
        metavar="MODEL",
        help="Show the settings and recipes of this model.",
        autocompletion=options.complete_model,
    ),
    json: bool = options.JSON,
) -> None:
    """List all models by family, or the settings of one with their defaults, and its recipes.

    Example: `fewlink models`

    Example: `fewlink models fsrl`
    """
    if model is not None:
        _print_model(model, json)
        return
    from fewlink.models import families

    rows = [
        {"name": name, "family": family.name, "about": about}
        for family in families().values()
        for name, about in family.models.items()
    ]
    if json:
        terminal.print_json(rows)
        return
    terminal.print_table(["model", "family", "description"], [row.values() for row in rows])


def _print_model(model: str, json: bool) -> None:
    """Print the settings of a model, and its recipes with what they were measured to give."""
    from fewlink.core.recipes import measured, model_of, recipe_texts
    from fewlink.models import family_of

    family = family_of(model)
    settings: list[dict[str, Any]] = []
    if family.settings is not None:
        defaults = family.settings(model=model).as_dict()
        settings = [
            {"name": name, "default": defaults[name], "about": field.description or ""}
            for name, field in family.settings.model_fields.items()
        ]
    recipes = []
    for name in recipe_texts():
        if model_of(name) == model:
            chosen = family.recipe(model, name)
            facts = {"settings": chosen.settings.as_dict(), "vectors": chosen.vectors.as_dict()}
            recipes.append({**vars(chosen), **facts, "measured": measured().get(name, {})})
    if json:
        terminal.print_json({"name": model, "settings": settings, "recipes": recipes})
        return
    rows = [[each["name"], str(each["default"]), each["about"]] for each in settings]
    terminal.print_table(["setting", "default", "description"], rows, title=model)
    for each in recipes:
        print(f"recipe {each['name']}: {each['about']}\n  chosen: {each['chosen']}")
        for measurement, figure in each["measured"].items():
            print(f"  {measurement}: {figure}")
