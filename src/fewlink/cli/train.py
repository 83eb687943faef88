"""`fewlink train`, `fit` and `card`, which train, fit and describe models, and the lists `models` and `recipes`."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import common
from fewlink.cli.data import TRIPLES
from fewlink.core.metrics import labelled
from fewlink.core.progress import tell
from fewlink.models.registry import trained_model_names

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
        autocompletion=common.complete_source,
    ),
    out: Path = typer.Option(None, help="Run folder; with several seeds, the parent of a folder seed-N for each."),
    model: str = typer.Option(
        None,
        help="A name from `fewlink models`; by default the recipe's, or trail.",
        autocompletion=common.complete_model,
    ),
    recipe: str = common.RECIPE,
    start: Path = typer.Option(
        None, help="With the model ultra or trix: a file of initial weights, .pth as published or .safetensors."
    ),
    embeddings: Path = typer.Option(
        None, help="Folder of pretrained vectors (fewlink pretrain); by default the recipe trains them."
    ),
    shots: int = typer.Option(
        None, "--shots", "-k", help="References of each relation; by default the recipe's, or 3."
    ),
    change: list[str] = typer.Option(
        [], "--set", metavar="NAME=VALUE", help="Change a setting of `fewlink models --model MODEL --settings`."
    ),
    seed: list[int] = typer.Option([0], help="Seed; repeatable. Several runs train side by side on a GPU."),
    resume: Path = typer.Option(
        None, help="Run to continue with its settings and vectors; --set steps=N or patience=N raises a limit."
    ),
    device: str = common.DEVICE,
    json: bool = common.JSON,
) -> None:
    """Meta-train on the train relations and keep the weights that are best on dev (for trail, the last ones).

    --resume or the same command continues interrupted training. A continued run may get more steps or patience, but no
    other settings; if its benchmark has moved, also give BENCH.
    `torchrun --nproc-per-node N -m fewlink train …` trains with several processes.

    Example: `fewlink train umls --model fsrl --out runs/umls-fsrl`

    Example: `fewlink train my-benchmark umls more-triples.tsv --out runs/three-graphs`
    """
    from fewlink.core.errors import FewlinkError

    common.check_changes(change)
    if resume is None and (not bench or out is None):
        raise FewlinkError("give a BENCH and --out FOLDER to train, or --resume RUN to continue")
    common.check_model("model", [model] if model else [], trained_model_names())
    common.check_benchmarks(*(bench or []))
    common.check_files(resume, embeddings, start)
    common.check_device(device)
    if resume is not None:
        fixed = ("out", "model", "recipe", "start", "embeddings", "shots", "seed")
        common.reject_options(context, fixed, "cannot be changed with --resume: leave it out")
        if bench and len(bench) > 1:
            raise FewlinkError("--resume takes at most one BENCH: a run keeps its further graphs")
    if shots is not None:
        change = [f"shots={shots}", *change]
    if start is not None:
        change = [f"start={start.resolve()}", *change]
    from fewlink.core import distributed
    from fewlink.training.train import resume as resume_run
    from fewlink.training.train import train_seeds

    with distributed.processes(common.resolve_device(device)) as own_device:
        first = distributed.rank() == 0
        reporter = common.step_reporter(runs=len(seed)) if first else None
        try:
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
                    seeds=seed,
                    device=own_device,
                    on_epoch=common.epoch_reporter,
                    on_event=reporter,
                )
        except KeyboardInterrupt:
            if first:
                print("stopped; the same command continues", file=sys.stderr)
            raise typer.Exit(130) from None
        if first:
            _print_runs(results, json)


def _print_runs(results: Sequence[RunResult], json: bool) -> None:
    from fewlink.models.run import RunConfig

    if json:
        common.print_json([{**dataclasses.asdict(result), "run": str(result.run)} for result in results])
        return
    columns = ["run", "steps", "stopped", "best step", *DEV_METRICS, "seconds"]
    rows = [
        [
            r.run,
            r.step,
            STOPPED[r.stopped],
            r.best_step,
            *(r.best[metric] for metric in DEV_METRICS.values()),
            r.seconds,
        ]
        for r in results
    ]
    config = RunConfig.read(results[0].run)
    settings = config.settings
    title = (
        f"{settings.model} on {config.benchmark['name']}, {settings.shots} shots, dev {settings.evaluate_candidates}"
    )
    common.print_table(columns, rows, title=title)


def fit(
    graph: Path = TRIPLES,
    out: Path = typer.Option(..., help="Run folder; it has everything that fewlink predict needs."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    minutes: float = typer.Option(10.0, help="Time limit; the command ends earlier if it cannot use the time."),
    no_tune: bool = typer.Option(False, "--no-tune", help="Do not fine-tune the built-in weights."),
    no_mix: bool = typer.Option(False, "--no-mix", help="Do not mix an embedding model in for relations of the graph."),
    seed: int = typer.Option(0, help="Seed of the split and of training."),
    change: list[str] = typer.Option(
        [],
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting of `fewlink models --model trail --settings`; steps=N overrides the time limit.",
    ),
    on_error: str = common.ON_ERROR,
    device: str = common.DEVICE,
    json: bool = common.JSON,
) -> None:
    """Fit TRAIL to your own graph in limited time.

    After a few seconds the run answers with the built-in weights on the whole graph. Then the command holds relations
    out of the graph (pairs, if the graph has few relations) and asks about them as users do: with 3, 30 and all other
    pairs as references. It fine-tunes the weights on the rest, and deploys them only if they are better by two standard
    errors over the relations. In the time left it trains an embedding model, and mixes it in for relations that the
    graph has by the same rule. What to expect is measured on other questions. Stages that do not fit in the time are
    skipped and reported. The same command continues an interrupted fit; with more minutes it continues one that had
    too little time.

    Example: `fewlink fit my-graph.tsv --out runs/mine`, then `fewlink predict runs/mine --reference 'A => B' --head C`
    """
    begin = time.monotonic()  # the time to import torch counts
    common.check_changes(change)
    how = common.how_to_read(columns, on_error, literals)
    common.check_triples(graph)
    common.check_files(types, names)
    common.check_device(device)
    from fewlink.fitting.fit import fit as run
    from fewlink.models.run import is_run

    try:
        fitted = run(
            graph,
            out,
            types=types,
            names=names,
            read_names=not no_names,
            minutes=minutes,
            tune=not no_tune,
            mix=not no_mix,
            seed=seed,
            change=change,
            **how,
            device=common.resolve_device(device),
            tell=tell,
            begin=begin,
        )
    except KeyboardInterrupt:
        usable = f"fewlink predict {out} works already, and " if is_run(out) else ""
        print(f"stopped; {usable}the same command continues", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        paths = {"run": str(fitted.run), "card": str(fitted.card) if fitted.card else None}
        common.print_json({**dataclasses.asdict(fitted), **paths})
        return
    if fitted.held_out:
        rows = [
            [f"{name} (deployed)" if name == fitted.deployed else name, *_fit_row(figures)]
            for name, figures in fitted.held_out.items()
        ]
        common.print_table(["scorer", *FIT_COLUMNS], rows, title="held-out questions that the scorer is chosen on")
    print(f"deployed: {fitted.deployed_text}")
    print(f"{fitted.mixed}\n" if fitted.mixed else "")
    if fitted.figures:
        rows = [[OF_GRAPH.get(shots, shots), *_fit_row(figures)] for shots, figures in fitted.figures.items()]
        common.print_table(["references", *FIT_COLUMNS], rows, title="what to expect: other held-out questions")
    if fitted.card:
        print(f"model card: {fitted.card}")
    print(f"time: {fitted.seconds / 60:.2g} of {fitted.minutes:g} minutes")
    print(f"next: fewlink predict {fitted.run} --reference 'HEAD => TAIL' --head NAME --explain")


def _fit_row(figures: Mapping[str, float]) -> list[object]:
    error = f"{figures['error']:.3f}" if "error" in figures else "unknown"
    numbers = (f"{figures[name]:,}" for name in ("relations", "queries"))
    return [*numbers, figures["mrr"], error, figures["hits@1"], figures["hits@10"]]


def card(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder made by fewlink train."),
    test: bool = typer.Option(False, "--test", help="Also evaluate on test; do so once, at the end."),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
) -> None:
    """Write a run's model card, README.md: data, figures, calibration, use and limits.

    If the run is not calibrated yet, calibrate its probabilities on dev first.

    Example: `fewlink card runs/umls-trail`
    """
    common.check_graph_or_run(str(run))
    common.check_benchmarks(bench)
    common.check_device(device)
    from fewlink.linker import Linker, load, write_card
    from fewlink.models.run import is_run

    device = common.resolve_device(device)
    opened = functools.partial(Linker.load, as_measured=True) if is_run(run) else load
    linker = opened(run, bench=bench, device=device)
    path = write_card(linker, test=test)
    assert linker.calibration is not None
    print(f"{path}  (calibration error {linker.calibration.measured_error:.3f})")


def models(
    settings: bool = typer.Option(False, "--settings", help="Show the settings that `fewlink train --set` can change."),
    model: str = typer.Option(None, help="Show the settings of this model; with --settings, by default trail's."),
    json: bool = common.JSON,
) -> None:
    """List all models by family, with their components and the equations that these implement.

    Example: `fewlink models`
    """
    common.check_model("model", [model] if model else [], trained_model_names())
    from fewlink.models import DEFAULT_MODEL, families

    if settings or model:
        _print_settings(model or DEFAULT_MODEL, json)
        return
    if json:
        common.print_json(
            [
                {"name": name, "family": family.name, "about": about, **family.components(name)}
                for family in families().values()
                for name, about in family.models.items()
            ]
        )
        return
    for family in families().values():
        if not family.models:
            continue
        kinds = list(family.components(next(iter(family.models))))
        rows = [[name, *family.components(name).values(), about] for name, about in family.models.items()]
        common.print_table(["model", *kinds, "description"], rows, title=family.name)
        if texts := family.component_texts():
            common.print_table(["component", "computes"], list(map(list, texts.items())))


def _print_settings(model: str, json: bool) -> None:
    """Print the settings of a model with their defaults and descriptions."""
    from fewlink.models import trained_family

    kind = trained_family(model).settings
    defaults = kind(model=model).as_dict()
    rows = [[name, defaults[name], field.description or ""] for name, field in kind.model_fields.items()]
    if json:
        common.print_json([dict(zip(("name", "default", "about"), row, strict=True)) for row in rows])
        return
    common.print_table(
        ["setting", "default", "description"], [[name, str(value), about] for name, value, about in rows]
    )


def recipes(json: bool = typer.Option(False, "--json", help="Print JSON, with all settings.")) -> None:
    """List the recipes of embeddings and few-shot models.

    Example: `fewlink recipes`
    """
    from fewlink.core.recipes import measured, model_of, recipe_texts
    from fewlink.models import family_of

    models = {name: model_of(name) for name in recipe_texts()}
    recipes = [family_of(model).recipe(model, name) for name, model in models.items()]
    figures = measured()
    if json:
        rows = [
            {
                "name": r.name,
                "about": r.about,
                "chosen": r.chosen,
                "measured": figures.get(r.name, {}),
                "settings": r.settings.as_dict(),
                "vectors": r.vectors.as_dict(),
            }
            for r in recipes
        ]
        common.print_json(rows)
        return
    for r in recipes:
        print(f"{r.name}\n  {r.about}\n  chosen: {r.chosen}")
        for measurement, figure in figures.get(r.name, {}).items():
            print(f"  {measurement}: {figure}")
