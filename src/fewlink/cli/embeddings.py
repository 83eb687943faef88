"""`fewlink pretrain`, `tune`, `links` and `embeddings …`: train, tune, evaluate and convert embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import common
from fewlink.core.progress import tell
from fewlink.models.registry import BUILT_IN

if TYPE_CHECKING:
    import numpy as np

    from fewlink.graph import Graph
    from fewlink.models.embeddings import Embeddings, EmbeddingSettings

app = typer.Typer(help="Import vectors from other programs and export them.", no_args_is_help=True)

MODEL = typer.Option("complex", help="complex, transe, distmult or rescal.")
SEED = typer.Option(0, help="Seed of training.")


def check_names(model: str, recipe: str | None, device: str) -> None:
    """Raise if a model, recipe or device is unknown, before torch is imported."""
    from fewlink.core.errors import choose
    from fewlink.core.recipes import model_of

    choose("embedding model", model, dict.fromkeys(BUILT_IN["embedding"].models))
    if recipe is not None:
        model_of(recipe)
    common.check_device(device)


def pretrain(
    bench: str = common.BENCH,
    out: Path = typer.Option(..., help="Folder for the embeddings."),
    model: str = MODEL,
    recipe: str = common.RECIPE,
    dim: int = typer.Option(None, help="Real numbers per entity."),
    with_train_tasks: bool = typer.Option(
        False, "--with-train-tasks", help="Also train on the pairs of the train relations."
    ),
    with_references: int = typer.Option(
        0, min=0, help="Also train on this many pairs of each dev and test relation, the first ones."
    ),
    half: bool = typer.Option(
        False, "--half", help="Store the vectors in half precision: half the disk space and memory."
    ),
    change: list[str] = common.SET,
    seed: int = SEED,
    device: str = common.DEVICE,
) -> None:
    """Train embeddings on the background triples, without any dev or test pair that is not a reference.

    If training was interrupted, the same command continues from the last saved epoch.

    Example: `fewlink pretrain umls --model complex --dim 100 --out runs/umls-complex`
    """
    common.check_benchmarks(bench)
    check_names(model, recipe, device)
    from fewlink.core.distributed import started_by_torchrun
    from fewlink.core.errors import FewlinkError
    from fewlink.models.vectors import pretrain as run
    from fewlink.tasks import open_benchmark

    changes = [*change, *([f"dim={dim}"] if dim is not None else [])]
    settings = common.embedding_settings(model, recipe, changes, seed, device)
    if started_by_torchrun():
        raise FewlinkError("pretrain uses the threads of one process: start it without torchrun")
    benchmark = open_benchmark(bench)
    reporter = common.epoch_reporter(model)
    embeddings = run(
        benchmark,
        settings,
        out=out,
        with_train_tasks=with_train_tasks,
        with_references=with_references,
        half=half,
        on_epoch=reporter,
    )
    rows = [
        ["entities", len(embeddings.entities)],
        ["relations", len(embeddings.relations) // 2],
        ["epochs", embeddings.facts["epochs"]],
        ["held-out MRR", embeddings.facts["held_out_mrr"] or ""],
        ["seconds", float(embeddings.facts["seconds"])],
    ]
    common.print_table(["what", "value"], rows, title=f"{model} embeddings of {benchmark.name} in {out}")


def tune(
    bench: str = common.BENCH,
    out: Path = typer.Option(
        ..., help="Folder of the search; several processes can work on one folder, and an existing search is continued."
    ),
    model: str = MODEL,
    recipe: str = typer.Option(None, help="Recipe to start from; by default, the model's."),
    trials: int = typer.Option(40, min=1, help="Total number of trials, over all processes and runs."),
    shots: int = typer.Option(3, "--shots", "-k", min=1, help="References of each relation."),
    folds: int = typer.Option(
        5, min=0, help="Folds of the train relations, one of which joins dev in each trial; 0: dev only."
    ),
    objective: str = typer.Option("dev", help="dev: few-shot MRR; held-out: MRR of held-out background triples."),
    change: list[str] = common.SET,
    device: str = common.DEVICE,
) -> None:
    """Search the settings of an embedding baseline with optuna, and write the best as a recipe.

    Example: `fewlink tune umls --model transe --trials 20 --out runs/tune-transe`
    """
    common.check_benchmarks(bench)
    check_names(model, recipe, device)
    from fewlink.core.errors import choose
    from fewlink.core.files import write_bytes
    from fewlink.core.recipes import as_toml
    from fewlink.tasks import open_benchmark
    from fewlink.training.tuning import OBJECTIVES
    from fewlink.training.tuning import tune as search

    choose("objective", objective, dict.fromkeys(OBJECTIVES))
    base = common.embedding_settings(model, recipe, change, 0, device)
    benchmark = open_benchmark(bench)
    best, value, done = search(benchmark, base, out, trials=trials, shots=shots, folds=folds, objective=objective)
    chosen = f"best of {done} trials by {objective} on {benchmark.name}, K = {shots}, {folds} folds: MRR {value:.3f}"
    path = out / f"{model}.toml"
    write_bytes(path, as_toml(f"{model}, found by fewlink tune", chosen, best).encode())
    print(f"{chosen}\nwritten to {path}: use it with --recipe {path}")


def links(
    train: Path = typer.Argument(..., help="Training triples."),
    valid: Path = typer.Option(..., help="Validation triples."),
    test: Path = typer.Option(None, help="Test triples; without them, the validation triples are ranked."),
    out: Path = typer.Option(None, help="Folder for the vectors; the same command continues interrupted training."),
    name: str = typer.Option(None, help="Name of the data set; by default, that of the folder."),
    model: str = MODEL,
    recipe: str = typer.Option(
        None, help="Recipe to train with, unchanged; by default, the graph determines the settings."
    ),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting; repeatable."),
    seed: int = SEED,
    device: str = common.DEVICE,
    results: Path = common.RESULTS,
    replace: bool = common.REPLACE,
    json: bool = common.JSON,
) -> None:
    """Train and evaluate ordinary link prediction: rank head and tail of each triple, filtered.

    By default, the graph determines the settings. An entity has 512 reals (RESCAL: 100). The loss is the softmax over
    all entities if there are at most 20,000 of them, otherwise over 8,192 random ones. A short search by MRR on valid
    chooses the weight of the N3 regulariser (for TransE, the learning rate), and training stops early by the same
    metric. `--set n3=…` sets the weight without a search; `--recipe` trains with a recipe unchanged. The test triples
    are ranked once, at the end.

    Example: `fewlink links train.tsv --valid valid.tsv --test test.tsv --out runs/links`
    """
    common.check_files(train, valid, test)
    check_names(model, recipe, device)
    import shutil
    import tempfile

    import numpy as np

    from fewlink.cli.results import result_row, result_table
    from fewlink.core.errors import FewlinkError, writing
    from fewlink.evaluation.links import rank_links, read_splits
    from fewlink.evaluation.records import RecordStore, make_record
    from fewlink.models.baselines.links import link_settings, searched_setting

    settings = common.embedding_settings(model, recipe, change, seed, device)
    RecordStore(results).check_writable()
    if out and out.exists() and not (out / "weights.safetensors").exists() and (not out.is_dir() or any(out.iterdir())):
        raise FewlinkError(f"{out} exists and has no vectors: remove it or choose another --out")
    graph, splits = read_splits(train, valid, test or valid)
    if recipe is None:
        settings = link_settings(model, len(graph.entities), seed, settings.device).adjusted(change)
    fixed = recipe is not None or any(item.startswith(f"{searched_setting(model)}=") for item in change)
    with tempfile.TemporaryDirectory() as temporary:
        states = out.with_name(f".{out.name}.states") if out else Path(temporary)
        with writing(out or states):  # fails before hours of training, not after
            states.mkdir(parents=True, exist_ok=True)
        embeddings, trials = _train_links(graph, splits, settings, states, search=not fixed, stop_early=recipe is None)
        name = name or train.resolve().parent.name
        if out:
            embeddings.save(out, graph.fingerprint, graph=name, relation_names=list(graph.relations))
            shutil.rmtree(states)
    known = np.concatenate(list(splits.values()))
    split = "test" if test else "valid"
    evaluation = rank_links(embeddings.to(settings.device), splits[split], known, split, seed)
    config = {"recipe": recipe or "chosen by the graph", "settings": embeddings.settings, "measured": embeddings.facts}
    record = make_record(
        evaluation,
        benchmark=name,
        data_sha256=graph.fingerprint,
        model=model,
        config={**config, "valid_mrr": {f"{value:g}": mrr for value, mrr in sorted(trials.items())}},
    )
    record = record.model_copy(update={"shots": 0, "references": "none"})
    path = RecordStore(results).add(record, replace=replace)
    if json:
        common.print_json(record.model_dump())
    else:
        result_table([result_row([record])])
        print(f"stored in {path}")


def _train_links(
    graph: Graph,
    splits: Mapping[str, np.ndarray],
    settings: EmbeddingSettings,
    states: Path,
    *,
    search: bool,
    stop_early: bool,
) -> tuple[Embeddings, dict[float, float]]:
    """Train vectors; return them with the MRR on valid of each value of the searched setting, and print the choice."""
    from fewlink.models.baselines.links import TRIAL_EPOCHS, searched_setting, train_links
    from fewlink.models.embeddings import train

    sizes = (len(graph.entities), len(graph.relations))
    model = settings.model
    if not search:
        reporter = common.epoch_reporter(model)
        state = states / "state.safetensors"
        valid = splits["valid"] if stop_early else None
        return train(splits["train"], *sizes, settings, resume=state, on_epoch=reporter, validation=valid), {}
    name = searched_setting(model)
    tell(
        f"{model} on {sizes[0]:,} entities: {settings.dim} reals per entity, {settings.regime}; "
        f"searching for {name} with trials of {min(TRIAL_EPOCHS, settings.epochs)} epochs, by MRR on valid"
    )
    embeddings, trials = train_links(
        splits["train"], splits["valid"], *sizes, settings, states, reporter=common.epoch_reporter
    )
    tried = ", ".join(f"{value:g}: {mrr:.3f}" for value, mrr in sorted(trials.items()))
    tell(
        f"chosen: {name} = {embeddings.settings[name]:g} (MRR on valid after the trials: {tried}); "
        f"trained {embeddings.facts['epochs']} epochs, MRR on valid {embeddings.facts['held_out_mrr']:.3f}"
    )
    return embeddings, trials


@app.command("import")
def import_(
    bench: str = common.BENCH,
    source: Path = typer.Argument(..., help="A PyKEEN folder, a folder of the NELL-One release, or entities.npy."),
    out: Path = typer.Option(..., help="Folder for the embeddings."),
    kind: str = typer.Option("pykeen", help="pykeen (with model.pt), nell-one (entity2vec.ComplEx, …) or numpy."),
    relations: Path = typer.Option(None, help="For numpy: relations.npy."),
    model: str = typer.Option(None, help="complex, transe, distmult or rescal; by default, complex."),
    norm: int = typer.Option(None, help="p of TransE's distance; by default 2, or 1 for a PyKEEN model."),
) -> None:
    """Import trained vectors, reordered to match a benchmark's graph.

    Example: `fewlink embeddings import nell-one downloads/nell-embeddings --kind nell-one --out runs/complex`
    """
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.tasks import open_benchmark

    choose("kind of source", kind, dict.fromkeys(("pykeen", "nell-one", "numpy")))
    if kind == "numpy" and relations is None:
        raise FewlinkError("numpy vectors are two files: give the second with --relations")
    common.check_benchmarks(bench)
    common.check_files(source, relations)
    from fewlink.models.embeddings import from_nell_one, from_numpy, from_pykeen

    graph = open_benchmark(bench).graph
    names = list(graph.entities), list(graph.relations)
    if kind == "pykeen":
        table = from_pykeen(source, *names, model=model or "complex", norm=norm)
    elif kind == "nell-one":
        table = from_nell_one(source, *names, model=model or "complex", norm=norm or 2)
    else:
        table = from_numpy(
            source, relations, model or "complex", norm=norm or 2, entity_names=names[0], relation_names=names[1]
        )
    table.save(out, graph.fingerprint, graph=bench, relation_names=names[1])
    print(f"{len(table.entities):,} entities of {table.dim} reals, {len(names[1]):,} relations: {table.model} in {out}")


@app.command()
def export(
    bench: str = common.BENCH,
    embeddings: Path = typer.Argument(..., help="A folder made by fewlink pretrain or fewlink embeddings import."),
    out: Path = typer.Option(..., help="Folder for the exported files."),
) -> None:
    """Export vectors as numpy arrays, in the order of the benchmark's entities and relations.

    Example: `fewlink embeddings export umls runs/umls-complex --out exported`
    """
    from fewlink.core.errors import InputError
    from fewlink.core.files import MANIFEST, place_of
    from fewlink.tasks import open_benchmark

    common.check_benchmarks(bench)
    common.check_files(embeddings)
    from fewlink.models.embeddings import Embeddings, to_numpy

    if not (place_of(embeddings) / MANIFEST).exists():
        raise InputError(
            embeddings, "is not a folder of vectors: make one with fewlink pretrain or fewlink embeddings import"
        )
    graph = open_benchmark(bench).graph
    table = Embeddings.open(embeddings, graph.fingerprint)
    to_numpy(table, out / "entities.npy", out / "relations.npy")
    print(f"{len(table.entities):,} vectors in {out}")
