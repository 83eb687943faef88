"""`fewlink links`: ordinary link prediction, to show that the embedding trainer is sound."""

from __future__ import annotations

from pathlib import Path

import typer

from fewlink.cli.results import FOLDER


def links(
    train: Path = typer.Argument(..., help="Training triples."),
    valid: Path = typer.Option(..., help="Validation triples."),
    test: Path = typer.Option(None, help="Test triples; without them the figures are of valid."),
    name: str = typer.Option(None, help="Name of the data set; the folder's by default."),
    model: str = typer.Option("complex", help="complex, transe, distmult or rescal."),
    recipe: str = typer.Option(None, help="A recipe's name or TOML file; the model's own by default."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe."),
    seed: int = typer.Option(0, help="Seed."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    results: Path = typer.Option(FOLDER, help="Folder to store the record in."),
    replace: bool = typer.Option(False, "--replace", help="Replace a record of the same measurement."),
    json: bool = typer.Option(False, "--json", help="Print the record as JSON."),
) -> None:
    """Train an embedding model on a graph with its own splits and rank both ends of each triple, filtered.

    Example: `fewlink links train.tsv --valid valid.tsv --test test.tsv --recipe complex-fb15k-237`
    """
    import numpy as np

    from fewlink.cli import show
    from fewlink.cli.results import result_row, result_table
    from fewlink.cli.training import chosen_settings, epoch_lines
    from fewlink.embeddings import train as fit
    from fewlink.evaluation.links import rank_links, read_splits
    from fewlink.evaluation.records import RecordStore, make_record

    settings = chosen_settings(model, recipe, change, seed, device)
    graph, splits = read_splits(train, valid, test or valid)
    embeddings = fit(splits["train"], len(graph.entities), len(graph.relations), settings, on_epoch=epoch_lines(model))
    known = np.concatenate(list(splits.values()))
    part = "test" if test else "valid"
    evaluation = rank_links(embeddings.to(settings.device), splits[part], known, part, seed)
    record = make_record(
        evaluation,
        benchmark=name or train.resolve().parent.name,
        data_sha256=graph.fingerprint,
        model=model,
        config={"recipe": recipe or model, "settings": settings.as_dict(), "measured": embeddings.facts},
    )
    record = record.model_copy(update={"shots": 0, "references": "none"})
    if json:
        show.as_json(record.model_dump())
    else:
        result_table([result_row([record])])
    path = RecordStore(results).add(record, replace=replace)
    if not json:
        print(f"stored in {path}")
