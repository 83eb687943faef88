"""`fewlink results`, `compare`, `report` and `study`: stored records, their page, and the paper's studies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink import studies
from fewlink.cli import common
from fewlink.cli.common import FOLDER
from fewlink.core.metrics import LABELS, labelled
from fewlink.core.progress import tell

if TYPE_CHECKING:
    from fewlink.evaluation import Comparison
    from fewlink.evaluation.records import Record
    from fewlink.studies.plan import Plan
    from fewlink.studies.study import StudyOutput

KEYS = ("benchmark", "model", "split", "shots", "candidates", "references")
FOLDER_HELP = f"Folder of records; by default {FOLDER}, or else results (in a clone, the repository's)."
METRICS_SHOWN = labelled("mrr", "hits@10", "hits@5", "hits@1", "amri")  # --json has all


def results(
    folder: Path = typer.Argument(None, help=FOLDER_HELP),
    benchmark: str = typer.Option(None, help="Only this benchmark."),
    model: str = typer.Option(None, help="Only this model or scorer."),
    split: str = typer.Option(None, help="Only this split."),
    shots: int = typer.Option(None, "--shots", "-k", help="Only this number of references."),
    candidates: str = typer.Option(None, help="Only this candidates protocol."),
    references: str = typer.Option(None, help="Only these references: first, draw-1, …"),
    each: bool = typer.Option(
        False, "--each", help="One row per record, instead of mean ± deviation over seeds and draws."
    ),
    json: bool = typer.Option(False, "--json", help="Print the matching records as JSON."),
) -> None:
    """Show stored results as mean ± deviation over seeds and draws.

    A narrow terminal gets no AMRI column; --json prints every figure.

    Example: `fewlink results --split test --candidates full`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.evaluation.records import read_records

    folder = results_folder(folder)
    values = (benchmark, model, split, shots, candidates, references)
    filters = {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    distinct = list({r.key: r for r in read_records(folder)}.values())  # two files may have the same measurement
    records = [r for r in distinct if all(getattr(r, key) == value for key, value in filters.items())]
    if json:
        common.print_json([r.model_dump() for r in records])
        return
    if not records:
        raise FewlinkError(_no_match(folder, distinct, filters))
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for number, record in enumerate(records):
        group = [getattr(record, key) for key in KEYS[:-1]]
        group += [record.references.split("-")[0], record.data_sha256, record.choices()]  # "first" or "draw"
        if each:
            group.append(number)
        groups.setdefault(tuple(group), []).append(record)
    result_table([result_row(group) for group in groups.values()])


def _no_match(folder: Path, records: list[Record], filters: dict[str, Any]) -> str:
    """The reason why no record matches: the first value that no record has, or the combination."""
    from fewlink.core.errors import did_you_mean

    if not records:
        return f"no record in {folder}: create some with fewlink evaluate"
    for key, value in filters.items():
        known = sorted({getattr(r, key) for r in records})
        if value not in known:
            names = [str(each) for each in known]
            hint = did_you_mean(str(value), names) or f": choose from {', '.join(names)}"
            return f"no record in {folder} has {key} '{value}'{hint}"
    return f"no record in {folder} matches all filters: leave out one of them"


def compare(
    first: str = typer.Argument(..., metavar="A", help="A model that has records, such as trail."),
    second: str = typer.Argument(..., metavar="B", help="The model to compare it with, such as rules."),
    benchmark: str = typer.Option(None, help="The benchmark; required if both models have records on several."),
    split: str = typer.Option("test", help="train, dev or test."),
    shots: list[int] = typer.Option([3], "--shots", "-k", help="Number of references; repeatable."),
    candidates: list[str] = typer.Option(["full"], help="full, paper or open; repeatable."),
    metric: str = typer.Option("mrr", help="mrr, hits@1, hits@5 or hits@10."),
    resamples: int = typer.Option(10_000, help="Number of bootstrap samples of the relations."),
    results: Path = typer.Option(None, help=FOLDER_HELP),
    json: bool = common.JSON,
) -> None:
    """Compare two models query by query: the difference and its 95 % interval (paired bootstrap over relations).

    Both need records with ranks, which `fewlink evaluate` stores. Seeds of a model are averaged.

    Example: `fewlink compare rules popularity --benchmark umls`
    """
    import itertools

    from fewlink.core.errors import FewlinkError, choose
    from fewlink.evaluation.comparison import METRICS
    from fewlink.evaluation.comparison import compare as compared
    from fewlink.evaluation.records import RecordStore

    choose("metric", metric, dict.fromkeys(METRICS))
    store = RecordStore(results_folder(results))
    if not store.records:
        raise FewlinkError(f"no record in {store.folder}: create some with fewlink evaluate")
    if benchmark is None:
        benchmark = _shared_benchmark(store.records, first, second)
    comparisons = [
        compared(
            store, first, second, benchmark, split=split, shots=k, candidates=c, metric=metric, resamples=resamples
        )
        for k, c in itertools.product(shots, candidates)
    ]
    if json:
        rows = [{**vars(each), "micro": each.micro._asdict(), "macro": each.macro._asdict()} for each in comparisons]
        common.print_json(rows[0] if len(rows) == 1 else rows)
        return
    _print_comparisons(comparisons)


def _shared_benchmark(records: list[Record], first: str, second: str) -> str:
    """The only benchmark on which both models have records."""
    from fewlink.core.errors import FewlinkError, choose

    benchmarks = []
    for model in (first, second):
        choose("model with records", model, dict.fromkeys(sorted({r.model for r in records})))
        benchmarks.append({r.benchmark for r in records if r.model == model})
    shared = sorted(set.intersection(*benchmarks))
    if not shared:
        raise FewlinkError(f"{first} and {second} have records on no common benchmark: evaluate both on one")
    if len(shared) > 1:
        raise FewlinkError(f"both models have records on {', '.join(shared)}: give --benchmark")
    return shared[0]


def _print_comparisons(comparisons: list[Comparison]) -> None:
    one = comparisons[0]
    first, second = one.models
    rows: list[list[Any]] = []
    for each in comparisons:
        for mean, figures in (("micro", each.micro), ("macro", each.macro)):
            rows.append(
                [
                    each.shots,
                    each.candidates,
                    each.queries,
                    mean,
                    figures.first,
                    figures.second,
                    f"{figures.difference:+.3f}",
                    f"{figures.low:+.3f} to {figures.high:+.3f}",
                    f"{100 * figures.ahead:.1f} %",
                ]
            )
    columns = ["K", "candidates", "queries", "mean", first, second, "difference", "95 % interval", f"{first} ahead"]
    title = f"{one.benchmark}, {one.split}, {one.relations} relations: {LABELS[one.metric]}"
    common.print_table(columns, rows, title=title)
    seeds = ", ".join(f"{model} {count}" for model, count in zip(one.models, one.seeds, strict=True))
    resampled = "relations" if one.relations > 1 else "queries, because there is one relation"
    print(f"micro: mean over queries; macro: mean over relations; the interval resamples {resampled}")
    print(f"seeds averaged: {seeds}")


def results_folder(folder: Path | None) -> Path:
    """`folder`, or the default that `FOLDER_HELP` describes; raises if it does not exist."""
    from fewlink.core.errors import FewlinkError

    repository = Path("results")
    folder = folder or (repository if repository.is_dir() and not FOLDER.is_dir() else FOLDER)
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise FewlinkError(f"{folder} {problem}: give a folder of records, which fewlink evaluate creates")
    return folder


def result_row(records: list[Record]) -> list[Any]:
    """A row for records that differ only in seed or draw."""
    first = records[0]
    cell: list[Any] = [getattr(first, key) for key in KEYS]
    if len({r.references for r in records}) > 1:
        cell[-1] = f"{len(records)} draws"
    figures = [_spread([r.metrics["micro"][metric] for r in records]) for metric in METRICS_SHOWN.values()]
    return [*cell, first.queries, *figures, _spread([r.metrics["macro"]["mrr"] for r in records])]


def _spread(values: list[float]) -> float | str:
    import statistics

    mean = statistics.fmean(values)
    if len(values) == 1:
        return mean
    return "±".join(common.format_cell(x).removeprefix("0") for x in (mean, statistics.stdev(values)))


def result_table(rows: list[list[Any]]) -> None:
    """Print rows of `result_row`, with values that all rows share in the title instead of a column.

    On a narrow terminal, more columns move into titles, and the rows are split into several tables.
    """
    columns = ["benchmark", "model", "split", "K", "candidates", "references", "queries", *METRICS_SHOWN, "macro MRR"]
    keys = [columns.index(name) for name in ("benchmark", "split", "candidates", "references", "queries", "K")]
    shown = [i for i in range(len(columns)) if i not in keys or len({row[i] for row in rows}) > 1]
    for key in (*keys, columns.index("AMRI")):
        if key in shown and not common.fits([columns[i] for i in shown], ([row[i] for i in shown] for row in rows)):
            shown.remove(key)
    titles = [i for i in sorted(keys) if i not in shown]
    tables: dict[tuple[Any, ...], list[list[Any]]] = {}
    for row in rows:
        tables.setdefault(tuple(row[i] for i in titles), []).append([row[i] for i in shown])
    for values, group in tables.items():
        facts = [f"{columns[i]} {common.format_cell(value)}" for i, value in zip(titles, values, strict=True)]
        common.print_table([columns[i] for i in shown], group, title=", ".join(facts))


def report(
    folder: Path = typer.Argument(None, help=FOLDER_HELP),
    out: Path = typer.Option(Path("report.html"), help="The page to write; an existing one is replaced."),
) -> None:
    """Write all stored results as one HTML page with tables, charts, examples and the commands behind them.

    Example: `fewlink report results --out report.html`
    """
    folder = results_folder(folder)
    from fewlink.studies.plan import published_figures
    from fewlink.studies.report import write_report

    write_report(folder, out, published_figures())
    print(f"{out} ({out.stat().st_size / 1e3:,.0f} kB)")


def study(
    context: typer.Context,
    name: str = typer.Argument(
        None,
        metavar="NAME",
        help=f"{', '.join(studies.NAMES[:-1])} or {studies.NAMES[-1]}.",
        autocompletion=common.complete_study,
    ),
    bench: str = typer.Argument(None, metavar="BENCH", help="A benchmark in place of the plan's, NELL-One."),
    plan: Path = typer.Option(None, help="A TOML file in place of the built-in plan."),
    model: list[str] = typer.Option([], help="Only this model; repeatable."),
    shots: list[int] = typer.Option([], "--shots", "-k", help="Only this number of references; repeatable."),
    seeds: int = typer.Option(None, help="Number of seeds, instead of five."),
    readings: list[str] = typer.Option(
        [], help="For the study readings: only this one, a base and changes such as paper+transe; repeatable."
    ),
    steps: int = typer.Option(None, min=1, help="For the study readings: steps of every run, instead of its own."),
    processes: int = typer.Option(1, min=1, help="For the study readings: train in so many processes at once."),
    tiny: bool = typer.Option(False, "--tiny", help="A small version on built-in data, in half a minute."),
    todo: bool = typer.Option(False, "--todo", help="Only list unfinished jobs."),
    show_only: bool = typer.Option(False, "--show", help="Only show stored results."),
    results: Path = typer.Option(
        None, help="Folder of records; by default results (in a clone, the repository's), or runs/tiny with --tiny."
    ),
    work: Path = typer.Option(Path("runs/studies"), help="Folder of runs and vectors; interrupted runs continue."),
    out: Path = typer.Option(None, help="Also write the tables (Markdown) and charts (SVG) to this folder."),
    checkpoint: Path = typer.Option(None, help="For the study attack: weights of ultra or trix, such as ultra_4g.pth."),
    device: str = common.DEVICE,
    json: bool = typer.Option(False, "--json", help="Print the tables as JSON."),
) -> None:
    """Run a study of the paper and show it; without a name, list the studies.

    Measurements that have a record are not repeated: in a clone, the repository's records are shown. An interrupted
    study continues. To run everything again, give another folder with --results.

    Example: `fewlink study overall --tiny`
    """
    from fewlink.core.errors import FewlinkError, choose

    if name is None:
        _list_studies(json)
        return
    choose("study", name, dict.fromkeys(studies.NAMES))
    if tiny:
        common.reject_options(context, ("plan",), "cannot be used with --tiny")
        if bench:
            raise FewlinkError("--tiny uses a built-in benchmark: leave out BENCH")
    if todo and show_only:
        raise FewlinkError("--todo and --show cannot be combined: give one of them")
    for option, folder in (("--results", results), ("--work", work), ("--out", out)):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise FewlinkError(f"{option} {folder} is a file: give a folder")
    common.check_benchmarks(bench)
    common.check_files(plan, checkpoint)
    common.check_device(device)
    from fewlink.studies.plan import read_plan
    from fewlink.studies.workspace import StoredBenchmark, Workspace, benchmark_or_records

    chosen = studies.open_study(name)
    full = read_plan(plan or name)
    selected = (full.as_tiny() if tiny else full).with_only(model, shots, seeds)
    if readings or steps is not None:
        selected = selected.with_readings(readings, steps)
    results = results or Path("runs/tiny" if tiny else "results")
    benchmark = benchmark_or_records(bench or selected.benchmark, results)
    if bench:
        selected = selected.with_only([], [], None, benchmark.name)
    workspace = Workspace(
        benchmark,
        results,
        work / benchmark.name,
        common.resolve_device(device),
        checkpoint,
        processes,
        log=tell,
        on_epoch=common.epoch_reporter,
        on_step=lambda title: common.step_reporter(title, selected.seeds),
    )
    if todo:
        print("\n".join(chosen.pending(selected, workspace)) or "nothing to do: everything is finished")
        return
    if isinstance(benchmark, StoredBenchmark) and not show_only:
        show_only = True
        common.print_notes([f"showing the records in {results} without running anything: {benchmark.problem}"])
    elif not show_only and not chosen.pending(selected, workspace):
        show_only = True
        again = "to train and evaluate again, give another folder: --results mine"
        common.print_notes([f"nothing is run: these are the records stored in {results}; {again}"])
    if not show_only:
        try:
            chosen.run(selected, workspace)
        except KeyboardInterrupt:
            print("stopped; the same command continues", file=sys.stderr)
            raise typer.Exit(130) from None
    output = chosen.show(selected, workspace)
    if show_only and not any(table.rows for table in output.tables):
        common.print_notes([f"{results} has no records of this study: run it without --show"])
    if out is not None:
        output.write(out, name, selected)
    _print_study(output, selected, json)


def _list_studies(json: bool) -> None:
    from fewlink.studies.plan import read_plan

    plans = {name: read_plan(name) for name in studies.NAMES}
    if json:
        common.print_json([{"name": name, **plan.model_dump()} for name, plan in plans.items()])
        return
    rows = [[name, plan.title, plan.about] for name, plan in plans.items()]
    common.print_table(["study", "title", "about"], rows)


def _print_study(output: StudyOutput, plan: Plan, json: bool) -> None:
    if json:
        tables = [
            {"title": table.title, "columns": table.columns, "rows": table.rows, "note": table.note}
            for table in output.tables
        ]
        common.print_json({"title": plan.title, "expect": plan.expect, "tables": tables})
        return
    print(f"{plan.title}\nexpected: {plan.expect}\n")
    for table in output.tables:
        rows: list[list[Any]] = [[cell.replace("*", "") for cell in row] for row in table.rows]
        columns = [column.replace("`", "") for column in table.columns]
        common.print_table(columns, rows, title=table.title)
        if table.note:
            print(f"{table.note}\n")
