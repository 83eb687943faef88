"""Helpers for commands: tables, JSON and notes on the terminal, options, devices, settings and progress lines.

Commands check their arguments with the `check_…` functions, which import nothing heavy, before they import torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

from fewlink import studies
from fewlink.core.errors import json_shown, shown
from fewlink.core.progress import tell

if TYPE_CHECKING:
    from rich.console import Console

    from fewlink.core.engine import Engine
    from fewlink.models.embeddings import EmbeddingSettings


def complete_source(incomplete: str) -> list[str]:
    """Shell completions for a graph, benchmark or run: names in the catalogue, and files."""
    from fewlink.tasks.catalogue import CATALOGUE

    names = [name for name in CATALOGUE if name.startswith(incomplete)]
    folder, start = os.path.split(incomplete)
    with contextlib.suppress(OSError):
        files = sorted(name for name in os.listdir(folder or ".") if start or not name.startswith("."))
        names += [os.path.join(folder, name) for name in files if name.startswith(start)]
    return names


def complete_model(incomplete: str) -> list[str]:
    """Shell completions for a model or scorer."""
    from fewlink.models.registry import model_names

    return [name for name in model_names() if name.startswith(incomplete)]


def complete_study(incomplete: str) -> list[str]:
    """Shell completions for a study."""
    return [name for name in studies.NAMES if name.startswith(incomplete)]


BENCH = typer.Argument(
    ...,
    metavar="BENCH",
    help="A catalogue name, a benchmark folder or an archive.",
    autocompletion=complete_source,
)
DEVICE = typer.Option("auto", help="auto, cpu, cuda or cuda:N.")
ENGINE = typer.Option(
    None,
    metavar="ENGINE",
    help="Workers that share long work: processes (one per core, the default), processes:N, or a Dask cluster at "
    "tcp://HOST:PORT. The result is the same.",
)
JSON = typer.Option(False, "--json", help="Print JSON.")
TYPES = typer.Option(None, help="File of types: an entity, a tab and a type per line.")
NAMES = typer.Option(None, help="File of names: an id, a tab and a readable name per line.")
COLUMNS = typer.Option(
    None,
    metavar="WHICH",
    help="Columns of a table, such as head=2,relation=1,tail=3, or names of its header; relation==NAME for all rows.",
)
LITERALS = typer.Option("drop", help="Relations whose tails are numbers, dates or yes and no: drop or keep.")
ON_ERROR = typer.Option("stop", help="On a bad line: stop, or skip and count it.")
NO_NAMES = typer.Option(False, "--no-names", help="Show the names of entities, but do not use them as evidence.")
MOVED_BENCH = typer.Option(None, help="The run's benchmark, if it has moved since training.")
RECIPE = typer.Option(None, help="Name or TOML file of a recipe; by default the model's own.")
FIGURE = re.compile(r"([+−-]?[\d,]*\.?\d+( ?± ?[\d,]*\.?\d+)?)?")
FOLDER = Path("fewlink-results")  # the default folder of records
RESULTS = typer.Option(FOLDER, help="Folder to store result records in.")
REPLACE = typer.Option(False, "--replace", help="Replace records of the same measurement.")
SET = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of the recipe; repeatable.")


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


def fits(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bool:
    """Whether a table fits on the terminal without wrapping a cell."""
    widths = [max(map(len, column)) for column in zip(columns, *(map(format_cell, row) for row in rows), strict=True)]
    return sum(widths) + 2 * len(widths) <= _console().width


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
    print(json_shown(json.dumps(value, indent=1, ensure_ascii=False)))


def print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        tell(f"note: {line}")


def resolve_device(device: str) -> str:
    """The device to use, where `auto` is the GPU if there is one; raises if the device is not available."""
    import torch

    from fewlink.core.distributed import use_device

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return use_device(device)


def open_engine(engine: str | None, device: str) -> Engine:
    """The engine of --engine; by default one process for each core, and a single one for a GPU."""
    from fewlink.core.engine import Engine

    return Engine(engine or ("processes:1" if device.startswith("cuda") else "processes"))


def reject_options(context: typer.Context, names: Sequence[str], reason: str) -> None:
    """Raise if one of these options was given on the command line."""
    from fewlink.core.errors import FewlinkError

    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise FewlinkError(f"--{'set' if name == 'change' else name} {reason}")


def check_model(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise for an unknown model; do nothing if other packages provide models."""
    from fewlink.core.errors import choose
    from fewlink.models.registry import has_plugins

    if has_plugins():
        return
    for name in names:
        choose(kind, name, dict.fromkeys(known))


def check_benchmarks(*benches: str | None) -> None:
    """Raise if one of these benchmarks does not exist; None is ignored."""
    from fewlink.tasks.catalogue import check_benchmark

    for bench in benches:
        if bench is not None:
            check_benchmark(bench)


def check_graph_or_run(source: str) -> None:
    """Raise if a graph or run does not exist; models on the hub are not checked."""
    from fewlink.tasks.catalogue import check_source

    if not source.startswith("hub:"):
        check_source(source)


