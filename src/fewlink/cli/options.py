"""Options that several commands share, each declared once, and checks that import nothing heavy.

A command takes a group of options as one parameter, such as `graph: AskedGraph`; `with_groups` gives the command line
the fields of the group, and the command an object of it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.models import ArgumentInfo

from fewlink.core.progress import set_quiet

if TYPE_CHECKING:
    from fewlink.core.engine import Engine
    from fewlink.graph.source import GraphSource
    from fewlink.linker import Linker
    from fewlink.linker.check import CheckedTriple
    from fewlink.linker.predictions import Answers, Predictions


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


QUIET = typer.Option(False, "--quiet", "-q", help="Print results and errors only: no notes and no progress.")
JSON = typer.Option(False, "--json", help="Print JSON.")
NO_NAMES = typer.Option(False, "--no-names", help="Show the names of entities, but do not use them as evidence.")
DEVICE = typer.Option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")
ENGINE = typer.Option(
    None,
    metavar="ENGINE",
    help="Workers that share long work: processes (one per core, the default), processes:N, or a Dask cluster at "
    "tcp://HOST:PORT. The result is the same.",
)
SEED = typer.Option(0, metavar="NUMBER", help="Seed of everything random.")
SEEDS = typer.Option([0], "--seed", metavar="NUMBER", help="Seed; repeatable.")
RECIPE = typer.Option(None, metavar="NAME|FILE", help="A recipe of `fewlink models`, or a TOML file like one.")
SET = typer.Option([], "--set", metavar="NAME=VALUE", help="Change a setting of `fewlink models MODEL`; repeatable.")
CHECKPOINT = typer.Option(
    None, metavar="FILE", help="Weights of ultra or trix: .pth as published by their authors, or .safetensors."
)
FOLDER = Path("fewlink-results")  # the default folder of records
TRIPLES = typer.Argument(
    ...,
    metavar="FILE",
    help="Triples: a table of text, JSON lines, RDF, SPARQL results or Parquet, plain or compressed.",
)
SOURCE = typer.Argument(
    ...,
    metavar="GRAPH|RUN",
    help="A graph: a file of triples, a compiled graph, a benchmark, or a name such as attack. Or a trained model: a "
    "run folder, a folder of save_pretrained, or hub:OWNER/NAME@REVISION.",
    autocompletion=complete_source,
)
BENCH = typer.Argument(
    ..., metavar="BENCH", help="A catalogue name, a benchmark folder or an archive.", autocompletion=complete_source
)


@dataclass
class TableOptions:
    """How a table of triples is read."""

    columns: str | None = typer.Option(
        None,
        metavar="WHICH",
        help="Columns of a table, such as head=2,relation=1,tail=3, or names of its header; relation==NAME for all "
        "rows.",
    )
    names: Path | None = typer.Option(None, metavar="FILE", help="An id, a tab and a readable name per line.")
    types: Path | None = typer.Option(None, metavar="FILE", help="An entity, a tab and a type per line.")

    def source(self, *files: str | Path, **more: Any) -> GraphSource:
        """These files and how to read them; raises for an invalid option or a missing file of names or types."""
        from fewlink.graph.source import GraphSource

        check_files(self.types, self.names)
        return GraphSource.of(files, columns=self.columns, types=self.types, names=self.names, **more)


@dataclass
class ReadingOptions(TableOptions):
    """How a file of triples is read."""

    literals: str = typer.Option(
        "drop", metavar="CHOICE", help="Relations whose tails are numbers, dates or yes/no values: drop or keep."
    )
    on_error: str = typer.Option("stop", metavar="CHOICE", help="On a bad line: stop, or skip and count it.")

    def source(self, *files: str | Path, **more: Any) -> GraphSource:
        """These files and how to read them."""
        return super().source(*files, literals=self.literals, on_error=self.on_error, **more)


@dataclass
class SomeGraph(ReadingOptions):
    """The graph."""

    graph: str = SOURCE


@dataclass
class AskedGraph(SomeGraph):
    """The graph or run that answers."""

    no_names: bool = NO_NAMES
    bench: str | None = typer.Option(None, metavar="BENCH", help="The run's benchmark, if it has moved since training.")
    device: str = DEVICE

    def source(self, *files: str | Path, **more: Any) -> GraphSource:
        """The graph or run and how to read it."""
        return super().source(*files, bench=self.bench, **more)

    def open(self) -> Linker:
        """The linker of the graph or run."""
        from fewlink.linker import load

        check_benchmarks(self.bench)

        return load(self.source(self.graph), read_names=not self.no_names, device=resolve_device(self.device))


@dataclass
class AskedRelation:
    """The relation. Its references, its name or a project says which one is meant."""

    reference: list[str] = typer.Option(
        [],
        "--reference",
        "--references",
        metavar="PAIR|FILE",
        help="A pair 'HEAD => TAIL' that the relation holds for, or a file with a head, a tab and a tail per line; "
        "repeatable. If a name contains =>, write a tab instead.",
    )
    relation: str | None = typer.Option(
        None,
        metavar="NAME",
        help="A relation of the graph: its known pairs are references, and left out of the answers.",
    )
    project: Path | None = typer.Option(
        None, metavar="FILE", help="A project file: use its pairs, and adjust percentages to its decisions."
    )
    project_name: str | None = typer.Option(None, metavar="NAME", help="The project; needed if the file has several.")
    candidates: str = typer.Option(
        "open",
        metavar="TYPE|FILE|WORD",
        help="Tails to rank: a type, a file, open (like the references' tails), full (--relation's range) or all.",
    )
    constraint: list[str] = typer.Option(
        [],
        metavar="KIND",
        help="functional, inverse-functional, symmetric, types, irreflexive (used unless a known pair is reflexive), "
        "auto (inferred from the known pairs) or none; repeatable.",
    )

    def pairs(self) -> list[tuple[str, str]]:
        """The given references; raises if nothing says which relation is meant."""
        from fewlink.core.errors import FewlinkError

        if self.project_name is not None and self.project is None:
            raise FewlinkError("--project-name needs --project FILE")
        if not self.reference and self.relation is None and self.project is None:
            raise FewlinkError("no references: give --reference 'HEAD => TAIL', --references FILE, or --relation NAME")
        return pairs_of(self.reference)

    def with_project(self, linker: Linker) -> tuple[Linker, str | None]:
        """The linker with the decisions of the project, and the relation of the graph that is asked about."""
        from fewlink.cli.terminal import print_notes
        from fewlink.core.errors import UnknownName
        from fewlink.linker.query import find_relation

        if self.project is None:
            return linker, self.relation
        linker = linker.with_project(self.project, self.project_name)
        assert linker.project is not None
        if self.relation is not None:
            return linker, self.relation
        try:
            name = find_relation(linker.benchmark, linker.project.name).name
        except UnknownName:
            return linker, None
        print_notes([f"the graph has the relation {name} of this project: its known pairs are references, too"])
        return linker, name

    def candidates_in(self, linker: Linker) -> str | list[str]:
        """A word or type as it is, or the names in a file; a type takes precedence over a file of the same name."""
        from fewlink.core.errors import FewlinkError
        from fewlink.linker.names import read_names
        from fewlink.linker.query import CANDIDATE_WORDS

        choice = self.candidates
        if choice in CANDIDATE_WORDS or linker.names.has_type(choice):
            return choice
        if os.path.isfile(choice):
            return read_names(Path(choice))
        try:
            linker.names.members(choice)
        except FewlinkError as error:
            words = ", ".join(CANDIDATE_WORDS)
            raise FewlinkError(f"--candidates {choice}: no such file, and not one of {words}; {error}") from None
        return choice


@dataclass
class OutputOptions:
    """Output. By default it is a table."""

    json: bool = JSON
    tsv: bool = typer.Option(False, "--tsv", help="Print tab-separated columns.")

    def check(self) -> None:
        from fewlink.core.errors import FewlinkError

        if self.json and self.tsv:
            raise FewlinkError("--json and --tsv exclude each other: choose one")

    def print(self, found: Predictions | Answers[CheckedTriple]) -> bool:
        """Print rows as JSON or tab-separated; return whether the user asked for one of them."""
        if self.json:
            print(found.to_json())
        elif self.tsv:
            print(found.to_tsv(), end="")
        return self.json or self.tsv


@dataclass
class Neo4jOptions:
    """The Neo4j server. Its user name and password are in NEO4J_USERNAME and NEO4J_PASSWORD."""

    uri: str = typer.Argument(..., metavar="URI", help="Address of the server: neo4j://HOST or bolt://HOST:7687.")
    node_id: str | None = typer.Option(
        None, "--id", metavar="PROPERTY", help="Property that identifies a node; by default the element id."
    )
    database: str | None = typer.Option(
        None, metavar="NAME", help="Database on the server; by default the user's home database."
    )


def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command for typer: each group of options becomes its fields, and `--quiet` may follow the command's name."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []  # listed below the command's own options
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        for option in inspect.signature(kind, eval_str=True).parameters.values():
            is_argument = isinstance(option.default, ArgumentInfo)
            heading = None if is_argument else (kind.__doc__ or "").partition(".")[0]
            own = copy.copy(option.default)
            own.rich_help_panel = heading
            listed = parameters if is_argument else shared
            listed.append(option.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=own))
    shared.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=QUIET, annotation=bool))

    @functools.wraps(command)
    def run(*, quiet: bool, **values: Any) -> Any:
        if quiet:
            set_quiet(True)
        for name, kind in groups.items():
            own = {field.name: values.pop(field.name) for field in dataclasses.fields(kind)}
            values[name] = kind(**own)
        return command(**values)

    parameters += shared
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def pairs_of(texts: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs in texts, each `HEAD => TAIL` or a file of pairs."""
    from fewlink.core.errors import FewlinkError
    from fewlink.linker.names import ARROW, parse_pair, read_pairs

    pairs: list[tuple[str, str]] = []
    for text in texts:
        if ARROW in text or "\t" in text:
            pairs.append(parse_pair(text))
        elif os.path.exists(text):
            pairs += read_pairs(Path(text))
        else:
            raise FewlinkError(f"'{text}' is neither a file of pairs nor a pair: write 'HEAD => TAIL'")
    return pairs


