"""`fewlink report`: the stored records as one HTML page."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    folder: Path = typer.Argument(Path("results"), help="Folder with result records."),
    out: Path = typer.Option(Path("report.html"), help="The page to write; one that exists is replaced."),
) -> None:
    """Write all stored results as one HTML page: tables, charts, examples and the commands behind them.

    Example: `fewlink report results --out report.html`
    """
    from fewlink.report.page import write_report

    write_report(folder, out)
    print(f"{out} ({out.stat().st_size / 1e3:,.0f} kB)")
