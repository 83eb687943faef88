"""`fewlink results` and `fewlink report`: the stored records as a table, and as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.base.metrics import labelled
from fewlink.cli.common import FOLDER

if TYPE_CHECKING:
    from fewlink.evaluation.records import Record

KEYS = ("benchmark", "model", "split", "shots", "candidates", "references")
FOLDER_HELP = f"Folder with records; {FOLDER} by default or, if there is none, results (in a clone, the repository's)."
SHOWN = labelled("mrr", "hits@10", "hits@5", "hits@1", "amri")  # MR: --json


def results(
    folder: Path = typer.Argument(None, help=FOLDER_HELP),
    benchmark: str = typer.Option(None, help="Only this benchmark."),
    model: str = typer.Option(None, help="Only this model or scorer."),
    split: str = typer.Option(None, help="Only this split."),
    shots: int = typer.Option(None, "--shots", "-k", help="Only this number of references."),
    candidates: str = typer.Option(None, help="Only this candidates protocol."),
    references: str = typer.Option(None, help="Only these references: first, draw-1, …"),
    each: bool = typer.Option(False, help="One row per record, instead of mean ± deviation over seeds and draws."),
    json: bool = typer.Option(False, "--json", help="Print the matching records as JSON."),
) -> None:
    """Show stored results: mean ± deviation over seeds and draws, filtered.

    Example: `fewlink results --split test --candidates full`
    """
    from fewlink.base.errors import FewlinkError
    from fewlink.cli import common
    from fewlink.evaluation.records import read_records

    folder = results_folder(folder)
    if not folder.is_dir():
        raise FewlinkError(f"{folder} does not exist: fewlink evaluate makes records, or name another folder")
    filters = dict(zip(KEYS, (benchmark, model, split, shots, candidates, references), strict=True))
    records = [r for r in read_records(folder) if all(v is None or getattr(r, k) == v for k, v in filters.items())]
    if json:
        common.print_json([r.model_dump() for r in records])
        return
    if not records:
        raise FewlinkError(f"no record in {folder} matches")
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for number, record in enumerate(records):
        first_or_draw = record.references.split("-")[0]
        cell = (*(getattr(record, k) for k in KEYS[:-1]), first_or_draw, record.data_sha256, record.choices())
        groups.setdefault((*cell, number if each else 0), []).append(record)
    result_table([result_row(group) for group in groups.values()])


def results_folder(folder: Path | None) -> Path:
    """The folder that is given, or the default as `FOLDER_HELP` says."""
    repository = Path("results")
    return folder or (repository if repository.is_dir() and not FOLDER.is_dir() else FOLDER)


def result_row(records: list[Record]) -> list[Any]:
    """One row for records that only differ in seed or draw."""
    first = records[0]
    cell: list[Any] = [getattr(first, key) for key in KEYS]
    if len({r.references for r in records}) > 1:
        cell[-1] = f"{len(records)} draws"
    figures = [_spread([r.metrics["micro"][metric] for r in records]) for metric in SHOWN.values()]
    return [*cell, first.queries, *figures, _spread([r.metrics["macro"]["mrr"] for r in records])]


def _spread(values: list[float]) -> float | str:
    import statistics

    from fewlink.cli import common

    mean = statistics.fmean(values)
    if len(values) == 1:
        return mean
    return "±".join(common.format_cell(x).removeprefix("0") for x in (mean, statistics.stdev(values)))


def result_table(rows: list[list[Any]]) -> None:
    """Print rows of `result_row`; values that all rows share are in the title instead of a column."""
    from fewlink.cli import common

    columns = ["benchmark", "model", "split", "K", "candidates", "references", "queries", *SHOWN, "macro MRR"]
    same = [i for i in range(len(KEYS) + 1) if columns[i] != "model" and len({row[i] for row in rows}) == 1]
    title = ", ".join(f"{columns[i]} {common.format_cell(rows[0][i])}" for i in same)
    shown = [i for i in range(len(columns)) if i not in same]
    common.print_table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows], title=title)


def report(
    folder: Path = typer.Argument(None, help=FOLDER_HELP),
    out: Path = typer.Option(Path("report.html"), help="The page to write; an existing one is replaced."),
) -> None:
    """Write all stored results as one HTML page: tables, charts, examples and the commands behind them.

    Example: `fewlink report results --out report.html`
    """
    from fewlink.report.page import write_report
    from fewlink.studies import published_figures

    write_report(results_folder(folder), out, published_figures())
    print(f"{out} ({out.stat().st_size / 1e3:,.0f} kB)")
