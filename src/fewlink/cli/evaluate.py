"""`fewlink evaluate` ranks the queries of a split and stores the results; `fewlink compare` compares two models."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import options, terminal
from fewlink.core.metrics import LABELS, labelled

if TYPE_CHECKING:
    from fewlink.core.engine import Engine
    from fewlink.core.errors import FewlinkError
    from fewlink.evaluation.records import Record, RecordStore
    from fewlink.models.contract import Scorer
    from fewlink.models.family import BaselineFamily, Prepared
    from fewlink.tasks import Benchmark

DEFAULT_SHOTS = 3  # references of each relation, as embedding models learn from by default
KEYS = {  # of a record, with the headings of their columns
    "benchmark": "benchmark",
    "model": "model",
    "split": "split",
    "shots": "K",
    "candidates": "candidates",
    "references": "references",
    "queries": "queries",
}
METRICS_SHOWN = labelled("mrr", "hits@10", "hits@5", "hits@1", "amri")  # --json has all
RESULTS = typer.Option(options.FOLDER, metavar="FOLDER", help="Folder of result records.")


@dataclass(frozen=True)
class Case:
    """A scorer to evaluate, the configuration for its records, and the shots, draw and seed."""

    scorer: Scorer
    config: dict[str, Any]
    shots: int
    draw: int
    seed: int


@dataclass
class ScorerOptions:
    """Scorers on a benchmark. They are prepared for it, and some are trained."""

    scorer: list[str] = typer.Option(
        ["rules"],
        metavar="NAME",
        help="random, popularity, reference-tails or rules; complex, transe, distmult or rescal (trained first); trail "
        "or trail-no-names (with the built-in weights; the latter reads no names); ultra or trix (with --checkpoint); "
        "or MODULE:FUNCTION or FILE.py:FUNCTION, your own function that returns a scorer for a benchmark and a seed; "
        "repeatable.",
        autocompletion=options.complete_model,
    )
    checkpoint: Path | None = options.CHECKPOINT
    recipe: str | None = options.RECIPE
    change: list[str] = options.SET

    def check(self) -> None:
        """Raise for an unknown scorer, and for options that a scorer does not have."""
        from fewlink.core.errors import FewlinkError, choose
        from fewlink.models import checkpoint_models, shipped_models

        baselines = _baselines()
        published = checkpoint_models()
        for name in self.scorer:
            if ":" not in name:
                choose("scorer", name, {**baselines, **shipped_models(), **published})
            if (self.recipe or self.change) and (name not in baselines or baselines[name].settings is None):
                raise FewlinkError(f"{name} has no settings to choose: leave out --recipe and --set")
            if name in published and self.checkpoint is None:
                raise FewlinkError(f"{name} needs the weights that its authors publish: give --checkpoint FILE")
        if self.checkpoint is not None and not published.keys() & set(self.scorer):
            raise FewlinkError(f"--checkpoint is for {' and '.join(published)} only: leave it out")


def evaluate(
    context: typer.Context,
    scorers: ScorerOptions,
    what: str = typer.Argument(
        ...,
        metavar="BENCH|RUN",
        help="A catalogue name, a benchmark folder or archive; or a run folder, or the folder of several seeds.",
        autocompletion=options.complete_source,
    ),
    bench: str = typer.Option(None, metavar="BENCH", help="With a RUN: its benchmark, if it has moved since training."),
    split: list[str] = typer.Option(
        ["dev"], metavar="SPLIT", help="train, dev or test; repeatable. Choose on dev; evaluate test once."
    ),
    shots: list[int] = typer.Option(
        [],
        "--shots",
        "-k",
        metavar="NUMBER",
        help="References of each relation; by default 3, or as many as the RUN was trained with; repeatable.",
    ),
    candidates: list[str] = typer.Option(
        ["full"],
        metavar="PROTOCOL",
        help="paper (at most 1000), full (all of the right type) or open (the type is not known); repeatable.",
    ),
    draws: int = typer.Option(
        0,
        metavar="NUMBER",
        min=0,
        help="Number of random draws of references; 0 uses the first K pairs of each relation.",
    ),
    seed: list[int] = options.SEEDS,
    device: str = options.DEVICE,
    engine: str = options.ENGINE,
    results: Path = RESULTS,
    replace: bool = typer.Option(False, "--replace", help="Replace records of the same measurement."),
    json: bool = options.JSON,
) -> None:
    """Rank the true tails of a split and store a result record. Repeated options form a grid.

    `torchrun --nproc-per-node N -m fewlink evaluate …` shares the queries among several processes.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`

    Example: `fewlink evaluate runs/umls-fsrl --split test`
    """
    options.check_benchmarks(what, bench)
    options.check_files(scorers.checkpoint)
    device = options.resolve_device(device)
    from fewlink.core import distributed
    from fewlink.core.errors import choose
    from fewlink.evaluation.records import RecordStore
    from fewlink.models.run import benchmark_of, is_run, runs_in
    from fewlink.tasks import PROTOCOLS, SPLITS, open_benchmark
    from fewlink.training.vectors import is_trained, open_trained

    folder = Path(what)
    runs = [folder] if is_run(folder) else runs_in(folder)
    for name in split:
        choose("split", name, dict.fromkeys(SPLITS))
    for name in candidates:
        choose("candidates protocol", name, dict.fromkeys(PROTOCOLS))
    draw_numbers = range(1, draws + 1) if draws else range(1)
    workers = None if engine is None else options.open_engine(engine, device)
    if runs or is_trained(folder):
        options.reject_options(context, ("scorer", "checkpoint", "recipe", "change", "seed"), "is not for a run")
    else:
        options.reject_options(context, ("bench",), "is for a run: leave it out")
    if runs:
        benchmark = benchmark_of(runs[0], bench)
        cases = _run_cases(runs, benchmark, split, shots, draw_numbers, device)
    elif is_trained(folder):
        trained = open_trained(folder, bench, device)
        benchmark = trained.benchmark
        cases = iter([Case(trained.scorer, trained.config, trained.shots, 0, trained.seed)])
    else:
        benchmark = open_benchmark(what)
        scorers.check()
        cases = _scorer_cases(scorers, benchmark, shots, seed, draw_numbers, device)
    store = RecordStore(results)
    store.check_writable()
    with distributed.processes(device):
        records, files, problems = _measure(cases, benchmark, split, candidates, workers, store, replace)
        if distributed.rank():
            return
    if json:
        facts = [record.model_dump() for record in records]
        terminal.print_json(facts[0] if len(facts) == 1 else facts)
    else:
        _print_records(records, files)
    if problems:
        raise problems[0]


def _measure(
    cases: Iterable[Case],
    benchmark: Benchmark,
    splits: Sequence[str],
    candidates: Sequence[str],
    engine: Engine | None,
    store: RecordStore,
    replace: bool,
) -> tuple[list[Record], list[Path], list[FewlinkError]]:
    """Evaluate each case on each split with each set of candidates; the first process stores the records.

    Returns the records, their files, and the errors of those that could not be stored, to raise after all is shown.
    """
    from fewlink.core import distributed
    from fewlink.core.errors import FewlinkError
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as run
    from fewlink.evaluation.records import QueryRanks, make_record

    records: list[Record] = []
    files: list[Path] = []
    problems: list[FewlinkError] = []
    for case in cases:
        for split, candidates_protocol in itertools.product(splits, candidates):
            protocol = Protocol(split, case.shots, candidates_protocol, case.draw, case.seed)
            evaluation = run(benchmark, case.scorer, protocol, engine)
            record = make_record(
                evaluation,
                benchmark=benchmark.name,
                data_sha256=benchmark.fingerprint,
                model=case.scorer.name,
                config=case.config,
            )
            records.append(record)
            if distributed.rank() == 0:
                try:
                    files.append(store.add(record, ranks=QueryRanks.of(evaluation), replace=replace))
                except FewlinkError as error:
                    problems.append(error)
    return records, files, problems


def _print_records(records: list[Record], files: list[Path]) -> None:
    """A row for each record, with what all records share in the title; for a single one, a row for each relation."""
    keys = {key: heading for key, heading in KEYS.items() if len({getattr(record, key) for record in records}) > 1}
    keys = {"model": KEYS["model"], **keys}
    shared = [f"{heading} {getattr(records[0], key)}" for key, heading in KEYS.items() if key not in keys]
    rows = [
        [
            *(getattr(record, key) for key in keys),
            *(record.metrics["micro"][metric] for metric in METRICS_SHOWN.values()),
            record.metrics["macro"]["mrr"],
        ]
        for record in records
    ]
    terminal.print_table([*keys.values(), *METRICS_SHOWN, "macro MRR"], rows, title=", ".join(shared))
    if len(records) == 1:
        columns = ("queries", "candidates", "mrr", "hits@1", "hits@10")
        rows = [[name, *(row[column] for column in columns)] for name, row in records[0].relations.items()]
        terminal.print_table(["relation", *(LABELS.get(column, column) for column in columns)], rows)
    for file in dict.fromkeys(files):
        print(f"stored in {file}")


def _run_cases(
    runs: Sequence[Path],
    benchmark: Benchmark,
    splits: Sequence[str],
    shots: Sequence[int],
    draws: Sequence[int],
    device: str,
) -> Iterator[Case]:
    """The best model of each run, with each number of shots and each draw; raises if it has seen the relations."""
    from fewlink.models.checkpoints import load_best
    from fewlink.models.folder import read_consistently
    from fewlink.models.run import RunConfig, open_run

    def load(run: Path) -> tuple[RunConfig, int, Scorer]:
        config = RunConfig.read(run)
        for split in splits:
            config.check_unseen(run, benchmark, split)
        return config, load_best(run)[1], open_run(run, benchmark, device=device)

    for run in runs:
        config, step, scorer = read_consistently(run, functools.partial(load, run))
        settings = config.settings
        facts = {"settings": settings.as_dict(), "embeddings": config.embeddings, "measured": {"best_step": step}}
        for k, draw in itertools.product(shots or [settings.shots], draws):
            yield Case(scorer, facts, k, draw, settings.seed)


def _scorer_cases(
    wanted: ScorerOptions,
    benchmark: Benchmark,
    shots: Sequence[int],
    seeds: Sequence[int],
    draws: Sequence[int],
    device: str,
) -> Iterator[Case]:
    """Each scorer with each number of shots, seed and draw; embedding models are trained for each of these."""
    ready = functools.cache(functools.partial(_ready, wanted, benchmark, device))
    for name, k, seed, draw in itertools.product(wanted.scorer, shots or [DEFAULT_SHOTS], seeds, draws):
        if name in _baselines():
            prepared = _trained(wanted, name, benchmark, k, draw, seed, device)
        else:
            prepared = ready(name, seed)
        yield Case(prepared.scorer, prepared.config, k, draw, seed)


def _baselines() -> dict[str, BaselineFamily]:
    """The family of each model that is prepared for one benchmark, by name."""
    from fewlink.models import families
    from fewlink.models.family import BaselineFamily

    found = [family for family in families().values() if isinstance(family, BaselineFamily)]
    return {model: family for family in found for model in family.models}


def _trained(
    wanted: ScorerOptions, name: str, benchmark: Benchmark, shots: int, draw: int, seed: int, device: str
) -> Prepared:
    """A learning-free scorer, or an embedding model that is trained with these references."""
    family = _baselines()[name]
    settings = None
    recipe = {}
    if family.settings is not None:
        settings = family.recipe(name, wanted.recipe).settings.replace(device=device).adjusted(wanted.change)
        recipe = {"recipe": wanted.recipe or name}
    reporter = terminal.epoch_reporter(f"{name} K={shots} seed {seed}")
    prepared = family.prepare(name, benchmark, settings, shots=shots, draw=draw, seed=seed, on_epoch=reporter)
    return dataclasses.replace(prepared, config={**recipe, **prepared.config})


def _ready(wanted: ScorerOptions, benchmark: Benchmark, device: str, name: str, seed: int) -> Prepared:
    """A scorer of the user, or one whose weights are built in or in --checkpoint."""
    from fewlink.models import checkpoint_models, shipped_models
    from fewlink.models.cached import CachedScorer
    from fewlink.models.family import Prepared

    if ":" in name:
        path, _, function = name.rpartition(":")
        module = os.path.basename(path).removesuffix(".py")
        return Prepared(_own_scorer(name, benchmark, seed), {"scorer": f"{module}:{function}"})
    if name in shipped_models():
        return shipped_models()[name].shipped(name, benchmark, device)
    assert wanted.checkpoint is not None
    prepared = checkpoint_models()[name].from_checkpoint(name, benchmark, wanted.checkpoint, device)
    # Scoring all entities at once lets protocols share the costly states, and figures do not depend on the grid.
    return dataclasses.replace(prepared, scorer=CachedScorer(prepared.scorer, len(benchmark.graph.entities)))


def _own_scorer(name: str, benchmark: Benchmark, seed: int) -> Scorer:
    """The scorer that the function `MODULE:FUNCTION` or `FILE.py:FUNCTION` returns for a benchmark and a seed.

    The working folder is searched for modules, too. Errors in the user's code are raised unchanged.
    """
    from fewlink.core.errors import FewlinkError, choose

    path, _, function = name.rpartition(":")
    folder, module_name = os.path.split(path.removesuffix(".py")) if path.endswith(".py") else ("", path)
    sys.path.insert(0, os.path.abspath(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        where = "in this folder or among the installed ones"
        raise FewlinkError(f"--scorer {name}: no module '{path}' {where}: check the name") from None
    functions = {key: value for key, value in vars(module).items() if callable(value)}
    scorer = choose(f"function of {path}", function, functions)(benchmark, seed)
    if not callable(scorer) or not isinstance(getattr(scorer, "name", None), str):
        kind = type(scorer).__name__
        raise FewlinkError(f"--scorer {name} returned {kind}, not a scorer: return a callable with a `name`")
    if scorer.name in _baselines():
        raise FewlinkError(f"--scorer {name}: '{scorer.name}' is the name of a built-in model: choose another `name`")
    return scorer  # type: ignore[no-any-return]


def compare(
    first: str = typer.Argument(..., metavar="A", help="A model that has records, such as trail."),
    second: str = typer.Argument(..., metavar="B", help="The model to compare it with, such as rules."),
    benchmark: str = typer.Option(..., metavar="NAME", help="The benchmark that both were evaluated on."),
    split: str = typer.Option("test", metavar="SPLIT", help="train, dev or test."),
    shots: int = typer.Option(DEFAULT_SHOTS, "--shots", "-k", metavar="NUMBER", help="References of each relation."),
    candidates: str = typer.Option("full", metavar="PROTOCOL", help="paper, full or open, as in fewlink evaluate."),
    metric: str = typer.Option("mrr", metavar="METRIC", help="mrr, hits@1, hits@5 or hits@10."),
    results: Path = RESULTS,
    json: bool = options.JSON,
) -> None:
    """Compare two models query by query: the difference and its 95 % interval (paired bootstrap over relations).

    Both need records with ranks, which `fewlink evaluate` stores. Seeds of a model are averaged.

    Example: `fewlink compare rules popularity --benchmark umls`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.evaluation.comparison import compare as compared
    from fewlink.evaluation.records import RecordStore

    store = RecordStore(results)
    if not store.records:
        raise FewlinkError(f"no record in {store.folder}: create some with fewlink evaluate")
    found = compared(store, first, second, benchmark, split=split, shots=shots, candidates=candidates, metric=metric)
    if json:
        terminal.print_json({**vars(found), "micro": found.micro._asdict(), "macro": found.macro._asdict()})
        return
    rows = [
        [
            found.shots,
            found.candidates,
            found.queries,
            mean,
            figures.first,
            figures.second,
            f"{figures.difference:+.3f}",
            f"{figures.low:+.3f} to {figures.high:+.3f}",
            f"{100 * figures.ahead:.1f} %",
        ]
        for mean, figures in (("micro", found.micro), ("macro", found.macro))
    ]
    columns = ["K", "candidates", "queries", "mean", first, second, "difference", "95 % interval", f"{first} ahead"]
    title = f"{found.benchmark}, {found.split}, {found.relations} relations: {LABELS[found.metric]}"
    terminal.print_table(columns, rows, title=title)
    resampled = "relations" if found.relations > 1 else "queries, because there is one relation"
    print(f"micro: mean over queries; macro: mean over relations; the interval resamples {resampled}")
    print(f"seeds averaged: {first} {found.seeds[0]}, {second} {found.seeds[1]}")
