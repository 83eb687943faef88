"""`fewlink evaluate`: rank the queries of a split with a scorer or a run and store the result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fewlink.cli import common
from fewlink.core.metrics import LABELS
from fewlink.models.registry import ready_model_names

if TYPE_CHECKING:
    from fewlink.core.engine import Engine
    from fewlink.core.errors import FewlinkError
    from fewlink.core.settings import Settings
    from fewlink.evaluation.records import Record, RecordStore
    from fewlink.models.contract import Scorer
    from fewlink.tasks import Benchmark

DEFAULT_SHOTS = 3


def evaluate(
    context: typer.Context,
    what: str = typer.Argument(
        ...,
        metavar="BENCH|RUN",
        help="A catalogue name, a benchmark folder or archive; or a run folder, or the folder of several seeds.",
        autocompletion=common.complete_source,
    ),
    bench: str = typer.Option(None, help="With a RUN: its benchmark, if it has moved since training."),
    scorer: list[str] = typer.Option(
        ["rules"],
        help="random, popularity, reference-tails or rules; complex, transe, distmult or rescal (trained first); trail "
        "or trail-no-names (with the built-in weights; the latter reads no names); ultra or trix (with --checkpoint); "
        "or MODULE:FUNCTION or FILE.py:FUNCTION, your own function that returns a scorer for a benchmark and a seed.",
        autocompletion=common.complete_model,
    ),
    checkpoint: Path = typer.Option(
        None,
        help="With --scorer ultra or trix: the file of its weights, .pth as published by its authors or .safetensors.",
    ),
    split: list[str] = typer.Option(["dev"], help="train, dev or test. Choose on dev; evaluate test once."),
    shots: list[int] = typer.Option(
        [], "--shots", "-k", help="References of each relation; by default 3, or as many as the RUN was trained with."
    ),
    candidates: list[str] = typer.Option(
        ["full"], help="paper (at most 1000), full (all of the right type) or open (the type is not known)."
    ),
    draws: int = typer.Option(
        0, help="Number of random draws of references; 0 uses the first K pairs of each relation."
    ),
    seed: list[int] = typer.Option([0], help="Seed of the draws and of the scorer; a RUN has its own."),
    recipe: str = typer.Option(None, help="Recipe of an embedding baseline; by default the model's own."),
    change: list[str] = common.SET,
    device: str = common.DEVICE,
    engine: str = typer.Option(
        None,
        metavar="ENGINE",
        help="Workers that share the queries: processes (one per core), processes:N, or a Dask cluster at "
        "tcp://HOST:PORT; by default this process. The result is the same.",
    ),
    results: Path = common.RESULTS,
    replace: bool = common.REPLACE,
    json: bool = common.JSON,
) -> None:
    """Rank the true tails of a split and store a result record. Repeated options form a grid.

    `torchrun --nproc-per-node N -m fewlink evaluate …` shares the queries among several processes.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`

    Example: `fewlink evaluate runs/umls-fsrl --split test`
    """
    _check_protocols(split, candidates, shots, draws)
    common.check_benchmarks(what, bench)
    common.check_files(checkpoint, *(Path(name.rpartition(":")[0]) for name in scorer if ".py:" in name))
    common.check_model("scorer", [name for name in scorer if ":" not in name], ready_model_names())
    common.check_device(device)
    from fewlink.core import distributed
    from fewlink.evaluation.records import RecordStore
    from fewlink.models.run import benchmark_of, is_run, runs_in
    from fewlink.tasks import open_benchmark

    runs = [Path(what)] if is_run(Path(what)) else runs_in(Path(what))
    if runs:
        for_scorers = ("scorer", "checkpoint", "recipe", "change", "seed")
        common.reject_options(context, for_scorers, "cannot be used with a run")
    else:
        common.reject_options(context, ("bench",), "cannot be used with a benchmark")
    benchmark = benchmark_of(runs[0], bench) if runs else open_benchmark(what)
    device = common.resolve_device(device)
    workers = None if engine is None else common.open_engine(engine, device)
    draw_numbers = range(1, draws + 1) if draws else range(1)
    if runs:
        cases = _run_cases(runs, benchmark, split, shots, draw_numbers, device)
    else:
        cases = _scorer_cases(scorer, benchmark, checkpoint, recipe, change, shots, seed, draw_numbers, device)
    store = RecordStore(results)
    store.check_writable()
    with distributed.processes(device):
        measured = _measure(cases, benchmark, split, candidates, workers, store, replace)
        if distributed.rank():
            return
    if json:
        records = [record.model_dump() for record in measured.records]
        common.print_json(records[0] if len(records) == 1 else records)
    else:
        _print_records(measured.records, measured.files)
    if measured.errors:
        raise measured.errors[0]


def _check_protocols(splits: Sequence[str], candidates: Sequence[str], shots: Sequence[int], draws: int) -> None:
    """Raise for an unknown split or candidates protocol, and for an invalid number of shots or draws."""
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.tasks import PROTOCOLS, SPLITS

    for name in splits:
        choose("split", name, dict.fromkeys(SPLITS))
    for name in candidates:
        choose("candidates protocol", name, dict.fromkeys(PROTOCOLS))
    for k in shots:
        if k < 1:
            raise FewlinkError(f"shots must be at least 1, got {k}")
    if draws < 0:
        raise FewlinkError(f"draws must be 0 or more, got {draws}")


class Measured(NamedTuple):
    """The records of evaluations, the files that store them, and the errors of records that could not be stored."""

    records: list[Record]
    files: list[Path]
    errors: list[FewlinkError]


def _measure(
    cases: Iterable[Case],
    benchmark: Benchmark,
    splits: Sequence[str],
    candidates: Sequence[str],
    engine: Engine | None,
    store: RecordStore,
    replace: bool,
) -> Measured:
    """Evaluate each case on each split with each set of candidates; the first process stores the records."""
    from fewlink.core import distributed
    from fewlink.core.errors import FewlinkError
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as run
    from fewlink.evaluation.ranks import QueryRanks
    from fewlink.evaluation.records import make_record

    measured = Measured([], [], [])
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
            measured.records.append(record)
            if distributed.rank() == 0:
                try:
                    measured.files.append(store.add(record, ranks=QueryRanks.of(evaluation), replace=replace))
                except FewlinkError as error:  # raised after all figures are shown
                    measured.errors.append(error)
    return measured


def _print_records(records: list[Record], files: list[Path]) -> None:
    from fewlink.cli.results import result_row, result_table

    result_table([result_row([r]) for r in records])
    if len(records) == 1:
        columns = ("queries", "candidates", "mrr", "hits@1", "hits@10")
        rows = [[name, *(row[column] for column in columns)] for name, row in records[0].relations.items()]
        common.print_table(["relation", *(LABELS.get(column, column) for column in columns)], rows)
    for file in dict.fromkeys(files):
        print(f"stored in {file}")


class Case(NamedTuple):
    """A scorer to evaluate, the configuration for its records, and the shots, draw and seed."""

    scorer: Scorer
    config: dict[str, Any]
    shots: int
    draw: int
    seed: int


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
    names: Sequence[str],
    benchmark: Benchmark,
    checkpoint: Path | None,
    recipe: str | None,
    changes: Sequence[str],
    shots: Sequence[int],
    seeds: Sequence[int],
    draws: Sequence[int],
    device: str,
) -> Iterator[Case]:
    """Each scorer with each number of shots, seed and draw; scorers with settings are trained for each of these."""
    from fewlink.models import checkpoint_models, families, shipped_models
    from fewlink.models.cached import CachedScorer
    from fewlink.models.family import BaselineFamily

    shipped = shipped_models()
    published = checkpoint_models()
    baselines = [family for family in families().values() if isinstance(family, BaselineFamily)]
    by_name = {model: family for family in baselines for model in family.models}
    _check_checkpoint(names, published, checkpoint)
    settings_of: dict[str, Settings] = {}
    for name in names:
        settings = _recipe_settings(name, by_name, shipped, published, recipe, changes)
        if settings is not None:
            settings_of[name] = settings.replace(device=device).adjusted(changes)
    user_scorers = {
        (name, seed): _user_scorer(name, benchmark, seed) for name in names if ":" in name for seed in seeds
    }
    ready = {name: shipped[name].shipped(name, benchmark, device) for name in names if name in shipped}
    for name in {*names} & {*published}:
        assert checkpoint is not None
        prepared = published[name].from_checkpoint(name, benchmark, checkpoint, device)
        # Scoring all entities at once lets protocols share the costly states, and figures do not depend on the grid.
        cached = CachedScorer(prepared.scorer, len(benchmark.graph.entities))
        ready[name] = dataclasses.replace(prepared, scorer=cached)
    for name, k, seed, draw in itertools.product(names, shots or [DEFAULT_SHOTS], seeds, draws):
        if name in ready:
            yield Case(ready[name].scorer, ready[name].config, k, draw, seed)
        elif ":" in name:
            path, _, function = name.rpartition(":")
            module = os.path.basename(path).removesuffix(".py")
            yield Case(user_scorers[name, seed], {"scorer": f"{module}:{function}"}, k, draw, seed)
        else:
            prepared = by_name[name].prepare(
                name,
                benchmark,
                settings_of.get(name),
                shots=k,
                draw=draw,
                seed=seed,
                on_epoch=common.epoch_reporter(f"{name} K={k} seed {seed}"),
            )
            config = {"recipe": recipe or name} if name in settings_of else {}
            yield Case(prepared.scorer, {**config, **prepared.config}, k, draw, seed)


def _check_checkpoint(names: Sequence[str], published: Iterable[str], checkpoint: Path | None) -> None:
    """Raise if a model needs --checkpoint and it is missing, or if no model needs it."""
    from fewlink.core.errors import FewlinkError

    needing = [name for name in names if name in published]
    if needing and checkpoint is None:
        raise FewlinkError(f"{needing[0]} needs the weights that its authors publish: give --checkpoint FILE")
    if checkpoint is not None and not needing:
        raise FewlinkError(f"--checkpoint is for --scorer {' or '.join(published)}: leave it out, or add the scorer")


def _recipe_settings(
    name: str,
    by_name: Mapping[str, Any],
    shipped: Mapping[str, Any],
    published: Mapping[str, Any],
    recipe: str | None,
    changes: Sequence[str],
) -> Settings | None:
    """The settings of a scorer's recipe; None for a scorer without settings, which raises if some are given."""
    from fewlink.core.errors import FewlinkError, choose

    if ":" in name:
        reason = "is your own scorer"
    elif name in shipped:
        reason = "uses the built-in weights"
    elif name in published:
        reason = "uses the weights of --checkpoint"
    elif choose("scorer", name, {**by_name, **shipped, **published}).settings is not None:
        common.check_changes(changes)
        settings: Settings = by_name[name].recipe(name, recipe).settings
        return settings
    else:
        reason = "has no settings"
    if recipe or changes:
        raise FewlinkError(f"{name} {reason}: leave out --recipe and --set")
    return None


def _user_scorer(name: str, benchmark: Benchmark, seed: int) -> Scorer:
    """The scorer that the function `MODULE:FUNCTION` or `FILE.py:FUNCTION` returns for a benchmark and a seed.

    The working folder is searched for modules, too. Errors in the user's code are raised unchanged.
    """
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.models import checkpoint_models, families, shipped_models

    module_name, _, function = name.rpartition(":")
    spec: Any = None
    if module_name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
    else:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(module_name)
    if spec is None:
        raise FewlinkError(
            f"--scorer {name}: no module '{module_name}' in this folder or among the installed ones: check the name"
        )
    module = sys.modules.get(spec.name)
    if module is None or getattr(module, "__file__", None) != spec.origin:
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    functions = {key: value for key, value in vars(module).items() if callable(value)}
    scorer = choose(f"function of {module_name}", function, functions)(benchmark, seed)
    if not callable(scorer) or not isinstance(getattr(scorer, "name", None), str):
        raise FewlinkError(
            f"--scorer {name} returned {type(scorer).__name__}, not a scorer: return a callable with a `name` "
            "(docs/leaderboard.md has an example)"
        )
    taken = {model for family in families().values() for model in family.models}
    taken |= {f"{model}-built-in" for model in shipped_models()}
    if scorer.name in taken or scorer.name.startswith(tuple(f"{model}-" for model in checkpoint_models())):
        raise FewlinkError(f"--scorer {name}: '{scorer.name}' is the name of a built-in model: choose another `name`")
    return scorer  # type: ignore[no-any-return]
