"""Exports of a project: the table of formats, which the command, Python, the server and its page share."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import numpy as np

from fewlink.core.errors import FORMULA, FewlinkError, InputError, choose
from fewlink.core.files import write_bytes
from fewlink.curation import stix
from fewlink.curation.store import Event, Project, ProjectFile
from fewlink.graph import Graph
from fewlink.graph.stix import Bundle, is_bundle, read_bundle
from fewlink.graph.vocabulary import FEWLINK_IRI_PREFIXES

JSON_FORMAT = "fewlink-project/2"
COLUMNS = ("head", "head_name", "relation", "tail", "tail_name", "decision", "probability", "who", "time")
ENTITY, RELATION = FEWLINK_IRI_PREFIXES  # of URNs for ids that are not IRIs
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]+")
ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")
WIKIDATA = re.compile(
    r"(?:https?://www\.wikidata\.org/(?:entity|wiki|prop/direct)/(?:Property:)?|wdt?:)?([QP][1-9][0-9]*)"
)
BYTE_ORDER_MARK = "\ufeff"  # tells spreadsheets that a CSV file is UTF-8
MADE_WITH = "# made with "  # begins the first line of a table that `fewlink complete` writes
FormatName = Literal["csv", "nt", "quickstatements", "stix", "json"]


@dataclass(frozen=True)
class DecidedPair:
    """A decided pair with its names, its relation, and who decided what and when."""

    head: str
    head_name: str
    relation: str
    tail: str
    tail_name: str
    decision: str
    probability: float | None
    who: str
    time: str


@dataclass(frozen=True)
class Described:
    """What exports say about entities beyond their ids.

    graph   has names and types of entities; without it, the name of an entity is its id
    source  the file that the graph was read from: a STIX bundle has the objects of the entities
    """

    graph: Graph | None = None
    source: str = ""

    def name(self, entity: str) -> str:
        """The readable name of an entity."""
        number = None if self.graph is None else self.graph.entities.find(entity)
        return entity if self.graph is None or number is None else self.graph.name(number)

    def types(self, entity: str) -> list[str]:
        """The types of an entity."""
        number = None if self.graph is None else self.graph.entities.find(entity)
        if self.graph is None or self.graph.types is None or number is None:
            return []
        table = self.graph.types
        return [table.names[kind] for kind in table.of_entities(np.array([number])).tolist()]

    def bundle(self, entities: Sequence[str]) -> Bundle:
        """The STIX objects of entities: those of the bundle that the graph came from, or made from names and types."""
        if self.source and is_bundle(Path(self.source)):
            return read_bundle(Path(self.source))
        return stix.made_bundle((entity, self.name(entity), self.types(entity)) for entity in entities)


@dataclass(frozen=True)
class Content:
    """A project as a format writes it: `rows` are its decided pairs, `log` all its events."""

    project: Project
    rows: list[DecidedPair]
    log: list[Event]
    described: Described = field(default_factory=Described)

    @property
    def true(self) -> list[DecidedPair]:
        """The references and accepted pairs."""
        return [row for row in self.rows if row.decision != "rejected"]


@dataclass(frozen=True)
class ProjectFormat:
    """A format of exports.

    title       what menus call it
    about       what it holds and where it is read
    suffixes    endings of file names; the first one is given to new files
    media_type  of HTTP answers
    write       turns the content of a project into text
    described   whether it writes more about entities than their ids, so that the graph is worth opening
    """

    title: str
    about: str
    suffixes: tuple[str, ...]
    media_type: str
    write: Callable[[Content], str]
    described: bool


def export(
    file: ProjectFile,
    project: str | int,
    format: str,
    *,
    relation: str | None = None,
    described: Described | None = None,
) -> str:
    """A project as text in one of the `FORMATS`.

    relation   is written in place of the project's name: a property of Wikidata, an IRI, a verb of STIX
    described  the graph, for names, types and STIX objects
    """
    chosen = choose("format", format, FORMATS)
    described = described or Described()
    facts = file.project(project)
    rows = [
        DecidedPair(
            head=each.head,
            head_name=described.name(each.head),
            relation=relation or facts.name,
            tail=each.tail,
            tail_name=described.name(each.tail),
            decision=each.kind,
            probability=each.probability,
            who=each.who,
            time=each.time,
        )
        for each in file.decisions(project)
    ]
    return chosen.write(Content(facts, rows, file.log(project), described))


def write_export(
    file: ProjectFile,
    project: str | int,
    path: Path,
    format: str | None = None,
    *,
    relation: str | None = None,
    described: Described | None = None,
) -> Path:
    """Write an export atomically; by default, the suffix of the file decides the format."""
    text = export(file, project, format or format_of(path), relation=relation, described=described)
    write_bytes(path, text.encode("utf-8", "surrogatepass"))
    return path


def format_of(path: Path) -> str:
    """The format of a file by its suffix; raises if the suffix is unknown."""
    endings = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
    for suffix in sorted(endings, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return endings[suffix]
    raise InputError(path, f"has an unknown suffix: use {', '.join(endings)}")


def to_csv(content: Content) -> str:
    """A header and a line for each decided pair."""
    return csv_text(content.rows)


def csv_text(rows: Iterable[DecidedPair]) -> str:
    """A table for spreadsheets: an apostrophe goes before text that they would run as a formula."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for row in rows:
        values = [getattr(row, column) for column in COLUMNS]
        table.writerow(["" if value is None else guarded(str(value)) for value in values])
    return BYTE_ORDER_MARK + text.getvalue()


