"""`fewlink pretrain`: entity and relation vectors from a benchmark's background graph."""

from __future__ import annotations

from pathlib import Path

import typer


def pretrain(
    bench: str = typer.Argument(..., metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    out: Path = typer.Option(..., help="Folder for the embeddings."),
    model: str = typer.Option("complex", help="complex, transe, distmult or rescal."),
    recipe: str = typer.Option(None, help="A recipe's name or TOML file; the model's own by default."),
    dim: int = typer.Option(None, help="Real numbers an entity."),
    with_train_tasks: bool = typer.Option(False, help="Train on the meta-training relations too."),
    half: bool = typer.Option(False, help="Keep the vectors in half precision: half the disk and memory."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe."),
    seed: int = typer.Option(0, help="Seed."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
) -> None:
    """Train embeddings on the background triples; no dev or test pair is ever seen.

    A run that was stopped continues from its last epoch when the same command is given again, by any number of
    processes. `torchrun --nproc-per-node N -m fewlink pretrain …` trains with several, on one machine or on many that
    share the folder.

    Example: `fewlink pretrain umls --model complex --dim 100 --out runs/umls-complex`
    """
    import dataclasses

    from fewlink.base import distributed
    from fewlink.cli import show
    from fewlink.cli.training import chosen_settings, epoch_lines
    from fewlink.data import open_benchmark
    from fewlink.training.vectors import pretrain as run

    changes = [*change, *([f"dim={dim}"] if dim is not None else [])]
    settings = chosen_settings(model, recipe, changes, seed, device)
    benchmark = open_benchmark(bench)
    with distributed.processes(settings.device) as own_device:
        settings, first = dataclasses.replace(settings, device=own_device), distributed.rank() == 0
        told = epoch_lines(model) if first else None
        embeddings = run(benchmark, settings, out=out, with_train_tasks=with_train_tasks, half=half, on_epoch=told)
    if not first:
        return
    rows = [
        ["entities", len(embeddings.entities)],
        ["relations", len(embeddings.relations) // 2],
        ["epochs", embeddings.facts["epochs"]],
        ["held-out MRR", embeddings.facts["held_out_mrr"] or ""],
        ["seconds", float(embeddings.facts["seconds"])],
    ]
    show.table(["what", "value"], rows, title=f"{model} embeddings of {benchmark.name} in {out}")
