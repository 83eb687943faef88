"""`fewlink serve`, and `fewlink project …` for the project files in which it stores the decisions of curators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fewlink.cli import common
from fewlink.cli.predict import SOURCE
from fewlink.core.words import percent, plural

if TYPE_CHECKING:
    from fewlink.curation.exports import Described

app = typer.Typer(
    help="Project files, which store curators' decisions: list, show, log, export, import, undo, backup, restore.",
    no_args_is_help=True,
)
FILE = typer.Argument(..., metavar="FILE", help="A project file, as fewlink serve --project writes it.")
MAX_UPLOAD = 16 << 20  # bytes of a file that visitors of fewlink serve may open
PROJECT = typer.Option(None, "--project", metavar="NAME", help="The project; needed if the file has several.")


@app.command("list")
def list_projects(file: Path = FILE, json: bool = common.JSON) -> None:
    """List the projects of a file: relations to complete, with the numbers of decisions.

    Example: `fewlink project list my-graph.tsv.decisions`
    """
    import dataclasses

    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        rows = [dataclasses.asdict(project) for project in opened.projects()]
    if json:
        common.print_json(rows)
        return
    columns = ["name", "references", "accepted", "rejected", "conflicts", "events", "description"]
    common.print_table(columns, [[row[column] for column in columns] for row in rows], title=str(file))


@app.command("show")
def show_project(file: Path = FILE, project: str = PROJECT, json: bool = common.JSON) -> None:
    """Show how far a project is: the share of right pairs so far, and the tails of the accepted ones.

    Warns if one tail crowds out the rest: more than two thirds of at least 8 accepted pairs have it.

    Example: `fewlink project show my-graph.tsv.decisions --project cures`
    """
    import dataclasses

    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        name = opened.only(project)
        facts = dataclasses.asdict(opened.project(name))
        progress = opened.progress(name)
    if json:
        tails = [tail._asdict() for tail in progress.tails]
        common.print_json({**facts, "right": progress.right, "tails": tails, "warning": progress.warning()})
        return
    right = "" if progress.right is None else f", {percent(progress.right)} right so far"
    print(f"{name}: {plural(facts['references'], 'reference')}, {progress.decided:,} decided{right}")
    if progress.tails:
        cells = [[tail, count, percent(count / progress.accepted)] for tail, count in progress.tails]
        common.print_table(["tail", "accepted", "share"], cells)
    if warning := progress.warning():
        common.print_notes([warning])


@app.command("log")
def show_log(file: Path = FILE, project: str = PROJECT, json: bool = common.JSON) -> None:
    """Show all events of a project, oldest first: who decided what, and when (UTC).

    Example: `fewlink project log my-graph.tsv.decisions --project cures`
    """
    import dataclasses

    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        rows = [dataclasses.asdict(event) for event in opened.log(opened.only(project))]
    if json:
        common.print_json(rows)
        return
    columns = ["number", "kind", "head", "tail", "undoes", "who", "time"]
    cells = [["" if row[column] is None else row[column] for column in columns] for row in rows]
    common.print_table(columns, cells, title=str(file))


@app.command("export")
def export_project(
    file: Path = FILE,
    out: Path = typer.Option(
        ..., help="File to write. Its suffix gives the format: .tsv, .csv, .nt, .ttl, .qs, .stix.json or .json."
    ),
    project: str = PROJECT,
    format: str = typer.Option(
        None, help="The format: tsv, csv, triples, nt, turtle, quickstatements, stix or json, whatever the suffix."
    ),
    relation: str = typer.Option(
        None, help="The relation to write instead of the project's name: P106 for Wikidata, an IRI, a verb of STIX."
    ),
    graph: str = typer.Option(
        None,
        metavar="GRAPH|RUN",
        help="The graph: names, types and STIX objects of entities. By default the one that FILE is named after.",
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
) -> None:
    """Export a project: its decisions (TSV, CSV, RDF), its true pairs (triples, Wikidata, STIX) or its whole log.

    tsv and csv have names, relation, decision, probability, curator and time. turtle is RDF with provenance (PROV-O).
    quickstatements, stix, nt and triples have the references and accepted pairs only.

    Example: `fewlink project export my-graph.tsv.decisions --project cures --out cures.csv`

    Example: `fewlink project export attack.decisions --out accepted.stix.json --relation uses`
    """
    from fewlink.core.errors import InputError, choose
    from fewlink.curation.exports import FORMATS, Described, format_of, write_export
    from fewlink.curation.store import ProjectFile

    chosen = format or format_of(out)
    wants_graph = choose("format", chosen, FORMATS).described
    if out.exists():
        raise InputError(out, "exists already: remove it, or choose another file")
    if graph is not None:
        common.check_graph_or_run(graph)
    common.check_files(types, names)
    how = common.how_to_read(columns, on_error, literals)
    with ProjectFile(file, write=False) as opened:
        name = opened.only(project)
        source = graph or _graph_of(file)
        described = _described(source, types=types, names=names, **how) if source and wants_graph else Described()
        print(write_export(opened, name, out, chosen, relation=relation, described=described))
    if wants_graph and source is None:
        common.print_notes(["ids stand in place of names: add --graph GRAPH for readable names"])
    elif source and described.graph is not None and described.graph.labels is None and Path(source).is_file():
        common.print_notes(["ids stand in place of names: add --names FILE if you gave it to fewlink serve"])


def _graph_of(file: Path) -> str | None:
    """The graph or run that a project file is named after, as `fewlink serve` names it; None if there is none."""
    from fewlink.tasks.catalogue import CATALOGUE

    beside = file.with_suffix("")
    if file.suffix != ".decisions":
        return None
    if beside.exists():
        return str(beside)
    return beside.name if beside.name in CATALOGUE and CATALOGUE[beside.name].address is None else None


def _described(graph: str, **options: Any) -> Described:
    """The graph for an export, with the name of the model that answers on it."""
    from fewlink.curation.exports import Described
    from fewlink.linker import load

    linker = load(graph, **options)
    return Described(linker.graph, linker.benchmark.source, linker.scorer.name)


@app.command("import")
def import_project(
    file: Path = FILE,
    source: Path = typer.Argument(
        ..., metavar="EXPORT", help="A .tsv, .csv, .nt, .ttl or .json export, or pairs as a table."
    ),
    project: str = typer.Option(
        None, "--project", metavar="NAME", help="The project; a new one is named after its relation in EXPORT."
    ),
    who: str = typer.Option("", metavar="NAME", help="Curator of decisions without a name."),
    graph: str = typer.Option(
        None, metavar="GRAPH|RUN", help="The graph: readable names of its entities become ids. Without it, give ids."
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    names: Path = common.NAMES,
) -> None:
    """Add the decisions of an export to a project, which is created if necessary. Nothing is added twice.

    Example: `fewlink project import my-graph.tsv.decisions cures.json --project cures`
    """
    from fewlink.core.errors import FewlinkError, InputError
    from fewlink.curation.exports import format_of
    from fewlink.curation.imports import add_decisions, read_decisions
    from fewlink.curation.store import adding_to

    common.check_files(source, names)
    if graph is not None:
        common.check_graph_or_run(graph)
    elif names is not None:
        raise FewlinkError("--names gives names to the entities of a graph: add --graph GRAPH")
    how = common.how_to_read(columns, on_error, literals)
    decisions = read_decisions(source, who=who)
    find = None if graph is None else _names_in(graph, names=names, **how)
    with adding_to(file) as opened:
        relation = decisions.relation.strip()
        name = project or opened.only(None, default=relation or source.stem)
        if project is None and relation not in ("", name):
            raise InputError(
                source,
                f"has decisions on '{relation}', but the project in {file} is '{name}': give --project '{relation}' "
                f"for a project of its own, or --project '{name}' to add them there",
            )
        done = add_decisions(opened, name, decisions, format_of(source), find)
    if done.unknown:
        from fewlink.linker.adjustment import lacking_note

        common.print_notes([lacking_note(done.unknown)])
    print(f"{file}: {done.added:,} of {plural(done.read, 'decision')} added to {name}")


def _names_in(graph: str, **options: Any) -> Callable[[str], str | None]:
    """The function that maps a name to the id of an entity in this graph."""
    from fewlink.linker import load

    return load(graph, **options).names.id_of


@app.command("undo")
def undo_decision(
    file: Path = FILE,
    project: str = PROJECT,
    event: int = typer.Option(None, help="Number of the event, from fewlink project log; default: the last of --who."),
    who: str = typer.Option("", metavar="NAME", help="Curator who undoes their last decision."),
) -> None:
    """Undo a decision. The log keeps both the decision and the undo.

    Example: `fewlink project undo my-graph.tsv.decisions --project cures --who ann`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, must_exist=True) as opened:
        undone = opened.undo(opened.only(project), event, who)
    curator = undone.who or "an unnamed curator"
    print(f"undone: {undone.head} → {undone.tail} was {undone.kind} by {curator} at {undone.time}")


