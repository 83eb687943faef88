"""`fewlink tune`: search for an embedding baseline's settings."""

from __future__ import annotations

from pathlib import Path

import typer


def tune(
    bench: str = typer.Argument(..., metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    out: Path = typer.Option(
        ..., help="Folder of the search; give it again to continue, or to join from another process."
    ),
    model: str = typer.Option("complex", help="complex, transe, distmult or rescal."),
    recipe: str = typer.Option(None, help="Recipe to start from; the model's own by default."),
    trials: int = typer.Option(40, help="Trials in total, over all processes and runs."),
    shots: int = typer.Option(3, "--shots", "-k", help="References of each relation."),
    folds: int = typer.Option(5, help="Treat one of this many parts of the train relations like dev; 0: dev alone."),
    objective: str = typer.Option("dev", help="dev: few-shot MRR; held-out: MRR of held-out background triples."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
) -> None:
    """Search for settings with optuna and write the best as a recipe.

    Example: `fewlink tune umls --model transe --trials 20 --out runs/tune-transe`
    """
    from fewlink.base.recipes import as_toml
    from fewlink.base.resolver import choose
    from fewlink.base.storage import write_bytes
    from fewlink.baselines.embedding import OBJECTIVES
    from fewlink.baselines.embedding import tune as search
    from fewlink.cli.training import chosen_settings
    from fewlink.data import open_benchmark

    choose("objective", objective, dict.fromkeys(OBJECTIVES))
    base = chosen_settings(model, recipe, change, 0, device)
    benchmark = open_benchmark(bench)
    best, value, done = search(benchmark, base, out, trials=trials, shots=shots, folds=folds, objective=objective)
    chosen = f"best of {done} trials by {objective} on {benchmark.name}, K = {shots}, {folds} folds: MRR {value:.3f}"
    path = out / f"{model}.toml"
    write_bytes(path, as_toml(f"{model}, found by fewlink tune", chosen, best).encode())
    print(f"{chosen}\nwritten to {path}: use it with --recipe {path}")