def guarded(cell: str) -> str:
    """A cell with an apostrophe in front if a spreadsheet would run it as a formula; `unguarded` is the inverse."""
    return f"'{cell}" if cell.lstrip("'").startswith(FORMULA) else cell


def unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def to_ntriples(content: Content) -> str:
    """References and accepted pairs as N-Triples; an id that is not an IRI becomes a URN."""
    return "".join(
        f"<{iri(row.head, ENTITY)}> <{iri(row.relation, RELATION)}> <{iri(row.tail, ENTITY)}> .\n"
        for row in content.true
    )


def iri(text: str, prefix: str) -> str:
    """The text if it is an absolute IRI, else a URN that contains it; `of_iri` is the inverse."""
    if IRI.fullmatch(text) and not text.startswith(("urn:fewlink:", "_:")):
        return text
    return prefix + quote(text, safe="", errors="surrogatepass")


def of_iri(text: str) -> str:
    """The id that `iri` turned into an IRI or URN."""
    text = ESCAPED.sub(lambda found: chr(int(found[1][1:], 16)), text)
    for prefix in (ENTITY, RELATION):
        if text.startswith(prefix):
            return unquote(text.removeprefix(prefix), errors="surrogatepass")
    return text


def to_quickstatements(content: Content) -> str:
    """References and accepted pairs as commands of QuickStatements, version 1: item, property and item."""
    return "".join(
        f"{_wikidata(row.head, 'Q')}\t{_wikidata(row.relation, 'P')}\t{_wikidata(row.tail, 'Q')}\n"
        for row in content.true
    )


def _wikidata(text: str, letter: str) -> str:
    """The Wikidata id in an id or IRI; raises unless it names an item (Q) or a property (P)."""
    found = WIKIDATA.fullmatch(text)
    if found and found[1].startswith(letter):
        return found[1]
    if letter == "P":
        raise FewlinkError(
            f"QuickStatements needs a property of Wikidata, not '{text}': name one, as in --relation P31"
        )
    raise FewlinkError(
        f"QuickStatements needs items of Wikidata such as Q42, and '{text}' is not one: use another format"
    )


def to_stix(content: Content) -> str:
    """References and accepted pairs as STIX relationships, with the objects that they join."""
    ends = dict.fromkeys(end for row in content.true for end in (row.head, row.tail))
    first_decided: dict[tuple[str, str, str], str] = {}
    for event in content.log:
        if event.kind in ("reference", "accepted"):
            first_decided.setdefault((event.who, *event.pair), event.time)
    links = [
        stix.Link(
            row.head,
            row.relation,
            row.tail,
            probability=row.probability,
            who=row.who,
            time=row.time,
            created=first_decided.get((row.who, row.head, row.tail), ""),
        )
        for row in content.true
    ]
    note = f"Decided in the project '{content.project.name}' of fewlink."
    if content.project.description:
        note = f"{content.project.description}\n\n{note}"
    bundle = content.described.bundle(list(ends))
    written = stix.relationships(links, bundle, note=note, now=content.project.made)
    return json.dumps(written, indent=1) + "\n"


def to_json(content: Content) -> str:
    """The project and its whole log."""
    facts = content.project
    whole = {
        "format": JSON_FORMAT,
        "name": facts.name,
        "description": facts.description,
        "made": facts.made,
        "log": [asdict(event) for event in content.log],
    }
    return json.dumps(whole, indent=1) + "\n"


FORMATS = {
    "csv": ProjectFormat(
        "CSV", "All decisions with names, for spreadsheets.", (".csv",), "text/csv", to_csv, described=True
    ),
    "nt": ProjectFormat(
        "N-Triples",
        "True pairs as RDF, which all commands read as triples.",
        (".nt", ".ntriples"),
        "application/n-triples",
        to_ntriples,
        described=False,
    ),
    "quickstatements": ProjectFormat(
        "QuickStatements",
        "True pairs for Wikidata: items (Q…), and a property (P…) as relation.",
        (".qs",),
        "text/plain",
        to_quickstatements,
        described=False,
    ),
    "stix": ProjectFormat(
        "STIX 2.1",
        "True pairs as relationships with a confidence, for OpenCTI and others.",
        (".stix.json", ".stix"),
        "application/stix+json",
        to_stix,
        described=True,
    ),
    "json": ProjectFormat(
        "JSON",
        "The whole log, undone decisions included.",
        (".json",),
        "application/json",
        to_json,
        described=False,
    ),
}
