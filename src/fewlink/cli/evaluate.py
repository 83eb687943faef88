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
    from fewlink.core.errors import FewlinkError
    from fewlink.core.settings import Settings
    from fewlink.data import Benchmark
    from fewlink.evaluation.records import Record, RecordStore
    from fewlink.scorers import Scorer

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
        help="random, popularity, reference-tails, rules; complex, transe, distmult, rescal (trained first); trail "
        "(with the weights that come with fewlink), trail-names (names count too); ultra (with --checkpoint); or "
        "MODULE:FUNCTION or FILE.py:FUNCTION, your function that makes a scorer of a benchmark and a seed.",
        autocompletion=common.complete_model,
    ),
    checkpoint: Path = typer.Option(
        None, help="With --scorer ultra: its weights, a .pth file as ULTRA's authors publish it, or .safetensors."
    ),
    split: list[str] = typer.Option(["dev"], help="train, dev or test. Choose on dev; evaluate test once."),
    shots: list[int] = typer.Option(
        [], "--shots", "-k", help="References of each relation; by default 3, or as many as the RUN was trained with."
    ),
    candidates: list[str] = typer.Option(
        ["full"], help="paper (at most 1000), full (all of the right type) or open (types of the answers unknown)."
    ),
    draws: int = typer.Option(0, help="Number of random draws of references; 0: the first K pairs of each relation."),
    seed: list[int] = typer.Option([0], help="Seed of the draws and of the scorer; a RUN has its own."),
    recipe: str = typer.Option(None, help="Recipe of an embedding baseline; by default the model's own."),
    change: list[str] = common.SET,
    device: str = common.DEVICE,
    processes: int = typer.Option(
        1, help="Processes that share the ranking of a learning-free scorer; results do not change."
    ),
    results: Path = common.RESULTS,
    replace: bool = common.REPLACE,
    json: bool = common.JSON,
) -> None:
    """Rank the true tails of a split and store a result record. Options given several times form a grid.

    `torchrun --nproc-per-node N -m fewlink evaluate …` shares the queries among several processes.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`

    Example: `fewlink evaluate runs/umls-fsrl --split test`
    """
    _check_protocols(split, candidates, shots, draws)
    common.check_benchmarks(what, bench)
    listed = [name for name in scorer if ":" not in name]
    common.check_files(checkpoint, *(Path(name.rpartition(":")[0]) for name in scorer if ".py:" in name))
    common.check_model("scorer", listed, ready_model_names())
    common.check_device(device)
    from fewlink.core import distributed
    from fewlink.data import open_benchmark
    from fewlink.evaluation.records import RecordStore
    from fewlink.training import is_run, runs_in
    from fewlink.training.run import benchmark_of

    runs = [Path(what)] if is_run(Path(what)) else runs_in(Path(what))
    if runs:
        own = ("scorer", "checkpoint", "recipe", "change", "processes", "seed")
        common.reject_options(context, own, "is not for a run, which has its own")
    else:
        common.reject_options(context, ("bench",), "is not for a benchmark")
    benchmark = benchmark_of(runs[0], bench) if runs else open_benchmark(what)
    device, drawn = common.resolve_device(device), range(1, draws + 1) if draws else range(1)
    if runs:
        cases = _runs(runs, benchmark, split, shots, drawn, device)
    else:
        cases = _baselines(scorer, benchmark, checkpoint, recipe, change, shots, seed, drawn, device)
    store = RecordStore(results)
    store.check_writable()
    with distributed.processes(device):
        measured = _measure(cases, benchmark, split, candidates, processes, store, replace)
        if distributed.rank():
            return
    if json:
        records = [record.model_dump() for record in measured.records]
        common.print_json(records[0] if len(records) == 1 else records)
    else:
        _print(measured.records, measured.files)
    if measured.problems:
        raise measured.problems[0]


