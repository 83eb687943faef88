"""`fewlink evaluate`: rank a split's queries with a scorer and store the result."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.base.metrics import LABELS

if TYPE_CHECKING:
    from fewlink.data import Benchmark
    from fewlink.scorers import Scorer


Maker = Callable[["Benchmark", int, int, int], "Measured"]  # of shots (0: its own), draw and seed
DEFAULT_SHOTS = 3


def evaluate(
    context: typer.Context,
    what: str = typer.Argument(
        ...,
        metavar="BENCH|RUN",
        help="A catalogue name, a benchmark folder or archive; or a run of fewlink train, or a folder of runs.",
    ),
    bench: str = typer.Option(None, help="With a RUN: where its benchmark is, if it is not where it was."),
    scorer: list[str] = typer.Option(
        ["rules"],
        help="random, popularity, reference-tails, rules; complex, transe, distmult, rescal (trained on the spot).",
    ),
    split: list[str] = typer.Option(["dev"], help="train, dev or test. Choose on dev; look at test once."),
    shots: list[int] = typer.Option(
        [], "--shots", "-k", help="References of each relation; 3, or as many as a RUN was trained with."
    ),
    candidates: list[str] = typer.Option(
        ["full"], help="paper (at most 1000), full (all of the right type) or open (no oracle)."
    ),
    draws: int = typer.Option(0, help="Random draws of the references; 0 takes the first K of each relation."),
    seed: list[int] = typer.Option([0], help="Seed of the draws and of the scorer; a RUN has its own."),
    recipe: str = typer.Option(None, help="Recipe of an embedding baseline; the model's own by default."),
    change: list[str] = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N, for runs and for baselines that are trained."),
    processes: int = typer.Option(
        1, help="Processes to share the ranking of a learning-free scorer; figures stay the same."
    ),
    results: Path = typer.Option(Path("results"), help="Folder for the result records."),
    json: bool = typer.Option(False, "--json", help="Print the records as JSON."),
) -> None:
    """Rank the true tails of a split and store the figures. Options that are given several times make a grid.

    `torchrun --nproc-per-node N -m fewlink evaluate …` shares the queries between several processes.

    Example: `fewlink evaluate umls --scorer rules --scorer popularity --split test --shots 3 --candidates full`

    Example: `fewlink evaluate runs/umls-fsrl --split test`
    """
    from fewlink.base import distributed
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.cli import show
    from fewlink.cli.results import result_row, result_table
    from fewlink.cli.training import refuse_given, working_device
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
        refuse_given(
            context, ("scorer", "recipe", "change", "processes", "seed"), "is not for a run, which has its own"
        )
    else:
        refuse_given(context, ("bench",), "is not for a benchmark")
    benchmark = benchmark_of(runs[0], bench) if runs else open_benchmark(what)
    makers = [_run_maker(path, device) for path in runs] or [_maker(name, recipe, change, device) for name in scorer]
    drawn = range(1, draws + 1) if draws else [0]
    records = []
    with distributed.processes(working_device(device)):
        for make, k, s, draw in itertools.product(makers, shots or [0], seed, drawn):
            made = make(benchmark, k, draw, s)
            for part, against in itertools.product(split, candidates):
                made.check_unseen(benchmark, part)
                protocol = Protocol(part, made.shots, against, draw, made.seed)
                evaluation = run(benchmark, made.scorer, protocol, processes=1 if made.config else processes)
                record = make_record(
                    evaluation,
                    benchmark=benchmark.name,
                    data_sha256=benchmark.fingerprint,
                    model=made.scorer.name,
                    config=made.config,
                )
                if distributed.rank() == 0:
                    record.save(results)
                records.append(record)
        if distributed.rank():
            return
    if json:
        show.as_json(records[0].model_dump() if len(records) == 1 else [r.model_dump() for r in records])
        return
    result_table([result_row([r]) for r in records])
    if len(records) == 1:
        columns = ("queries", "candidates", "mrr", "hits@1", "hits@10")
        rows = [[name, *(row[column] for column in columns)] for name, row in records[0].relations.items()]
        show.table(["relation", *(LABELS.get(column, column) for column in columns)], rows)


@dataclass(frozen=True)
class Measured:
    """A scorer for the evaluator, what its record keeps, and how it is asked; `check_unseen` refuses a seen split."""

    scorer: Scorer
    config: dict[str, Any]
    shots: int
    seed: int
    check_unseen: Callable[[Benchmark, str], None] = lambda benchmark, split: None


def _run_maker(run: Path, device: str) -> Maker:
    """The best model of a run, whatever the number of references asked for; opened once."""
    from fewlink.cli.training import working_device
    from fewlink.training import RunConfig, open_run
    from fewlink.training.checkpoints import load_best

    config = RunConfig.read(run)
    settings = config.settings

    @functools.cache
    def opened(benchmark: Benchmark) -> tuple[Scorer, dict[str, Any]]:
        _, step = load_best(run)
        facts = {"settings": settings.as_dict(), "embeddings": config.embeddings, "measured": {"best_step": step}}
        return open_run(run, benchmark, device=working_device(device)), facts

    def make(benchmark: Benchmark, shots: int, draw: int, seed: int) -> Measured:
        scorer, facts = opened(benchmark)
        unseen = functools.partial(config.check_unseen, run)
        return Measured(scorer, facts, shots or settings.shots, settings.seed, unseen)

    return make


def _maker(name: str, recipe: str | None, changes: list[str], device: str) -> Maker:
    """How to make this scorer for (benchmark, shots, draw, seed), with the configuration its record keeps."""
    from fewlink.base.errors import FewlinkError
    from fewlink.base.resolver import choose
    from fewlink.cli.training import epoch_lines, refuse_own, working_device
    from fewlink.training.family import BaselineFamily, families

    baselines = [family for family in families().values() if isinstance(family, BaselineFamily)]
    family = choose("scorer", name, {model: family for family in baselines for model in family.models})
    settings, more = None, {}
    if family.settings is not None:
        refuse_own(changes)
        chosen = family.recipe(name, recipe).settings
        settings = dataclasses.replace(chosen, device=working_device(device)).adjusted(changes)
        more = {"recipe": recipe or name}
    elif recipe or changes:
        raise FewlinkError(f"{name} has no settings: leave out --recipe and --set")

    def make(benchmark: Benchmark, shots: int, draw: int, seed: int) -> Measured:
        k = shots or DEFAULT_SHOTS
        reporter = epoch_lines(f"{name} K={k} seed {seed}")
        made = family.prepare(name, benchmark, settings, shots=k, draw=draw, seed=seed, on_epoch=reporter)
        return Measured(made.scorer, {**more, **made.config}, k, seed)

    return make