def resolve_device(device: str) -> str:
    """The device to use, where `auto` is the GPU if there is one; raises if the device is not available."""
    import torch

    from fewlink.core.machine import use_device

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return use_device(device)


def open_engine(engine: str | None, device: str) -> Engine:
    """The engine of --engine; by default one process for each core, and a single one for a GPU."""
    from fewlink.core.engine import Engine

    return Engine(engine or ("processes:1" if device.startswith("cuda") else "processes"))


def check_files(*paths: Path | None) -> None:
    """Raise if one of these is neither a file nor a folder; None is ignored."""
    from fewlink.core.errors import check_file
    from fewlink.core.files import place_of

    for path in paths:
        if path is not None and not place_of(path).is_dir():
            check_file(path)


def check_benchmarks(*benches: str | None) -> None:
    """Raise if one of these benchmarks does not exist; None is ignored."""
    from fewlink.tasks.catalogue import check_benchmark

    for bench in benches:
        if bench is not None:
            check_benchmark(bench)


def check_triples(*paths: Path) -> None:
    """Raise if a file of triples does not exist; for `attack`, say how to export the built-in graph."""
    from fewlink.core.errors import FewlinkError

    if Path("attack") in paths and not os.path.exists("attack"):
        remedy = "export it with fewlink data get attack --out FOLDER"
        raise FewlinkError(f"this command reads a file, and attack is a built-in graph: {remedy}")
    check_files(*paths)


def reject_options(context: typer.Context, names: Iterable[str], reason: str) -> None:
    """Raise if one of these options was given on the command line."""
    from fewlink.core.errors import FewlinkError

    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise FewlinkError(f"--{'set' if name == 'change' else name} {reason}")
