"""Import decisions into a project: tables (TSV, CSV), N-Triples, Turtle with provenance, and whole logs as JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from fewlink.core.errors import InputError, choose, read_file, unique_keys
from fewlink.core.words import plural
from fewlink.curation.exports import BYTE_ORDER_MARK, COLUMNS, JSON_FORMAT, MADE_WITH, format_of, unguarded
from fewlink.curation.rdf import of_iri, read_statements
from fewlink.curation.schema import KINDS, Event
from fewlink.curation.store import ProjectFile, now
from fewlink.graph.compression import Budget

JSON_FORMAT_1 = "fewlink-project/1"  # has no probabilities
WITHOUT_HEADER = ("head", "tail", "decision", "who", "time", "probability")  # the columns of a table without a header
TRIPLE = re.compile(r"\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*\.\s*(#.*)?")
Find = Callable[[str], str | None]  # from the name or id of an entity to its id


class Decisions(NamedTuple):
    """What a file holds: decisions, and the description and the relation of their project, empty if it has none."""

    events: Sequence[Event]
    description: str = ""
    relation: str = ""


class Imported(NamedTuple):
    """The number of events added and read, and the pairs with entities that the graph lacks."""

    added: int
    read: int
    unknown: Sequence[tuple[str, str]] = ()


def import_file(
    file: ProjectFile,
    project: str,
    path: Path,
    *,
    format: str | None = None,
    who: str = "",
    find: Find | None = None,
) -> Imported:
    """Add the decisions of an export to a project, all or none; a missing project is created.

    Decisions that the project already has are skipped. Decisions without curator or time get `who` and the current
    time. `find` maps the name or id of an entity to its id, or to None if no entity or several match; such names stay
    as they are.
    """
    format = format or format_of(path)
    return add_decisions(file, project, read_decisions(path, format, who), format, find)


def import_text(
    file: ProjectFile,
    project: str,
    text: str,
    format: str,
    *,
    who: str = "",
    path: str | Path = "the import",
    find: Find | None = None,
) -> Imported:
    """Import from text, like `import_file`; errors name it as `path`."""
    return add_decisions(file, project, decisions_in(text, format, who, path), format, find)


def read_decisions(path: Path, format: str | None = None, who: str = "") -> Decisions:
    """The decisions in a file; `format` is that of its suffix by default."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    return decisions_in(text, format or format_of(path), who, path)


def decisions_in(text: str, format: str, who: str = "", path: str | Path = "the import") -> Decisions:
    """The decisions in a text; errors name it as `path`."""
    read = choose("format", format, READERS)
    found = read(Path(path), text.removeprefix(BYTE_ORDER_MARK), who)
    if not found.events:
        raise InputError(path, "has no decisions to import")
    return found


def add_decisions(
    file: ProjectFile, project: str, decisions: Decisions, format: str, find: Find | None = None
) -> Imported:
    """Add decisions that were read from a format, as `import_file` does."""
    events = decisions.events
    unknown: list[tuple[str, str]] = []
    if find is not None:
        events, unknown = by_id(events, find)
    changed: Sequence[Event] = events
    if format != "json" and project in {known.name for known in file.projects()}:
        before = {state.pair: state.kind for state in file.decisions(project)}
        changed = [event for event in events if before.get(event.pair) != event.kind]
    return Imported(file.merge(project, changed, make=decisions.description), len(events), unknown)


def read_fields(text: str, format: str, who: str) -> tuple[str, list[dict[str, Any]]]:
    """The description and the decisions in a text, as JSON."""
    found = decisions_in(text, format, who)
    return found.description, [asdict(event) for event in found.events]


def by_id(events: Sequence[Event], find: Find) -> tuple[list[Event], list[tuple[str, str]]]:
    """Replace names by ids; also return the pairs with an entity that was not found, whose name stays."""
    ids = {name: find(name) for name in dict.fromkeys(end for event in events for end in event.pair)}
    unknown = dict.fromkeys(event.pair for event in events if None in map(ids.get, event.pair))
    return [replace(e, head=ids[e.head] or e.head, tail=ids[e.tail] or e.tail) for e in events], list(unknown)


def from_tsv(path: Path, text: str, who: str) -> Decisions:
    """Read a table with tabs; the first line of one that `fewlink complete` has written is left out."""
    lines = ((number, line) for number, line in _lines(text) if number > 1 or not line.startswith(MADE_WITH))
    return _table(path, ((number, [_unescaped(cell) for cell in line.split("\t")]) for number, line in lines), who)