def check_files(*paths: Path | None) -> None:
    """Raise if one of these is neither a file nor a folder; None is ignored."""
    from fewlink.core.errors import check_file
    from fewlink.core.files import place_of

    for path in paths:
        if path is not None and not place_of(path).is_dir():
            check_file(path)


def check_triples(*paths: Path) -> None:
    """Raise if a file of triples does not exist; for `attack`, explain how to export the built-in graph."""
    from fewlink.core.errors import FewlinkError

    if Path("attack") in paths and not os.path.exists("attack"):
        remedy = "export it with fewlink data get attack --out FOLDER"
        raise FewlinkError(f"this command reads a file, and attack is a built-in graph: {remedy}")
    check_files(*paths)


def check_device(device: str) -> None:
    """Raise for an invalid device name."""
    from fewlink.core.errors import FewlinkError
    from fewlink.core.settings import DEVICES, is_device

    if device != "auto" and not is_device(device):
        raise FewlinkError(f"unknown device '{device}': choose auto, {DEVICES}")


def check_changes(changes: Sequence[str]) -> None:
    """Raise for `--set seed=…` and `--set device=…`, which have their own options."""
    from fewlink.core.errors import FewlinkError
    from fewlink.core.recipes import PER_RUN_SETTINGS

    for change in changes:
        name = change.partition("=")[0]
        if name in PER_RUN_SETTINGS:
            raise FewlinkError(f"--set {change} is not possible: use --{name}")


def embedding_settings(
    model: str, recipe: str | None, changes: Sequence[str], seed: int, device: str
) -> EmbeddingSettings:
    """The settings of a recipe (by default the model's own) with changes, a seed and a device."""
    from fewlink.core.errors import FewlinkError, choose
    from fewlink.core.recipes import recipe as load
    from fewlink.models.embeddings import INTERACTIONS, EmbeddingSettings

    choose("embedding model", model, INTERACTIONS)
    check_changes(changes)
    settings = load(recipe or model, EmbeddingSettings).settings
    if settings.model != model:
        raise FewlinkError(f"recipe '{recipe}' is for {settings.model}, not for {model}")
    return settings.replace(seed=seed, device=resolve_device(device)).adjusted(changes)


def epoch_reporter(title: str) -> Callable[[dict[str, Any]], None]:
    """A reporter for `on_epoch` that prints a line per epoch with speed, held-out MRR and time left."""
    start = time.monotonic()
    epochs_before: int | None = None  # trained before an interruption

    def report(trace: dict[str, Any]) -> None:
        nonlocal epochs_before
        if epochs_before is None:
            epochs_before = trace["epoch"] - 1
        per_epoch = (time.monotonic() - start) / (trace["epoch"] - epochs_before)
        left = per_epoch * (trace["epochs"] - trace["epoch"])
        held_out = f"  held-out MRR {trace['held_out_mrr']:.3f}" if trace["held_out_mrr"] is not None else ""
        tell(
            f"{title}  epoch {trace['epoch']}/{trace['epochs']}  loss {trace['loss']:.4f}{held_out}"
            f"  {trace['triples_per_second']:,.0f} triples/s  {left:.0f} s left"
        )

    return report


def step_reporter(title: str = "", runs: int = 1) -> Callable[[dict[str, Any]], None]:
    """A reporter for `on_event` that prints a line per evaluation with speed, dev MRR and time left.

    Each line starts with the title, by default the name of the model.
    """
    started: dict[int, tuple[float, int]] = {}  # by seed: time and step
    continued: dict[int, int] = {}  # by seed: step

    def report(event: dict[str, Any]) -> None:
        seed = event["seed"]
        name = title or event["model"]
        if runs > 1:
            name += f" seed {seed}"
        prefix = f"{name}  step {event['step']}/{event['steps']}"
        if event["event"] == "continued":
            continued[seed] = event["step"]
            tell(f"{prefix}  continued")
            return
        begin = time.monotonic() - sum(event["seconds"].values())
        start, first = started.setdefault(seed, (begin, continued.get(seed, 0)))
        rate = event["steps_per_second"]
        left = (time.monotonic() - start) / (event["step"] - first) * (event["steps"] - event["step"])
        tell(
            f"{prefix}  loss {event['loss']:.4f}  dev MRR {event['dev']['mrr']:.3f}"
            f" (best {event['best_mrr']:.3f} at {event['best_step']})"
            f"  {rate:{',.0f' if rate >= 10 else '.1f'}} steps/s  {left:.0f} s left"
        )

    return report


def how_to_read(columns: str | None, on_error: str, literals: str) -> dict[str, Any]:
    """The options for reading a file of triples, checked, as arguments of `load`."""
    from fewlink.graph.source import GraphSource

    GraphSource.of("", columns=columns, on_error=on_error, literals=literals)
    return {"columns": columns, "on_error": on_error, "literals": literals}
