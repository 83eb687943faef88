"""`fewlink project …`: the project files in which the server stores the decisions of curators."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlink.cli import options, terminal
from fewlink.cli.options import TableOptions
from fewlink.core.words import percent, plural

if TYPE_CHECKING:
    from fewlink.linker import Linker

app = typer.Typer(
    help="Project files, which store curators' decisions: list, show, log, export, import, undo, backup.",
    no_args_is_help=True,
)
FILE = typer.Argument(..., metavar="FILE", help="A project file, as fewlink serve --project writes it.")
PROJECT = typer.Option(None, "--project", metavar="NAME", help="The project; needed if the file has several.")
WHO = typer.Option("", metavar="NAME", help="The curator.")


@dataclass
class GraphOfProject(TableOptions):
    """The graph of the project."""

    graph: str | None = typer.Option(
        None,
        metavar="GRAPH|RUN",
        help="The graph that knows the names of entities; by default the one that FILE is named after.",
    )

    def name(self, file: Path) -> str | None:
        """The graph or run of a project file; None if there is none."""
        from fewlink.tasks.catalogue import CATALOGUE

        beside = file.with_suffix("")  # `fewlink serve` names the file after the graph
        if self.graph is not None or file.suffix != ".decisions":
            return self.graph
        if beside.exists():
            return str(beside)
        return beside.name if beside.name in CATALOGUE else None

    def open(self, graph: str) -> Linker:
        """The linker of the graph or run."""
        from fewlink.linker import load

        return load(self.source(graph))


@app.command("list")
def list_projects(file: Path = FILE, json: bool = options.JSON) -> None:
    """List the projects of a file: relations to complete, with the numbers of decisions.

    Example: `fewlink project list my-graph.tsv.decisions`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        rows = [dataclasses.asdict(project) for project in opened.projects()]
    if json:
        terminal.print_json(rows)
        return
    columns = ["name", "references", "accepted", "rejected", "conflicts", "events", "description"]
    terminal.print_table(columns, [[row[column] for column in columns] for row in rows], title=str(file))


@app.command("show")
def show_project(file: Path = FILE, project: str = PROJECT, json: bool = options.JSON) -> None:
    """Show how far a project is: the share of right pairs so far, and the tails of the accepted ones.

    Warns if one tail crowds out the rest: more than two thirds of at least 8 accepted pairs have it.

    Example: `fewlink project show my-graph.tsv.decisions --project cures`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        name = opened.only(project)
        facts = dataclasses.asdict(opened.project(name))
        progress = opened.progress(name)
    if json:
        tails = [tail._asdict() for tail in progress.tails]
        terminal.print_json({**facts, "right": progress.right, "tails": tails, "warning": progress.warning()})
        return
    right = "" if progress.right is None else f", {percent(progress.right)} right so far"
    print(f"{name}: {plural(facts['references'], 'reference')}, {progress.decided:,} decided{right}")
    if progress.tails:
        cells = [[tail, count, percent(count / progress.accepted)] for tail, count in progress.tails]
        terminal.print_table(["tail", "accepted", "share"], cells)
    if warning := progress.warning():
        terminal.print_notes([warning])


@app.command("log")
def show_log(file: Path = FILE, project: str = PROJECT, json: bool = options.JSON) -> None:
    """Show all events of a project, oldest first: who decided what, and when (UTC).

    Example: `fewlink project log my-graph.tsv.decisions --project cures`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        rows = [dataclasses.asdict(event) for event in opened.log(opened.only(project))]
    if json:
        terminal.print_json(rows)
        return
    columns = ["number", "kind", "head", "tail", "undoes", "who", "time"]
    cells = [["" if row[column] is None else row[column] for column in columns] for row in rows]
    terminal.print_table(columns, cells, title=str(file))


@app.command("export")
def export_project(
    graph: GraphOfProject,
    file: Path = FILE,
    out: Path = typer.Option(
        ...,
        metavar="FILE",
        help="File to write. Its suffix gives the format: .csv, .nt, .qs, .stix.json or .json.",
    ),
    project: str = PROJECT,
    relation: str = typer.Option(
        None,
        metavar="NAME",
        help="The relation to write instead of the project's name: P106 for Wikidata, an IRI, a verb of STIX.",
    ),
) -> None:
    """Export a project: its decisions (CSV), its true pairs (N-Triples, Wikidata, STIX) or its whole log (JSON).

    csv has names, relation, decision, probability, curator and time. nt, quickstatements and stix have the references
    and accepted pairs only.

    Example: `fewlink project export my-graph.tsv.decisions --project cures --out cures.csv`

    Example: `fewlink project export attack.decisions --out accepted.stix.json --relation uses`
    """
    from fewlink.core.errors import InputError
    from fewlink.curation.exports import FORMATS, Described, format_of, write_export
    from fewlink.curation.store import ProjectFile

    chosen = format_of(out)
    wants_graph = FORMATS[chosen].described
    if out.exists():
        raise InputError(out, "exists already: remove it, or choose another file")
    source = graph.name(file) if wants_graph else None
    described = Described()
    with ProjectFile(file, write=False) as opened:
        name = opened.only(project)
        if source:
            linker = graph.open(source)
            described = Described(linker.graph, linker.benchmark.source)
        print(write_export(opened, name, out, chosen, relation=relation, described=described))
    if wants_graph and (described.graph is None or described.graph.labels is None):
        terminal.print_notes(["ids stand in place of names: add --graph GRAPH or --names FILE for readable names"])


@app.command("import")
def import_project(
    graph: GraphOfProject,
    file: Path = FILE,
    source: Path = typer.Argument(
        ..., metavar="EXPORT", help="A .csv, .nt or .json export, or pairs as a table (.csv, .tsv)."
    ),
    project: str = typer.Option(
        None, "--project", metavar="NAME", help="The project; a new one is named after its relation in EXPORT."
    ),
    who: str = WHO,
) -> None:
    """Add the decisions of an export to a project, which is created if necessary. Nothing is added twice.

    --who is the curator of decisions without a name. Entities are ids, or readable names if --graph is given.

    Example: `fewlink project import my-graph.tsv.decisions cures.json --project cures`
    """
    from fewlink.core.errors import InputError
    from fewlink.curation.imports import add_decisions, read_decisions
    from fewlink.curation.store import ProjectFile

    decisions = read_decisions(source, who=who)
    find = None if graph.graph is None else graph.open(graph.graph).names.id_of
    with ProjectFile(file) as opened:
        relation = decisions.relation.strip()
        name = project or opened.only(None, default=relation or source.stem)
        if project is None and relation not in ("", name):
            raise InputError(
                source,
                f"has decisions on '{relation}', but the project in {file} is '{name}': give --project",
            )
        done = add_decisions(opened, name, decisions, find)
    if done.unknown:
        from fewlink.linker.probability import lacking_note

        terminal.print_notes([lacking_note(done.unknown)])
    print(f"{file}: {done.added:,} of {plural(done.read, 'decision')} added to {name}")


@app.command("undo")
def undo_decision(
    file: Path = FILE,
    project: str = PROJECT,
    event: int = typer.Option(
        None, metavar="NUMBER", help="Number of the event, from fewlink project log; by default the last of --who."
    ),
    who: str = WHO,
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
    """Write a checked copy of a project file, while a server or other commands use it; also to go back to a copy.

    Example: `fewlink project backup my-graph.tsv.decisions backup/monday.decisions`

    Example: `fewlink project backup backup/monday.decisions my-graph.tsv.decisions`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        opened.copy_to(copy)
        events = sum(project.events for project in opened.projects())
    print(f"{copy}: {plural(events, 'event')} of {file}")