def from_csv(path: Path, text: str, who: str) -> Decisions:
    """Read a table of a spreadsheet; columns are separated by the commonest of comma, semicolon and tab in line 1."""
    first = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    try:
        rows = [(reader.line_num, [unguarded(cell) for cell in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise InputError(path, f"is not CSV ({error})", reader.line_num) from None
    return _table(path, rows, who)


def _table(path: Path, rows: Iterable[tuple[int, list[str]]], who: str) -> Decisions:
    """The decisions in numbered rows. Columns have the names in the first row, or else those of `WITHOUT_HEADER`.

    A row whose column `decision` is empty is undecided, and left out; in a table without that column, all are accepted.
    """
    events: list[Event] = []
    relations: set[str] = set()
    columns: tuple[str, ...] = WITHOUT_HEADER
    time = now()
    header = False
    for place, (number, cells) in enumerate(rows):
        if place == 0 and {"head", "tail"} <= set(cells):
            header = True
            columns = tuple(cells)
            if "rank" in columns and "decision" not in columns:
                raise InputError(path, "lists predictions: add a column 'decision' with accepted or rejected", number)
            continue
        row = dict(zip(columns, cells, strict=False))
        if len(cells) > len(columns) or not row.get("head") or not row.get("tail"):
            expected = ", ".join(columns if header else COLUMNS)
            raise InputError(path, f"has {plural(len(cells), 'column')}: write {expected}", number)
        if header and "decision" in columns and not row.get("decision"):
            continue
        relations |= {row["relation"]} if row.get("relation") else set()
        events.append(_decision(path, number, row, who, time))
    return Decisions(events, relation=_only_relation(path, relations))


def _decision(path: Path, number: int, row: Mapping[str, str], who: str, time: str) -> Event:
    """The decision in a row of texts by column; raises if one of them is not valid."""
    kind = row.get("decision") or "accepted"
    chance = row.get("probability", "")
    if kind not in KINDS:
        raise InputError(path, f"unknown decision '{kind}': use {', '.join(KINDS)}", number)
    try:
        probability = float(chance) if chance.strip() else None
    except ValueError:
        probability = -1.0
    if not is_probability(probability):
        raise InputError(path, f"the probability '{chance}' is not a number from 0 to 1", number)
    by = row.get("who") or who
    at = row.get("time") or time
    return Event(number, kind, row["head"], row["tail"], None, by, at, probability)


def _only_relation(path: Path, relations: set[str]) -> str:
    """The relation that a file names, or nothing; raises if it names several."""
    if len(relations) > 1:
        raise InputError(path, f"has {len(relations)} relations, but a project has one: split the file")
    return next(iter(relations), "")


def is_probability(value: object) -> bool:
    """Whether a value is None or a number from 0 to 1."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)


def from_ntriples(path: Path, text: str, who: str) -> Decisions:
    events = []
    relations = set()
    time = now()
    for number, line in _lines(text):
        if line.lstrip().startswith("#"):
            continue
        triple = TRIPLE.fullmatch(line)
        if triple is None:
            raise InputError(path, "is not a triple of three IRIs: <head> <relation> <tail> .", number)
        try:
            head, relation, tail = map(of_iri, triple.groups()[:3])
        except (ValueError, OverflowError):
            raise InputError(path, "has an escape that is not a Unicode character", number) from None
        relations.add(relation)
        events.append(Event(number, "accepted", head, tail, None, who, time))
    return Decisions(events, relation=_only_relation(path, relations))


def from_turtle(path: Path, text: str, who: str) -> Decisions:
    """Read the statements with provenance that an export has; other triples of the file are not decisions."""
    budget = Budget(path, len(text))
    try:
        statements = read_statements(text, lambda size: budget.spend(size, "expands to"))
    except SyntaxError as error:
        raise InputError(path, f"is not Turtle ({error.msg})", error.lineno) from None
    time = now()
    for number, each in enumerate(statements, 1):
        if not (each.head and each.tail):
            raise InputError(path, f"its statement {number} has no subject or no object that is an IRI")
    relation = _only_relation(path, {each.relation for each in statements})
    events = [_decision(path, number, each._asdict(), who, time) for number, each in enumerate(statements, 1)]
    return Decisions(events, relation=relation)


def from_json(path: Path, text: str, who: str) -> Decisions:
    try:
        content = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON ({error})") from None
    if not isinstance(content, dict) or content.get("format") not in (JSON_FORMAT, JSON_FORMAT_1):
        raise InputError(path, f"is not a project export: its format is not '{JSON_FORMAT}'")
    try:
        events = [_checked(Event(**fields)) for fields in content["log"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is a damaged export ({error})") from None
    description, name = (found if isinstance(found := content.get(key), str) else "" for key in ("description", "name"))
    return Decisions(events, description, name)


def _checked(event: Event) -> Event:
    """The event; raises ValueError if one of its fields is invalid."""
    if not isinstance(event.number, int):
        raise ValueError("an event's number is not a number")
    if not is_probability(event.probability):
        raise ValueError(f"the probability of event {event.number} is not a number from 0 to 1")
    texts = all(isinstance(each, str) for each in (event.kind, event.head, event.tail, event.who, event.time))
    undoes = isinstance(event.undoes, int) if event.kind == "undo" else event.undoes is None
    if not (texts and undoes and event.kind in (*KINDS, "undo")):
        raise ValueError(f"event {event.number} is not valid")
    return event


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers."""
    return ((number, line) for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if line.strip())


def _unescaped(text: str) -> str:
    letters = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([tnr\\])", lambda found: letters[found[1]], text)


READERS: dict[str, Callable[[Path, str, str], Decisions]] = {
    "tsv": from_tsv,
    "csv": from_csv,
    "nt": from_ntriples,
    "turtle": from_turtle,
    "json": from_json,
}
