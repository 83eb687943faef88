"""`fewlink data …`: list, fetch, compile, describe, check, carve, append to and generate benchmarks and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import common
from fewlink.core.words import plural

if TYPE_CHECKING:
    from fewlink.tasks import Benchmark

app = typer.Typer(
    help="Benchmarks and graphs: list, get, describe, check, carve, append, generate.", no_args_is_help=True
)

TRIPLES = typer.Argument(
    ...,
    metavar="FILE",
    help="Triples: a table of text, JSON lines, RDF, SPARQL results or Parquet, plain or compressed.",
)
SMALLEST = typer.Option(50, help="Fewest triples of a task relation.")
MAX_GROUPS = 10  # of similar names
LARGEST = typer.Option(500, help="Most triples of a task relation.")


@app.command("list")
def list_(json: bool = common.JSON) -> None:
    """List the benchmarks in the catalogue.

    Example: `fewlink data list`
    """
    from fewlink.core.files import exists
    from fewlink.tasks.catalogue import CATALOGUE, data_home

    rows = []
    for name, entry in CATALOGUE.items():
        here = entry.address is None or exists(data_home() / name)
        rows.append(
            {
                "name": name,
                "here": here,
                "about": entry.about,
                "licence": entry.licence,
                "from": entry.address or "built in",
            }
        )
    if json:
        common.print_json(rows)
    else:
        common.print_table(
            ["name", "here", "about", "licence"],
            [[r["name"], "yes" if r["here"] else "no", r["about"], r["licence"]] for r in rows],
        )
        print(f"fetched benchmarks are stored in {data_home()} (set FEWLINK_DATA to change this)")


@app.command()
def get(
    name: str = typer.Argument(..., help="A name from `fewlink data list`.", autocompletion=common.complete_source),
    source: Path = typer.Option(None, "--from", help="A folder or archive to read instead of downloading."),
    out: Path = typer.Option(None, help="Folder for the files of attack; by default, next to the fetched benchmarks."),
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
        others = "attack.names.tsv, attack.types.tsv, attack.dates.tsv and MITRE's LICENSE.txt"
        print(f"{folder / 'attack.tsv'} is the graph, with {others}")
        print(f"{folder / benchmark.name} is the benchmark {benchmark.name}, carved out of it")
        _print_info(benchmark, json=False)
        return
    if out is not None:
        raise FewlinkError("--out is only for attack: leave it out, and fewlink finds the benchmark by its name")
    place, benchmark, remarks = fetch_benchmark(name, source)
    common.print_notes(remarks)
    print(f"{name} is in {place}")
    _print_info(benchmark, json=False)


@app.command("compile")
def compile_(
    files: list[Path] = typer.Argument(
        ...,
        metavar="FILE|LAYOUT",
        help="Triples: a table of text, JSON lines, RDF or Parquet; or a folder or archive in the NELL-One layout.",
    ),
    out: Path = typer.Option(..., help="New folder for the graph or benchmark."),
    memory: str = typer.Option("4GB", help="Memory to use; larger graphs are compiled on disk, beside the folder."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    on_error: str = common.ON_ERROR,
) -> None:
    """Compile triples, or a benchmark in the NELL-One layout, into a folder that opens instantly at any size.

    If compiling is interrupted, the same command continues it.

    Example: `fewlink data compile wikidata.nt.bz2 --names names.tsv --out wikidata --memory 8GB`

    Example: `fewlink data compile wiki --out wiki-one`
    """
    from fewlink.core.errors import InputError
    from fewlink.core.files import exists, locked
    from fewlink.tasks.catalogue import is_benchmark

    common.check_files(*files)

    def check_new() -> None:
        if exists(out):
            raise InputError(out, "exists already: choose another folder")

    check_new()
    if len(files) == 1 and (files[0].is_dir() or is_benchmark(files[0])):
        from fewlink.tasks.nell_layout import read_layout

        benchmark, remarks = read_layout(files[0], out.name)
        with locked(out):
            check_new()  # another process may have written it meanwhile
            benchmark.save(out)
        common.print_notes(remarks)
        print(f"{out} is a benchmark")
        _print_info(benchmark, json=False)
        return
    common.check_triples(*files)
    from fewlink.core.memory import size_in_bytes
    from fewlink.graph import CompileReport
    from fewlink.graph.out_of_core import compile_to_folder
    from fewlink.graph.source import GraphSource

    report = CompileReport()
    source = GraphSource.of(files, columns=columns, types=types, names=names, literals=literals, on_error=on_error)
    limit = size_in_bytes(memory, "--memory")
    with locked(out):
        check_new()
        graph = compile_to_folder(source, out, memory=limit, report=report)
    common.print_notes(report.remarks())
    counts = {"entities": len(graph.entities), "relations": len(graph.relations), "triples": graph.triple_count}
    common.print_table(["what", "count"], list(counts.items()), title=out.name)
    print(f"{out} is a graph: fewlink ask {out} --reference … --head …")


@app.command()
def info(
    bench: str = common.BENCH,
    json: bool = common.JSON,
) -> None:
    """Describe a benchmark: counts, and every task with its pairs and candidates.

    Example: `fewlink data info umls`
    """
    from fewlink.tasks import open_benchmark

    _print_info(open_benchmark(bench), json)


@app.command()
def check(
    path: Path = TRIPLES,
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    smallest: int = SMALLEST,
    largest: int = LARGEST,
    on_error: str = typer.Option("skip", help="On a bad line: stop, or skip and count it."),
    json: bool = common.JSON,
) -> None:
    """Check your graph: how its file is read, counts, relations by size, possible tasks and likely mistakes.

    Files of types and names are checked too.

    Example: `fewlink data check my-graph.csv --columns head=source,relation=type,tail=target`
    """
    from fewlink.graph.check import check_graph
    from fewlink.graph.source import GraphSource

    common.check_triples(path)
    source = GraphSource.of(path, columns=columns, types=types, names=names, literals=literals, on_error=on_error)
    report = check_graph(source, smallest=smallest, largest=largest)
    if json:
        common.print_json(report)
        return
    _print_preview(report)
    common.print_table(["what", "count"], list(report["counts"].items()), title="Counts")
    common.print_table(["degree", "entities"], [d.values() for d in report["degrees"]], title="Degrees")
    largest_relations = report["largest_relations"]
    rows = [relation.values() for relation in largest_relations]
    common.print_table(list(largest_relations[0]), rows, title="Largest relations")
    if report["similar_names"]:
        _print_similar(report["similar_names"])
    tasks = report["possible_tasks"]
    print(
        f"{plural(len(tasks), 'relation')} of {smallest} to {largest} triples could be tasks of fewlink data carve"
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
    common.print_table(["how", "it is read"], [row for row in rows if row[1]])
    common.print_table(["head", "relation", "tail"], report["first_triples"], title="First triples")


def _print_similar(groups: Sequence[Mapping[str, Any]]) -> None:
    """Groups of names that differ little, each name with its number of triples."""
    title = "Names that differ only in case, accents or spaces, with their triples"
    if len(groups) > MAX_GROUPS:
        title += f": {MAX_GROUPS} of {len(groups):,} groups"
    rows = [
        [group["what"], ", ".join(f"{name!r} {count:,}" for name, count in group["names"].items())]
        for group in groups[:MAX_GROUPS]
    ]
    common.print_table(["what", "names"], rows, title=title)


@app.command()
def carve(
    files: list[Path] = typer.Argument(
        ..., metavar="FILE", help="Triples: a table of text, JSON lines, RDF or Parquet."
    ),
    out: Path = typer.Option(..., help="Folder for the benchmark."),
    name: str = typer.Option(None, help="Name of the benchmark; by default, that of the folder."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    smallest: int = SMALLEST,
    largest: int = LARGEST,
    dev_share: float = typer.Option(0.08, help="Share of the task relations for dev."),
    test_share: float = typer.Option(0.16, help="Share of the task relations for test."),
    seed: int = typer.Option(0, help="Seed of the split and of the order of pairs."),
    on_error: str = common.ON_ERROR,
    replace: bool = typer.Option(False, "--replace", help="Replace an existing benchmark in the folder."),
) -> None:
    """Turn any graph into a few-shot benchmark: relations of medium size become tasks.

    Example: `fewlink data carve my-graph.tsv --out my-benchmark`
    """
    from fewlink.core.errors import InputError
    from fewlink.core.files import is_folder_of, locked
    from fewlink.graph import CompileReport, compile_graph
    from fewlink.tasks import CarveSettings
    from fewlink.tasks import carve as carve_graph
    from fewlink.tasks.benchmark import FORMAT

    common.check_triples(*files)
    how = common.how_to_read(columns, on_error, literals)
    settings = CarveSettings(smallest, largest, dev_share, test_share, seed)

    def check_new() -> None:
        if not replace and is_folder_of(out, FORMAT):
            raise InputError(out, "is a benchmark already: choose another folder, or replace it with --replace")

    check_new()
    report = CompileReport()
    graph = compile_graph(files, types=types, names=names, **how, report=report)
    benchmark, left_out = carve_graph(graph, name or out.resolve().name, settings)
    with locked(out):
        check_new()  # another process may have written it meanwhile
        benchmark.save(out)
    common.print_notes([*report.remarks(), *left_out.remarks()])
    print(f"{benchmark.name} is in {out}")
    _print_info(benchmark, json=False)


@app.command()
def append(
    where: str = typer.Argument(..., metavar="RUN|BENCH", help="A run folder or the folder of a compiled benchmark."),
    files: list[Path] = typer.Argument(
        ..., metavar="FILE", help="New triples: a table of text, JSON lines, RDF or Parquet."
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    on_error: str = common.ON_ERROR,
    json: bool = common.JSON,
) -> None:
    """Add triples to a graph without training: ids stay the same, and new entities and relations get the next ids.

    From then on, a run predicts with the larger graph; its figures remain those of the graph it was measured on. A
    benchmark gets a new fingerprint; runs trained on it still open.

    Example: `fewlink data append runs/mine new.tsv`
    """
    import dataclasses

    common.check_files(*files, types, names)
    common.check_benchmarks(where)
    how = common.how_to_read(columns, on_error, literals)
    from fewlink.fitting.append import append as append_to
    from fewlink.graph import CompileReport

    report = CompileReport()
    appended = append_to(where, files, types=types, names=names, **how, report=report)
    growth = appended.growth
    graph = appended.benchmark.graph
    common.print_notes([*report.remarks(), *growth.remarks()])
    if json:
        facts = {"place": str(appended.place), "sha256": appended.benchmark.fingerprint}
        common.print_json({**facts, **dataclasses.asdict(growth)})
        return
    pairs = f", {plural(growth.pairs, 'pair')} of task relations" if growth.pairs else ""
    new = f"{plural(growth.entities, 'new entity', 'new entities')}, {plural(growth.relations, 'new relation')}"
    added = f"{plural(growth.triples, 'triple')} added{pairs}"
    print(f"{appended.place}: {added}, {new}; {plural(growth.duplicates, 'duplicate')}")
    print(
        f"{plural(len(graph.entities), 'entity', 'entities')}, {plural(len(graph.relations), 'relation')}, "
        f"{plural(graph.triple_count, 'triple')}"
    )


@app.command()
def generate(
    out: Path = typer.Option(..., help="New folder for the benchmark."),
    like: str = typer.Option("nell-one", help="Benchmark to imitate: nell-one or wiki-one."),
    entities: int = typer.Option(None, help="Number of entities; default: as published, or to match --triples."),
    triples: int = typer.Option(
        None, help="Number of background triples; default: as published, or to match --entities."
    ),
    seed: int = typer.Option(0, help="Seed of the graph."),
) -> None:
    """Generate a synthetic benchmark with the shape of a published one and planted rules, in the NELL-One layout.

    Example: `fewlink data generate --like wiki-one --entities 3000 --triples 12000 --out small-wiki`
    """
    from fewlink.tasks.synthetic.benchmark import generate as write

    counts = write(out, like, entities, triples, seed)
    common.print_table(["what", "count"], list(counts.items()), title=f"like {like}")
    print(f"{out} is a benchmark in the NELL-One layout; its planted rules are in {out / 'planted.json'}")


def _print_info(benchmark: Benchmark, json: bool) -> None:
    facts = describe(benchmark)
    if json:
        common.print_json(facts)
        return
    common.print_table(["what", "count"], list(facts["counts"].items()), title=benchmark.name)
    tasks = [task.values() for task in facts["tasks"]]
    common.print_table(["split", "relation", "pairs", "candidates"], tasks, title="Tasks")


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
