"""Tables and remarks on a terminal, plain where it is not one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print a table; numbers are set to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    made = Table(
        title=Text(title) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) or row[index] == "" for row in rows)
        made.add_column(Text(column), justify="right" if rows and numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell(value)) for value in row))
    console = Console()
    if not console.is_terminal:  # nothing is cut off in a file or a pipe
        console = Console(width=200)
    console.print(made)


def cell(value: Any) -> str:
    if isinstance(value, float):
        size = abs(value)
        return f"{value:.3f}" if size < 10 else f"{value:.1f}" if size < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))


def remarks(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"note: {line}", file=sys.stderr)
