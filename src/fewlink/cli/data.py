"""`fewlink data …`: list, fetch, describe, check, compile, carve and extend graphs and benchmarks; Neo4j."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import options, terminal
from fewlink.cli.options import Neo4jOptions, ReadingOptions
from fewlink.core.words import plural

if TYPE_CHECKING:
    from fewlink.graph import Graph
    from fewlink.tasks import Benchmark

app = typer.Typer(
    help="Graphs and benchmarks: list, get, describe, check, compile, carve, append.", no_args_is_help=True
)
FILES = typer.Argument(..., metavar="FILE", help="Triples: a table of text, JSON lines, RDF or Parquet.")
SMALLEST = 50  # triples of a relation that may become a task, and at most
LARGEST = 500  # as in NELL-One
MAX_GROUPS = 10  # of similar names


@dataclass
class CheckedReading(ReadingOptions):
    """How a file of triples is read. Bad lines are counted."""

    on_error: str = typer.Option("skip", metavar="CHOICE", help="On a bad line: stop, or skip and count it.")


@app.command("list")
def list_(json: bool = options.JSON) -> None:
    """List the benchmarks in the catalogue.

    Example: `fewlink data list`
    """
    from fewlink.core.files import exists
    from fewlink.tasks.catalogue import CATALOGUE, data_home

    rows = [
        {
            "name": name,
            "here": entry.address is None or exists(data_home() / name),
            "about": entry.about,
            "licence": entry.licence,
            "from": entry.address or "built in",
        }
        for name, entry in CATALOGUE.items()
    ]
    if json:
        terminal.print_json(rows)
        return
    columns = ["name", "here", "about", "licence"]
    terminal.print_table(columns, [[row[column] for column in columns] for row in rows])
    print(f"fetched benchmarks are stored in {data_home()} (set FEWLINK_DATA to change this)")


@app.command()
def get(
    name: str = typer.Argument(
        ..., metavar="NAME", help="A name from `fewlink data list`.", autocompletion=options.complete_source
    ),
    source: Path = typer.Option(
        None, "--from", metavar="PATH", help="A folder or archive to read instead of downloading."
    ),
    out: Path = typer.Option(
        None, metavar="FOLDER", help="Folder for the files of attack; by default, next to the fetched benchmarks."
    ),
) -> None:
    """Fetch a benchmark, check it, compile it and store it; or write the built-in graph attack as files.

    Example: `fewlink data get nell-one --from ~/downloads/nell.tar.gz`

    Example: `fewlink data get attack --out attack`
    """
    from fewlink.core.errors import FewlinkError
    from fewlink.tasks.catalogue import data_home, fetch_benchmark, write_attack

    if name == "attack":
        if source is not None:
            raise FewlinkError("attack is built in: leave out --from")
        folder = out or data_home() / name
        benchmark = write_attack(folder)
        print(f"{folder / 'attack.tsv'} is the graph, with its names, types and dates beside it")
        print(f"{folder / benchmark.name} is a benchmark carved out of it")
        _print_info(benchmark, json=False)
        return
    if out is not None:
        raise FewlinkError("--out is only for attack: leave it out, and fewlink finds the benchmark by its name")
    place, benchmark, remarks = fetch_benchmark(name, source)
    terminal.print_notes(remarks)
    print(f"{name} is in {place}")
    _print_info(benchmark, json=False)


@app.command("compile")
def compile_(
    reading: ReadingOptions,
    files: list[Path] = typer.Argument(
        ...,
        metavar="FILE|LAYOUT",
        help="Triples: a table of text, JSON lines, RDF or Parquet; or a folder or archive in the NELL-One layout.",
    ),
    out: Path = typer.Option(..., metavar="FOLDER", help="New folder for the graph or benchmark."),
    memory: str = typer.Option(
        "4GB", metavar="SIZE", help="Memory to use; larger graphs are compiled on disk, beside the folder."
    ),
) -> None:
    """Compile triples, or a benchmark in the NELL-One layout, into a folder that opens instantly at any size.

    If compiling is interrupted, the same command continues it.

    Example: `fewlink data compile wikidata.nt.bz2 --names names.tsv --out wikidata --memory 8GB`

    Example: `fewlink data compile wiki --out wiki-one`
    """
    from fewlink.core.machine import size_in_bytes
    from fewlink.graph import CompileReport
    from fewlink.graph.compile import compile_to_folder
    from fewlink.tasks.catalogue import is_benchmark

    options.check_files(*files)
    if len(files) == 1 and is_benchmark(files[0]):
        from fewlink.tasks.nell_layout import read_layout

        benchmark, remarks = read_layout(files[0], out.name)
        _save(benchmark, out, remarks)
        return
    options.check_triples(*files)
    report = CompileReport()
    limit = size_in_bytes(memory, "--memory")
    with _new(out):
        graph = compile_to_folder(reading.source(*files), out, memory=limit, report=report)
    terminal.print_notes(report.remarks())
    terminal.print_table(["what", "count"], list(_counts(graph).items()), title=out.name)
    print(f"{out} is a graph: fewlink ask {out} --reference … --head …")


def _counts(graph: Graph) -> dict[str, int]:
    return {"entities": len(graph.entities), "relations": len(graph.relations), "triples": graph.triple_count}


@contextlib.contextmanager
def _new(folder: Path) -> Iterator[None]:
    """Lock a folder to write; raise if it exists already."""
    from fewlink.core.errors import InputError
    from fewlink.core.files import exists, locked
    from fewlink.graph.compile import forget_work

    with locked(folder):
        if exists(folder):
            forget_work(folder)
            raise InputError(folder, "exists already: remove it, or choose another folder")
        yield


def _save(benchmark: Benchmark, out: Path, remarks: Iterable[str]) -> None:
    """Write a benchmark to a new folder, and describe it."""
    with _new(out):
        benchmark.save(out)
    terminal.print_notes(remarks)
    print(f"{benchmark.name} is in {out}")
    _print_info(benchmark, json=False)


@app.command()
def info(
    bench: str = options.BENCH,
    json: bool = options.JSON,
) -> None:
    """Describe a benchmark: counts, and every task with its pairs and candidates.

    Example: `fewlink data info umls`
    """
    from fewlink.tasks import open_benchmark

    _print_info(open_benchmark(bench), json)


@app.command()
def check(
    reading: CheckedReading,
    file: Path = options.TRIPLES,
    json: bool = options.JSON,
) -> None:
    """Check your graph: how its file is read, counts, relations by size, possible tasks and likely mistakes.

    Files of types and names are checked too.

    Example: `fewlink data check my-graph.csv --columns head=source,relation=type,tail=target`
    """
    options.check_triples(file)
    from fewlink.graph.check import check_graph

    report = check_graph(reading.source(file), smallest=SMALLEST, largest=LARGEST)
    if json:
        terminal.print_json(report)
        return
    _print_preview(report)
    terminal.print_table(["what", "count"], list(report["counts"].items()), title="Counts")
    terminal.print_table(["degree", "entities"], [d.values() for d in report["degrees"]], title="Degrees")
    largest = report["largest_relations"]
    terminal.print_table(list(largest[0]), [relation.values() for relation in largest], title="Largest relations")
    if report["similar_names"]:
        _print_similar(report["similar_names"])
    tasks = report["possible_tasks"]
    print(
        f"{plural(len(tasks), 'relation')} of {SMALLEST} to {LARGEST} triples could be tasks of fewlink data carve"
        + (f": {', '.join(tasks[:8])}{' …' if len(tasks) > 8 else ''}" if tasks else "")
    )
    print(f"\n{'Possible problems' if report['problems'] else 'No problems found.'}")
    for problem in report["problems"]:
        print(f"- {problem}")


def _print_preview(report: Mapping[str, Any]) -> None:
    """How a file was read, and its first triples."""
    columns = ", ".join(f"{role}: {column}" for role, column in report["columns"].items())
    rows = [
        ("format", report["format"]),
        ("encoding", report["encoding"]),
        ("separator", report["separator"]),
        ("header" if report["header"] else "names", ", ".join(filter(None, report["names"]))),
        ("columns", columns),
        ("not read", ", ".join(report["ignored"])),
        *(("note", note) for note in report["notes"]),
    ]
    print(report["file"])
    terminal.print_table(["how", "it is read"], [row for row in rows if row[1]])
    terminal.print_table(["head", "relation", "tail"], report["first_triples"], title="First triples")


def _print_similar(groups: Sequence[Mapping[str, Any]]) -> None:
    """Groups of names that differ little, each name with its number of triples."""
    title = f"Names that differ only in case, accents or spaces, with their triples ({len(groups):,} groups)"
    rows = [
        [group["what"], ", ".join(f"{name!r} {count:,}" for name, count in group["names"].items())]
        for group in groups[:MAX_GROUPS]
    ]
    terminal.print_table(["what", "names"], rows, title=title)


@app.command()
def carve(
    reading: ReadingOptions,
    files: list[Path] = FILES,
    out: Path = typer.Option(..., metavar="FOLDER", help="New folder for the benchmark, which has its name."),
    smallest: int = typer.Option(SMALLEST, metavar="NUMBER", help="Fewest triples of a task relation."),
    largest: int = typer.Option(LARGEST, metavar="NUMBER", help="Most triples of a task relation."),
    seed: int = options.SEED,
) -> None:
    """Turn any graph into a few-shot benchmark: relations of medium size become tasks.

    Example: `fewlink data carve my-graph.tsv --out my-benchmark`
    """
    from fewlink.graph import CompileReport, compile_graph
    from fewlink.tasks import CarveSettings
    from fewlink.tasks import carve as carve_graph

    options.check_triples(*files)
    report = CompileReport()
    graph = compile_graph(reading.source(*files), report=report)
    settings = CarveSettings(smallest, largest, seed=seed)
    benchmark, left_out = carve_graph(graph, out.resolve().name, settings)
    _save(benchmark, out, [*report.remarks(), *left_out.remarks()])


@app.command()
def append(
    reading: ReadingOptions,
    where: str = typer.Argument(..., metavar="RUN|BENCH", help="A run folder or the folder of a compiled benchmark."),
    files: list[Path] = FILES,
    json: bool = options.JSON,
) -> None:
    """Add triples to a graph without training: ids stay the same, and new entities and relations get the next ids.

    From then on, a run predicts with the larger graph; its figures remain those of the graph it was measured on. A
    benchmark gets a new fingerprint; runs trained on it still open.

    Example: `fewlink data append runs/mine new.tsv`
    """
    import dataclasses

    options.check_benchmarks(where)
    options.check_files(*files)
    from fewlink.fitting.append import append as append_to
    from fewlink.graph import CompileReport

    report = CompileReport()
    appended = append_to(where, reading.source(*files), report=report)
    growth = appended.growth
    graph = appended.benchmark.graph
    terminal.print_notes([*report.remarks(), *growth.remarks()])
    if json:
        facts = {"place": str(appended.place), "sha256": appended.benchmark.fingerprint}
        terminal.print_json({**facts, **dataclasses.asdict(growth)})
        return
    total = _counts(graph)
    added = dataclasses.asdict(growth)
    rows = [[what, added[what], total.get(what, "")] for what in (*total, "pairs", "duplicates")]
    print(appended.place)
    terminal.print_table(["what", "added", "in all"], rows)


@app.command("from-neo4j")
def from_neo4j(
    server: Neo4jOptions,
    out: Path = typer.Option(..., metavar="FOLDER", help="New folder for the graph."),
    query: str = typer.Option(
        None,
        metavar="CYPHER",
        help="Query that returns head, relation and tail; by default all relationships are read.",
    ),
    name: str = typer.Option("name", metavar="PROPERTY", help="Property of a node's readable name."),
) -> None:
    """Read a graph from Neo4j into a folder, with readable names, and with labels as types.

    Example: `fewlink data from-neo4j neo4j://localhost --out my-graph`, then `fewlink ask my-graph …`

    Example: `fewlink data from-neo4j bolt://localhost:7687 --id uuid --query 'MATCH (h:Drug)-[r]->(t) RETURN h, r, t'
    --out drugs`
    """
    from fewlink.bridges.neo4j_graph import connected, read_graph

    with _new(out), connected(server.uri) as driver:
        graph = read_graph(driver, query, id_=server.node_id, name=name, database=server.database)
        graph.save(out)
    print(f"{out} is a graph of {graph.triple_count:,} triples")


@app.command("to-neo4j")
def to_neo4j(
    server: Neo4jOptions,
    links: Path = typer.Argument(
        ..., metavar="FILE", help="Accepted triples, such as the .nt of fewlink project export."
    ),
) -> None:
    """Write accepted triples to Neo4j as relationships between existing nodes. Existing relationships stay as they are.

    New relationships have the property source: "fewlink".

    Example: `fewlink data to-neo4j neo4j://localhost accepted.nt`
    """
    from fewlink.bridges.neo4j_graph import connected, write_links
    from fewlink.graph.compile import read_names_of

    triples = read_names_of(links)
    with connected(server.uri) as driver:
        written = write_links(driver, triples, id_=server.node_id, database=server.database)
    terminal.print_notes(written.remarks())
    print(f"{written.created:,} relationships written, {written.present:,} existed already")


def _print_info(benchmark: Benchmark, json: bool) -> None:
    facts = describe(benchmark)
    if json:
        terminal.print_json(facts)
        return
    terminal.print_table(["what", "count"], list(facts["counts"].items()), title=benchmark.name)
    tasks = [task.values() for task in facts["tasks"]]
    terminal.print_table(["split", "relation", "pairs", "candidates"], tasks, title="Tasks")


def describe(benchmark: Benchmark) -> dict[str, Any]:
    """The counts of a benchmark, and a row for each task."""
    graph = benchmark.graph
    tasks = [
        {"split": split, "relation": t.name, "pairs": len(t.pairs), "candidates": len(t.range)}
        for split, members in benchmark.tasks.items()
        for t in members
    ]
    counts = {
        "entities": len(graph.entities),
        "background triples": graph.triple_count,
        "background relations": len(graph.relations),
        "entity types": len(graph.types.names) if graph.types else 0,
        **{f"{split} tasks": len(members) for split, members in benchmark.tasks.items()},
        **{f"{split} pairs": sum(len(t.pairs) for t in members) for split, members in benchmark.tasks.items()},
    }
    return {"name": benchmark.name, "sha256": benchmark.fingerprint, "counts": counts, "tasks": tasks}
