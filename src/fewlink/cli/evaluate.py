"""`fewlink evaluate`: rank the queries of a split with a scorer or a run and store the result."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import common

if TYPE_CHECKING:
    from fewlink.data import Benchmark
    from fewlink.scorers import Scorer

Prepare = Callable[["Benchmark", int, int, int], "Evaluated"]  # benchmark, shots (0: the default), draw, seed
DEFAULT_SHOTS = 3


def evaluate(
    context: typer.Context,
    what: str = typer.Argument(
        ...,
        metavar="BENCH|RUN",
        help="A catalogue name, a benchmark folder or archive; or a run folder, or a folder of runs.",
    ),
    bench: str = typer.Option(None, help="With a RUN: its benchmark, if it has moved since training."),
    scorer: list[str] = typer.Option(
        ["rules"],
        help="random, popularity, reference-tails, rules; complex, transe, distmult, rescal (trained first).",
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
    json: bool = common.JSON,
) -> None:
    """Rank the true tails of a split and store a result record. Options given several times form a grid.

    `torchrun --nproc-per-node N -m fewlink evaluate …` shares the queries among several processes.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`

    Example: `fewlink evaluate runs/umls-fsrl --split test`
    """
    from fewlink.base import distributed
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.cli.results import result_row, result_table
    from fewlink.data import PROTOCOLS, SPLITS, open_benchmark
    from fewlink.evaluation import Protocol
    from fewlink.evaluation import evaluate as run
    from fewlink.evaluation.records import make_record
    from fewlink.training import is_run, runs_in
    from fewlink.training.run import benchmark_of

    for name in split:
        choose("split", name, dict.fromkeys(SPLITS))
    for name in candidates:
        choose("candidates protocol", name, dict.fromkeys(PROTOCOLS))
    for k in shots:
        if k < 1:
            raise FewlinkError(f"shots must be at least 1, got {k}")
    if draws < 0:
        raise FewlinkError(f"draws must be 0 or more, got {draws}")
    runs = [Path(what)] if is_run(Path(what)) else runs_in(Path(what))
    if runs:
        own = ("scorer", "recipe", "change", "processes", "seed")
        common.reject_options(context, own, "is not for a run, which has its own")
    else:
        common.reject_options(context, ("bench",), "is not for a benchmark")
    benchmark = benchmark_of(runs[0], bench) if runs else open_benchmark(what)
    device = common.resolve_device(device)
    scorers = [_run(path, device) for path in runs] or [_baseline(name, recipe, change, device) for name in scorer]
    drawn = range(1, draws + 1) if draws else [0]
    records = []
    with distributed.processes(device):
        for prepare, k, s, draw in itertools.product(scorers, shots or [0], seed, drawn):
            evaluated = prepare(benchmark, k, draw, s)
            for part, against in itertools.product(split, candidates):
                evaluated.check_unseen(benchmark, part)
                protocol = Protocol(part, evaluated.shots, against, draw, evaluated.seed)
                shared = 1 if evaluated.config else processes
                evaluation = run(benchmark, evaluated.scorer, protocol, processes=shared)
                record = make_record(
                    evaluation,
                    benchmark=benchmark.name,
                    data_sha256=benchmark.fingerprint,
                    model=evaluated.scorer.name,
                    config=evaluated.config,
                )
                if distributed.rank() == 0:
                    record.save(results)
                records.append(record)
        if distributed.rank():
            return
    if json:
        common.print_json(records[0].model_dump() if len(records) == 1 else [r.model_dump() for r in records])
        return
    result_table([result_row([r]) for r in records])
    if len(records) == 1:
        rows = [
            [name, row["queries"], row["candidates"], row["mrr"], row["hits@1"], row["hits@10"]]
            for name, row in records[0].relations.items()
        ]
        common.print_table(["relation", "queries", "candidates", "MRR", "Hits@1", "Hits@10"], rows)


@dataclass(frozen=True)
class Evaluated:
    """A scorer, the configuration its record stores, and the shots and seed of the protocol.

    `check_unseen` raises if the scorer was trained on relations of a split.
    """

    scorer: Scorer
    config: dict[str, Any]
    shots: int
    seed: int
    check_unseen: Callable[[Benchmark, str], None] = lambda benchmark, split: None


def _run(run: Path, device: str) -> Prepare:
    """The best model of a run, opened once for all numbers of references."""
    from fewlink.training import RunConfig, open_run
    from fewlink.training.checkpoints import load_best

    config = RunConfig.read(run)
    settings = config.settings

    @functools.cache
    def opened(benchmark: Benchmark) -> tuple[Scorer, dict[str, Any]]:
        _, step = load_best(run)
        facts = {"settings": settings.as_dict(), "embeddings": config.embeddings, "measured": {"best_step": step}}
        return open_run(run, benchmark, device=device), facts

    def prepare(benchmark: Benchmark, shots: int, draw: int, seed: int) -> Evaluated:
        scorer, facts = opened(benchmark)
        unseen = functools.partial(config.check_unseen, run)
        return Evaluated(scorer, facts, shots or settings.shots, settings.seed, unseen)

    return prepare


def _baseline(name: str, recipe: str | None, changes: list[str], device: str) -> Prepare:
    """A baseline, trained for each benchmark, number of shots, draw and seed if it has settings."""
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.training.family import BaselineFamily, families

    baselines = [family for family in families().values() if isinstance(family, BaselineFamily)]
    family = choose("scorer", name, {model: family for family in baselines for model in family.models})
    settings, facts = None, {}
    if family.settings is not None:
        common.check_changes(changes)
        chosen = family.recipe(name, recipe).settings
        settings = dataclasses.replace(chosen, device=device).adjusted(changes)
        facts = {"recipe": recipe or name}
    elif recipe or changes:
        raise FewlinkError(f"{name} has no settings: leave out --recipe and --set")

    def prepare(benchmark: Benchmark, shots: int, draw: int, seed: int) -> Evaluated:
        k = shots or DEFAULT_SHOTS
        reporter = common.epoch_reporter(f"{name} K={k} seed {seed}")
        prepared = family.prepare(name, benchmark, settings, shots=k, draw=draw, seed=seed, on_epoch=reporter)
        return Evaluated(prepared.scorer, {**facts, **prepared.config}, k, seed)

    return prepare
