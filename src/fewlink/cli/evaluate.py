"""`fewlink evaluate`: rank a split's queries with a scorer and store the result."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fewlink.scorers import Scorer
    from fewlink.tasks import Benchmark


Maker = Callable[["Benchmark", int, int, int], "tuple[Scorer, dict[str, Any]]"]


def evaluate(
    what: str = typer.Argument(
        ..., metavar="BENCH|RUN", help="A catalogue name, a benchmark folder or archive; or a run of fewlink train."
    ),
    bench: str = typer.Option(None, help="With a RUN: where its benchmark is; by default the catalogue's of its name."),
    scorer: list[str] = typer.Option(
        ["rules"],
        help="random, popularity, reference-tails, rules; complex, transe, distmult, rescal (trained on the spot).",
    ),
    split: list[str] = typer.Option(["dev"], help="train, dev or test. Choose on dev; look at test once."),
    shots: list[int] = typer.Option(
        None, "--shots", "-k", help="References of each relation; 3, or as many as a RUN was trained with."
    ),
    candidates: list[str] = typer.Option(
        ["full"], help="paper (at most 1000), full (all of the right type) or open (no oracle)."
    ),
    draws: int = typer.Option(0, help="Random draws of the references; 0 takes the first K of each relation."),
    seed: list[int] = typer.Option(None, help="Seed of the draws and of the scorer; 0, or that of a RUN."),
    recipe: str = typer.Option(None, help="Recipe of an embedding baseline; the model's own by default."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe."),
    device: str = typer.Option("auto", help="auto, cpu or cuda, for baselines that are trained."),
    processes: int = typer.Option(
        1, help="Processes to share the ranking of a learning-free scorer; figures stay the same."
    ),
    results: Path = typer.Option(Path("results"), help="Folder for the result records."),
    json: bool = typer.Option(False, "--json", help="Print the records as JSON."),
) -> None:
    """Rank the true tails of a split and store the figures. Options that are given several times make a grid.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`
    """
    from fewlink import together
    from fewlink.choices import choose
    from fewlink.cli import show
    from fewlink.cli.results import result_row, result_table
    from fewlink.cli.training import working_device
    from fewlink.errors import FewlinkError
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as run
    from fewlink.evaluation.records import make_record
    from fewlink.tasks import PROTOCOLS, SPLITS, open_benchmark
    from fewlink.training.run import RunConfig, is_run

    for name in split:
        choose("split", name, dict.fromkeys(SPLITS))
    for name in candidates:
        choose("candidates protocol", name, dict.fromkeys(PROTOCOLS))
    if draws < 0:
        raise FewlinkError(f"draws must be 0 or more, got {draws}")
    if is_run(Path(what)):
        trained = RunConfig.read(Path(what))
        makers, own_shots, own_seed = [_run_maker(what, device)], trained.settings.shots, trained.settings.seed
        benchmark = open_benchmark(bench or trained.benchmark["name"])
    else:
        makers, own_shots, own_seed = [_maker(name, recipe, change, device) for name in scorer], 3, 0
        benchmark = open_benchmark(what)
    drawn = range(1, draws + 1) if draws else [0]
    records = []
    with together.processes(working_device(device)):
        for make, k, s, draw in itertools.product(makers, shots or [own_shots], seed or [own_seed], drawn):
            ranker, config = make(benchmark, k, draw, s)
            for part, against in itertools.product(split, candidates):
                workers = processes if not config else 1
                evaluation = run(benchmark, ranker, Protocol(part, k, against, draw, s), processes=workers)
                record = make_record(
                    evaluation,
                    benchmark=benchmark.name,
                    data_sha256=benchmark.fingerprint,
                    model=ranker.name,
                    config=config,
                )
                if together.rank() == 0:
                    record.save(results)
                records.append(record)
        if together.rank():
            return
    if json:
        show.as_json(records[0].model_dump() if len(records) == 1 else [r.model_dump() for r in records])
        return
    result_table([result_row([r]) for r in records])
    if len(records) == 1:
        rows = [
            [name, row["queries"], row["candidates"], row["mrr"], row["hits@1"], row["hits@10"]]
            for name, row in records[0].relations.items()
        ]
        show.table(["relation", "queries", "candidates", "MRR", "Hits@1", "Hits@10"], rows)


def _run_maker(run: str, device: str) -> Maker:
    """The best model of a run, whatever the number of references asked for."""
    from fewlink.cli.training import working_device
    from fewlink.training.run import RunConfig, open_run

    def make(benchmark: Benchmark, shots: int, draw: int, seed: int) -> tuple[Scorer, dict[str, Any]]:
        scorer = open_run(Path(run), benchmark, device=working_device(device))
        config = RunConfig.read(Path(run))
        return scorer, {"settings": config.settings.as_dict(), "embeddings": config.embeddings}

    return make


def _maker(name: str, recipe: str | None, changes: list[str], device: str) -> Maker:
    """How to make this scorer for (benchmark, shots, draw, seed), with the configuration its record keeps."""
    from fewlink.choices import choose
    from fewlink.cli.training import chosen_settings, epoch_lines
    from fewlink.embeddings import INTERACTIONS
    from fewlink.scorers import LEARNING_FREE
    from fewlink.scorers.relational import train_baseline

    choose("scorer", name, {**LEARNING_FREE, **INTERACTIONS})
    if name in LEARNING_FREE:
        return lambda benchmark, shots, draw, seed: (LEARNING_FREE[name](benchmark.graph, seed), {})
    settings = chosen_settings(name, recipe, changes, 0, device)

    def make(benchmark: Benchmark, shots: int, draw: int, seed: int) -> tuple[Scorer, dict[str, Any]]:
        seeded = dataclasses.replace(settings, seed=seed)
        title = f"{name} K={shots} seed {seed}"
        trained = train_baseline(benchmark, seeded, shots=shots, draw=draw, seed=seed, on_epoch=epoch_lines(title))
        config = {"recipe": recipe or name, "settings": seeded.as_dict(), "measured": trained.embeddings.facts}
        return trained, config

    return make
