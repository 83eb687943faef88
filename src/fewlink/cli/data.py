"""`fewlink data …`: list, fetch, describe, check, carve, append and generate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fewlink.data import Benchmark

app = typer.Typer(
    help="Benchmarks and graphs: list, get, describe, check, carve, append, generate.", no_args_is_help=True
)

JSON = typer.Option(False, "--json", help="Print JSON.")
ON_ERROR = typer.Option("stop", help="What to do with a bad line: stop, or skip and count.")
TYPES = typer.Option(None, help="A file of entity<TAB>type lines.")
NAMES = typer.Option(None, help="A file of id<TAB>readable name lines.")


@app.command("list")
def list_(json: bool = JSON) -> None:
    """The benchmarks known by name.

    Example: `fewlink data list`
    """
    from fewlink.cli import show
    from fewlink.data.catalogue import CATALOGUE, data_home

    rows = []
    for name, entry in CATALOGUE.items():
        here = entry.address is None or (data_home() / name).exists()
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
        show.as_json(rows)
    else:
        show.table(
            ["name", "here", "about", "licence"],
            [[r["name"], "yes" if r["here"] else "no", r["about"], r["licence"]] for r in rows],
        )
        print(f"fetched ones live in {data_home()} (change it with FEWLINK_DATA)")


@app.command()
def get(
    name: str = typer.Argument(..., help="A name of `fewlink data list`."),
    source: Path = typer.Option(None, "--from", help="A folder or archive you already have, instead of a download."),
) -> None:
    """Fetch a benchmark, check it, compile it and keep it.

    Example: `fewlink data get nell-one --from ~/downloads/nell.tar.gz`
    """
    from fewlink.cli import show
    from fewlink.data.catalogue import fetch_benchmark

    place, benchmark, remarks = fetch_benchmark(name, source)
    show.remarks(remarks)
    print(f"{name} is in {place}")
    _show_info(benchmark, json=False)


@app.command("compile")
def compile_(
    bench: str = typer.Argument(..., metavar="LAYOUT", help="A folder or archive in the NELL-One layout."),
    out: Path = typer.Option(..., help="Folder for the benchmark; it must not exist yet."),
) -> None:
    """Check a benchmark in the NELL-One layout and write it as a folder that opens at once, however large it is.

    Example: `fewlink data compile wiki --out wiki-one`
    """
    from fewlink.base.errors import InputError
    from fewlink.cli import show
    from fewlink.data.nell_layout import read_layout

    if out.exists():
        raise InputError(out, "is there already: choose another folder")
    benchmark, remarks = read_layout(Path(bench), out.name)
    benchmark.save(out)
    show.remarks(remarks)
    print(f"{out} is a benchmark")
    _show_info(benchmark, json=False)


@app.command()
def info(
    bench: str = typer.Argument(..., metavar="BENCH", help="A catalogue name, a benchmark folder, or an archive."),
    json: bool = JSON,
) -> None:
    """What a benchmark holds: counts, and every task with its pairs and candidates.

    Example: `fewlink data info umls`
    """
    from fewlink.data import open_benchmark

    _show_info(open_benchmark(bench), json)


@app.command()
def check(
    path: Path = typer.Argument(
        ..., metavar="FILE", help="Triples: TSV, CSV, N-Triples or Parquet, plain or compressed."
    ),
    types: Path = TYPES,
    smallest: int = typer.Option(50, help="Fewest triples of a relation that could be a few-shot task."),
    largest: int = typer.Option(500, help="Most triples of such a relation."),
    json: bool = JSON,
) -> None:
    """A doctor for your own graph: counts, degrees, relations by size, possible tasks, and what looks wrong.

    Example: `fewlink data check my-graph.tsv.gz`
    """
    from fewlink.cli import show
    from fewlink.graph.check import check_graph

    found = check_graph(path, types=types, smallest=smallest, largest=largest)
    if json:
        show.as_json(found)
        return
    show.table(["what", "count"], list(found["counts"].items()), title=str(path))
    show.table(["degree", "entities"], [[d["degree"], d["entities"]] for d in found["degrees"]], title="Degrees")
    show.table(
        ["relation", "triples", "heads", "tails"],
        [list(r.values()) for r in found["largest_relations"]],
        title="Largest relations",
    )
    tasks = found["possible_tasks"]
    print(
        f"{len(tasks)} relations of {smallest} to {largest} triples could be few-shot tasks"
        + (f": {', '.join(tasks[:8])}{' …' * (len(tasks) > 8)}" if tasks else "")
    )
    print(f"\n{'What looks wrong' if found['problems'] else 'Nothing looks wrong.'}")
    for problem in found["problems"]:
        print(f"- {problem}")


@app.command()
def carve(
    files: list[Path] = typer.Argument(..., metavar="FILE…", help="Triples: TSV, CSV, N-Triples or Parquet."),
    out: Path = typer.Option(..., help="Folder for the benchmark."),
    name: str = typer.Option(None, help="Its name; the folder's by default."),
    types: Path = TYPES,
    names: Path = NAMES,
    smallest: int = typer.Option(50, help="Fewest triples of a task relation."),
    largest: int = typer.Option(500, help="Most triples of a task relation."),
    dev_share: float = typer.Option(0.08, help="Share of the task relations for dev."),
    test_share: float = typer.Option(0.16, help="Share of the task relations for test."),
    seed: int = typer.Option(0, help="Seed of the split and of the pairs' order."),
    on_error: str = ON_ERROR,
) -> None:
    """Turn any graph into a few-shot benchmark: relations of middling size become tasks.

    Example: `fewlink data carve my-graph.tsv --out my-benchmark`
    """
    from fewlink.cli import show
    from fewlink.data import CarveSettings
    from fewlink.data import carve as cut
    from fewlink.graph import CompileReport, compile_graph

    settings = CarveSettings(smallest, largest, dev_share, test_share, seed)
    report = CompileReport()
    graph = compile_graph(files, types=types, names=names, on_error=on_error, report=report)
    benchmark, left_out = cut(graph, name or out.resolve().name, settings)
    benchmark.save(out)
    show.remarks([*report.remarks(), *left_out.remarks()])
    print(f"{benchmark.name} is in {out}")
    _show_info(benchmark, json=False)


@app.command()
def append(
    where: str = typer.Argument(..., metavar="RUN|BENCH", help="A run, or the folder of a compiled benchmark."),
    files: list[Path] = typer.Argument(..., metavar="FILE…", help="New triples: TSV, CSV, N-Triples or Parquet."),
    types: Path = TYPES,
    names: Path = NAMES,
    on_error: str = ON_ERROR,
    json: bool = JSON,
) -> None:
    """Add triples to a graph without training: ids stay, new entities and relations follow, neighbours are refreshed.

    A run answers with the larger graph at once, and its figures stay those of what it was measured on. A benchmark is
    another one afterwards, with its own fingerprint; runs of it still open.

    Example: `fewlink data append runs/mine new.tsv`
    """
    import dataclasses

    from fewlink.cli import show
    from fewlink.graph import CompileReport
    from fewlink.pipeline.append import append as add

    report = CompileReport()
    done = add(where, files, types=types, names=names, on_error=on_error, report=report)
    growth, graph = done.growth, done.benchmark.graph
    show.remarks(report.remarks())
    if json:
        show.as_json({"place": str(done.place), "sha256": done.benchmark.fingerprint, **dataclasses.asdict(growth)})
        return
    pairs = f", {growth.pairs:,} pairs of task relations" if growth.pairs else ""
    print(
        f"{done.place}: {growth.triples:,} triples added{pairs}, {growth.entities:,} new entities, "
        f"{growth.relations:,} new relations; {growth.duplicates:,} were there"
    )
    print(f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, {graph.triple_count:,} triples")


@app.command()
def generate(
    out: Path = typer.Option(..., help="Folder for the benchmark; it must not exist yet."),
    like: str = typer.Option("nell-one", help="Whose shape: nell-one or wiki-one."),
    entities: int = typer.Option(None, help="Entities; as published, or in proportion to --triples, by default."),
    triples: int = typer.Option(None, help="Background triples; likewise."),
    seed: int = typer.Option(0, help="Another seed, another graph."),
) -> None:
    """Make up a benchmark with the shape of a published one and with rules to be learnt, in the NELL-One layout.

    Example: `fewlink data generate --like wiki-one --entities 3000 --triples 12000 --out small-wiki`
    """
    from fewlink.cli import show
    from fewlink.data.synthetic.benchmark import generate as make

    counts = make(out, like, entities, triples, seed)
    show.table(["what", "count"], list(counts.items()), title=f"like {like}")
    print(f"{out} is a benchmark in the NELL-One layout; its rules are in {out / 'planted.json'}")


def _show_info(benchmark: Benchmark, json: bool) -> None:
    from fewlink.cli import show

    facts = describe(benchmark)
    if json:
        show.as_json(facts)
        return
    show.table(["what", "count"], list(facts["counts"].items()), title=benchmark.name)
    show.table(["split", "relation", "pairs", "candidates"], [list(t.values()) for t in facts["tasks"]], title="Tasks")


def describe(benchmark: Benchmark) -> dict[str, Any]:
    """Counts of a benchmark and a row for each task."""
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
        **{f"{s} tasks": len(m) for s, m in benchmark.tasks.items()},
        **{f"{s} pairs": sum(len(t.pairs) for t in m) for s, m in benchmark.tasks.items()},
    }
    return {"name": benchmark.name, "sha256": benchmark.fingerprint, "counts": counts, "tasks": tasks}