def _check_protocols(splits: Sequence[str], candidates: Sequence[str], shots: Sequence[int], draws: int) -> None:
    """Raise for a split, protocol, number of references or number of draws that there is not."""
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.data import PROTOCOLS, SPLITS

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
    """The records of an evaluation, the files that they were stored in, and why others were not stored."""

    records: list[Record]
    files: list[Path]
    problems: list[FewlinkError]


def _measure(
    cases: Iterable[Case],
    benchmark: Benchmark,
    splits: Sequence[str],
    candidates: Sequence[str],
    processes: int,
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
    for case, split, against in ((c, *part) for c in cases for part in itertools.product(splits, candidates)):
        protocol = Protocol(split, case.shots, against, case.draw, case.seed)
        evaluation = run(benchmark, case.scorer, protocol, processes=1 if case.config else processes)
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
            except FewlinkError as error:  # raised later, when all figures are shown
                measured.problems.append(error)
    return measured


def _print(records: list[Record], files: list[Path]) -> None:
    from fewlink.cli.results import result_row, result_table

    result_table([result_row([r]) for r in records])
    if len(records) == 1:
        columns = ("queries", "candidates", "mrr", "hits@1", "hits@10")
        rows = [[name, *(row[column] for column in columns)] for name, row in records[0].relations.items()]
        common.print_table(["relation", *(LABELS.get(column, column) for column in columns)], rows)
    for file in dict.fromkeys(files):
        print(f"stored in {file}")


class Case(NamedTuple):
    """A scorer, the configuration that its records store, and the shots, draw and seed of its evaluations."""

    scorer: Scorer
    config: dict[str, Any]
    shots: int
    draw: int
    seed: int


def _runs(
    runs: Sequence[Path],
    benchmark: Benchmark,
    splits: Sequence[str],
    shots: Sequence[int],
    draws: Sequence[int],
    device: str,
) -> Iterator[Case]:
    """The best model of each run with each number of shots and draw; raises if it was trained on relations to rank."""
    from fewlink.training import RunConfig, open_run
    from fewlink.training.checkpoints import load_best, read_run

    def opened(run: Path) -> tuple[RunConfig, int, Scorer]:
        config = RunConfig.read(run)
        for split in splits:
            config.check_unseen(run, benchmark, split)
        return config, load_best(run)[1], open_run(run, benchmark, device=device)

    for run in runs:
        config, step, scorer = read_run(run, functools.partial(opened, run))
        settings = config.settings
        facts = {"settings": settings.as_dict(), "embeddings": config.embeddings, "measured": {"best_step": step}}
        for k, draw in itertools.product(shots or [settings.shots], draws):
            yield Case(scorer, facts, k, draw, settings.seed)


def _baselines(
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
    """Each scorer with each number of shots, seed and draw; those with settings are trained for each."""
    from fewlink.models import checkpoint_models, families, shipped_models
    from fewlink.models.family import BaselineFamily
    from fewlink.scorers.cached import CachedScorer

    shipped, published = shipped_models(), checkpoint_models()
    baselines = [family for family in families().values() if isinstance(family, BaselineFamily)]
    by_name = {model: family for family in baselines for model in family.models}
    _check_checkpoint(names, published, checkpoint)
    chosen: dict[str, Any] = {}
    for name in names:
        if settings := _settings_of(name, by_name, shipped, published, recipe, changes):
            chosen[name] = settings.replace(device=device).adjusted(changes)
    of_user = {(name, seed): _own_scorer(name, benchmark, seed) for name in names if ":" in name for seed in seeds}
    ready = {name: shipped[name].shipped(name, benchmark, device) for name in names if name in shipped}
    for name in {*names} & {*published}:
        assert checkpoint is not None
        prepared = published[name].from_checkpoint(name, benchmark, checkpoint, device)
        # one protocol has the figures that it has beside others, which share what costs much: states of all entities
        cached = CachedScorer(prepared.scorer, len(benchmark.graph.entities))
        ready[name] = dataclasses.replace(prepared, scorer=cached)
    for name, k, seed, draw in itertools.product(names, shots or [DEFAULT_SHOTS], seeds, draws):
        if name in ready:
            yield Case(ready[name].scorer, ready[name].config, k, draw, seed)
            continue
        if ":" in name:
            module = os.path.basename(name.rpartition(":")[0]).removesuffix(".py")
            yield Case(of_user[name, seed], {"scorer": f"{module}:{name.rpartition(':')[2]}"}, k, draw, seed)
            continue
        reporter, settings = common.epoch_reporter(f"{name} K={k} seed {seed}"), chosen.get(name)
        prepared = by_name[name].prepare(name, benchmark, settings, shots=k, draw=draw, seed=seed, on_epoch=reporter)
        facts = {"recipe": recipe or name} if settings else {}
        yield Case(prepared.scorer, {**facts, **prepared.config}, k, draw, seed)


def _check_checkpoint(names: Sequence[str], published: Iterable[str], checkpoint: Path | None) -> None:
    """Raise for a model without the weights that its authors publish, and for such weights without a model."""
    from fewlink.core.errors import FewlinkError

    wanted = [name for name in names if name in published]
    if wanted and checkpoint is None:
        raise FewlinkError(f"{wanted[0]} needs the weights that its authors publish: give --checkpoint FILE")
    if checkpoint is not None and not wanted:
        raise FewlinkError(f"--checkpoint is for --scorer {' or '.join(published)}: leave it out, or add the scorer")


def _settings_of(
    name: str,
    by_name: Mapping[str, Any],
    shipped: Mapping[str, Any],
    published: Mapping[str, Any],
    recipe: str | None,
    changes: Sequence[str],
) -> Settings | None:
    """The settings of a scorer's recipe; None for a scorer without any, which raises if some are given."""
    from fewlink.core.errors import FewlinkError, choose

    if ":" in name:
        why = "is a scorer of your own"
    elif name in shipped:
        why = "answers with the weights it comes with"
    elif name in published:
        why = "answers with the weights of --checkpoint"
    elif choose("scorer", name, {**by_name, **shipped, **published}).settings is not None:
        common.check_changes(changes)
        settings: Settings = by_name[name].recipe(name, recipe).settings
        return settings
    else:
        why = "has no settings"
    if recipe or changes:
        raise FewlinkError(f"{name} {why}: leave out --recipe and --set")
    return None


def _own_scorer(name: str, benchmark: Benchmark, seed: int) -> Scorer:
    """What FUNCTION of `MODULE:FUNCTION` or `FILE.py:FUNCTION` makes of a benchmark and a seed.

    Modules are also looked for in the working folder. Errors of the user's own code are raised as they are.
    """
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.models import checkpoint_models, families, shipped_models

    where, _, function = name.rpartition(":")
    spec: Any = None
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    else:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(where)
    if spec is None:
        raise FewlinkError(f"--scorer {name}: there is no module '{where}' in this folder, and none is installed")
    module = sys.modules.get(spec.name)
    if module is None or getattr(module, "__file__", None) != spec.origin:
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    functions = {key: value for key, value in vars(module).items() if callable(value)}
    scorer = choose(f"function of {where}", function, functions)(benchmark, seed)
    if not callable(scorer) or not isinstance(getattr(scorer, "name", None), str):
        problem = f"returned {type(scorer).__name__}, not a scorer: a callable with a text `name`"
        raise FewlinkError(f"--scorer {name} {problem} (docs/leaderboard.md has an example)")
    taken = {*(f"{model}-shipped" for model in shipped_models()), *(m for f in families().values() for m in f.models)}
    if scorer.name in taken or scorer.name.startswith(tuple(f"{model}-" for model in checkpoint_models())):
        raise FewlinkError(f"--scorer {name}: '{scorer.name}' is the name of a model of fewlink: choose another `name`")
    return scorer  # type: ignore[no-any-return]