@app.command("backup")
def back_up(file: Path = FILE, copy: Path = typer.Argument(..., metavar="COPY", help="The copy to write.")) -> None:
    """Write a checked copy of a project file, while a server or other commands use it.

    Example: `fewlink project backup my-graph.tsv.decisions backup/monday.decisions`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        opened.copy_to(copy)
        events = sum(project.events for project in opened.projects())
    print(f"{copy}: {plural(events, 'event')} of {file}")


@app.command("restore")
def restore(copy: Path = typer.Argument(..., metavar="COPY", help="A copy of `backup`."), file: Path = FILE) -> None:
    """Check a copy and make it the project file FILE. Stop the server and move the old file away first.

    Example: `fewlink project restore backup/monday.decisions my-graph.tsv.decisions`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(copy, write=False) as opened:
        opened.copy_to(file)
        events = sum(project.events for project in opened.projects())
    print(f"{file}: {plural(events, 'event')} of {copy}")


def serve(
    source: str = SOURCE,
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 serves other machines, and needs a token."
    ),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 chooses a free one."),
    token: str = typer.Option(
        None, envvar="FEWLINK_TOKEN", show_envvar=False, help="Token that clients must send; better set FEWLINK_TOKEN."
    ),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    most_heads: int = typer.Option(5_000, min=1, max=100_000, help="Maximum number of heads in one request."),
    most_k: int = typer.Option(100, min=1, max=1_000, help="Maximum number of tails per head."),
    most_seconds: float = typer.Option(
        60, min=1, help="Maximum computing time of one request, in seconds; longer requests are refused."
    ),
    drain: float = typer.Option(
        5, min=0, help="Seconds for running requests to finish when the server stops (SIGTERM or Ctrl-C)."
    ),
    workers: int = typer.Option(
        1, min=1, max=64, help="Number of processes; each loads the model and has its own limits."
    ),
    references: Path = typer.Option(
        None, help="File of triples of relations that the graph lacks: OpenRefine can add columns of their tails."
    ),
    reference: list[str] = typer.Option(
        [], metavar="'HEAD => RELATION => TAIL'", help="Another triple for --references; repeatable."
    ),
    project: Path = typer.Option(
        None, metavar="FILE", help="File to store decisions in; by default beside the graph or run."
    ),
    allow_upload: Path = typer.Option(
        None,
        metavar="FOLDER",
        help="Let visitors open files of their own on the page, up to 16 MB each; the files and decisions about them "
        "are kept in this folder.",
    ),
    access_log: str = typer.Option(
        None, metavar="FILE", help="Append a line of JSON for each request to this file; - for standard output."
    ),
    allow_anyone: bool = typer.Option(
        False,
        "--allow-anyone",
        help="Serve other machines without a token: everyone who reaches the port can use the server.",
    ),
    proxy: str = typer.Option(
        None, metavar="ADDRESS", help="Address of a reverse proxy, whose X-Forwarded-For header names the client."
    ),
    public_name: str = typer.Option(
        None, metavar="NAME", help="Host name that a reverse proxy passes on; by default only local names are accepted."
    ),
) -> None:
    """Serve predictions over HTTP, with a page to review them at / and a description of the interface at /docs.

    OpenRefine reconciles names with the graph's entities at /reconcile, and adds columns of known and predicted tails.

    A graph needs no training: TRAIL answers with the built-in weights. The server stores the decisions of curators in
    a project file (see fewlink project) and writes nothing else, unless you --allow-upload. It scores concurrent
    requests together, lets long requests take turns with others, and refuses requests that would take too long. To
    serve other people, read docs/deployment.md; /metrics has figures for Prometheus.

    Example: `fewlink serve my-graph.tsv`, or `fewlink serve runs/umls-trail`

    Example: `FEWLINK_TOKEN=secret fewlink serve runs/umls-trail --host 0.0.0.0 --port 80`
    """
    from fewlink.core.errors import FewlinkError, MissingExtra
    from fewlink.linker.parsing import parse_triple

    described = [parse_triple(text) for text in reference]
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise FewlinkError(
            "--token is empty, begins or ends with a space, or is not printable ASCII: use letters and digits"
        )
    common.check_graph_or_run(source)
    common.check_files(types, names, references)
    common.check_benchmarks(bench)
    common.check_device(device)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink serve", "serve") from None
    from fewlink.graph.compile import read_names_of
    from fewlink.server import ServerSettings
    from fewlink.server.process import ServeOptions, serve

    if references is not None:
        described = [*read_names_of(references), *described]
    options = ServeOptions(
        source=source,
        device=common.resolve_device(device),
        host=host,
        port=port,
        workers=workers,
        bench=bench,
        types=None if types is None else str(types),
        **common.how_to_read(columns, on_error, literals),
        names=None if names is None else str(names),
        read_names=not no_names,
        project=None if project is None else str(project),
        extensions=("fewlink.bridges.openrefine:install",),
        graphs=None if allow_upload is None else str(allow_upload),
        access_log=access_log,
        allow_anyone=allow_anyone,
        public_name=public_name,
        proxy=proxy,
    )
    settings = ServerSettings(
        heads=most_heads,
        k=most_k,
        token=token,
        upload=0 if allow_upload is None else MAX_UPLOAD,
        references=tuple(described),
        seconds=most_seconds,
        queued=2 * most_seconds,
        deadline=2.5 * most_seconds,
        drain=drain,
    )
    serve(options, settings)
