"""`fewlink project …`: files of curators' decisions, which `fewlink serve` keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from fewlink.cli import common

app = typer.Typer(help="Files of curators' decisions: list, log, export, import, undo.", no_args_is_help=True)
FILE = typer.Argument(..., metavar="FILE", help="A project file, as fewlink serve --project makes it.")
PROJECT = typer.Option(None, "--project", metavar="NAME", help="The project; needed if the file has several.")
WHO = typer.Option("", help="The curator.")


@app.command("list")
def list_projects(file: Path = FILE, json: bool = common.JSON) -> None:
    """List the projects of a file: relations to complete, with how many pairs are decided.

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
    out: Path = typer.Option(..., help="File to write: .tsv (decisions), .nt (true pairs) or .json (the whole log)."),
    project: str = PROJECT,
    format: str = typer.Option(None, help="triples: a .tsv of what is true, for append, to-stix and to-neo4j."),
) -> None:
    """Export a project: its decisions, its true pairs as N-Triples or triples, or its whole log.

    Example: `fewlink project export my-graph.tsv.decisions --project cures --out cures.nt`
    """
    from fewlink.curation.exchange import write_export
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, write=False) as opened:
        print(write_export(opened, opened.only(project), out, format))


@app.command("import")
def import_project(
    file: Path = FILE,
    source: Path = typer.Argument(..., metavar="EXPORT", help="A .tsv, .nt or .json export, or pairs as a TSV file."),
    project: str = PROJECT,
    who: str = WHO,
    graph: str = typer.Option(
        None, metavar="GRAPH|RUN", help="The graph: readable names of its entities become ids. Without it, give ids."
    ),
) -> None:
    """Add the decisions of an export to a project, which is made if it does not exist. Nothing is added twice.

    Example: `fewlink project import my-graph.tsv.decisions cures.json --project cures`
    """
    from fewlink.curation.exchange import import_file
    from fewlink.curation.store import ProjectFile

    common.check_files(source)
    if graph is not None:
        common.check_graph_or_run(graph)
    find = None if graph is None else _names_in(graph)
    with ProjectFile(file) as opened:
        name = project or opened.only(None, default=source.stem)
        done = import_file(opened, name, source, who=who, find=find)
    if done.unknown:
        from fewlink.questions.adjustment import lacking_note

        common.print_notes([lacking_note(done.unknown)])
    print(f"{file}: {done.added:,} of {done.read:,} decisions added to {name}")


def _names_in(graph: str) -> Callable[[str], str | None]:
    """What finds the id of an entity of a graph by its name."""
    from fewlink.prediction import load

    return load(graph).names.id_of


@app.command("undo")
def undo_decision(
    file: Path = FILE,
    project: str = PROJECT,
    event: int = typer.Option(None, help="Number of the event, from fewlink project log; default: the last of --who."),
    who: str = WHO,
) -> None:
    """Take back a decision. It stays in the log, with the undo.

    Example: `fewlink project undo my-graph.tsv.decisions --project cures --who ann`
    """
    from fewlink.curation.store import ProjectFile

    with ProjectFile(file, must_exist=True) as opened:
        undone = opened.undo(opened.only(project), event, who)
    print(f"undone: {undone.head} → {undone.tail} was {undone.kind} by {undone.who or 'nobody named'} at {undone.time}")
