"""What commands print: tables, JSON and notes, safe for the terminal, and lines of progress in training."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from fewlink.core.errors import json_shown, shown
from fewlink.core.progress import duration, tell

if TYPE_CHECKING:
    from rich.console import Console


FIGURE = re.compile(r"([+−-]?[\d,]*\.?\d+( ?± ?[\d,]*\.?\d+)?)?")


class EscapedStream:
    """A standard stream that escapes control characters as `shown` does, except line ends and tabs.

    rich writes its colours to the stream itself, `rich_proxied_file`; its text is escaped before.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click tests whether a stream accepts bytes
            raise TypeError("write text, not bytes")
        self.rich_proxied_file.write(shown(text, lines=True))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape everything that a command prints, so that names from files cannot control the terminal."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):  # print "?" for characters that the terminal cannot show
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = (cast("TextIO", EscapedStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_table(columns: Sequence[str], rows: Iterable[Iterable[Any]], title: str | None = None) -> None:
    """Print a table; numbers are aligned right and never wrapped, and long names wrap on a narrow terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(
        title=Text(shown(title)) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
        collapse_padding=True,
    )
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(_is_figure(row[index]) for row in cells)
        table.add_column(Text(shown(column)), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in cells:
        table.add_row(*(Text(format_cell(value)) for value in row))
    _console().print(table)


def print_paragraphs(paragraphs: Iterable[Sequence[str]]) -> None:
    """Print paragraphs with a blank line between them, indented after the first line; a terminal wraps at words."""
    from rich.text import Text

    console = _console()
    for place, lines in enumerate(paragraphs):
        print("\n" * (place > 0), end="")
        for number, line in enumerate(map(shown, lines)):
            indent = "  " * (number > 0)
            room = console.width - len(indent) if console.is_terminal else len(line)
            for text in Text(line).wrap(console, max(1, room)):
                print(indent + text.plain.rstrip())


def _console() -> Console:
    """The terminal; for other output, plain text of 200 columns."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=200)


def _is_figure(cell: Any) -> bool:
    """Whether a cell is a number, a number with a deviation, or empty."""
    return isinstance(cell, int | float) or FIGURE.fullmatch(str(cell)) is not None


def format_cell(value: Any) -> str:
    """A value as the text of a table cell."""
    if isinstance(value, float):
        if abs(value) < 10:
            return f"{value:.3f}"
        return f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return shown(value)


def print_json(value: Any) -> None:
    print(json_shown(json.dumps(value, indent=1, ensure_ascii=False, default=str)))


def print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        tell(f"note: {line}")


def epoch_reporter(title: str) -> Callable[[dict[str, Any]], None]:
    """A reporter for `on_epoch` that prints a line per epoch with speed and time left."""

    def report(trace: dict[str, Any]) -> None:
        left = sum(trace["seconds"].values()) * (trace["epochs"] - trace["epoch"])
        tell(
            f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}"
            f"  {trace['triples_per_second']:,.0f} triples/s  {duration(left)} left"
        )

    return report


def report_step(event: dict[str, Any]) -> None:
    """Print a line about an evaluation of a training, for `on_event`: speed, dev MRR and time left."""
    prefix = f"{event['model']} seed {event['seed']}  step {event['step']}/{event['steps']}"
    if event["event"] == "continued":
        tell(f"{prefix}  continued")
        return
    rate = event["steps_per_second"]
    left = (event["steps"] - event["step"]) / rate
    tell(
        f"{prefix}  loss {event['loss']:.4f}  dev MRR {event['dev']['mrr']:.3f}"
        f" (best {event['best_mrr']:.3f} at {event['best_step']})"
        f"  {rate:{',.0f' if rate >= 10 else '.1f'}} steps/s  {duration(left)} left"
    )
