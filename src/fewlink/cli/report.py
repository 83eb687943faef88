"""`fewlink report`: the stored results as one HTML page."""

from __future__ import annotations

from pathlib import Path

import typer

from fewlink.cli.results import FOLDER_HELP, results_folder


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
