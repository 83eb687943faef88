"""Import decisions into a project: tables (CSV, or with tabs), N-Triples, and whole logs as JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fewlink.core.errors import InputError, choose, read_file, unique_keys
from fewlink.core.words import plural
from fewlink.curation.exports import BYTE_ORDER_MARK, COLUMNS, JSON_FORMAT, MADE_WITH, format_of, of_iri, unguarded
from fewlink.curation.store import KINDS, Event, ProjectFile, now

WITHOUT_HEADER = ("head", "tail", "decision", "who", "time", "probability")  # the columns of a table without a header
TABLES = (".tsv", ".txt")  # suffixes of tables, beside that of CSV
TRIPLE = re.compile(r"\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*\.\s*(#.*)?")
Find = Callable[[str], str | None]  # from the name or id of an entity to its id


@dataclass(frozen=True)
class Decisions:
    """What a file holds: decisions, and the description and the relation of their project, empty if it has none.

    `log` says that these are all events of a project, undone ones included.
    """

    events: Sequence[Event]
    description: str = ""
    relation: str = ""
    log: bool = False


@dataclass(frozen=True)
class Imported:
    """The number of events added and read, and the pairs with entities that the graph lacks."""

    added: int
    read: int
    unknown: Sequence[tuple[str, str]] = ()


def read_decisions(path: Path, who: str = "") -> Decisions:
    """The decisions in a file, whose suffix gives the format."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    format = "csv" if path.name.lower().endswith(TABLES) else format_of(path)
    return decisions_in(text, format, who, path)


def decisions_in(text: str, format: str, who: str = "", path: str | Path = "the import") -> Decisions:
    """The decisions in a text; errors name it as `path`.

    Decisions without curator or time get `who` and the current time.
    """
    read = choose("format", format, READERS)
    found = read(Path(path), text.removeprefix(BYTE_ORDER_MARK), who)
    if not found.events:
        raise InputError(path, "has no decisions to import")
    return found


def add_decisions(file: ProjectFile, project: str, decisions: Decisions, find: Find | None = None) -> Imported:
    """Add decisions to a project, all or none; a missing project is created.

    Decisions that the project already has are skipped. `find` maps the name or id of an entity to its id, or to None if
    no entity or several match; such names stay as they are.
    """
    events = decisions.events
    unknown: list[tuple[str, str]] = []
    if find is not None:
        events, unknown = by_id(events, find)
    changed: Sequence[Event] = events
    if not decisions.log and project in {known.name for known in file.projects()}:
        before = {state.pair: state.kind for state in file.decisions(project)}
        changed = [event for event in events if before.get(event.pair) != event.kind]
    return Imported(file.merge(project, changed, make=decisions.description), len(events), unknown)


def by_id(events: Sequence[Event], find: Find) -> tuple[list[Event], list[tuple[str, str]]]:
    """Replace names by ids; also return the pairs with an entity that was not found, whose name stays."""
    ids = {name: find(name) for name in dict.fromkeys(end for event in events for end in event.pair)}
    unknown = dict.fromkeys(event.pair for event in events if None in map(ids.get, event.pair))
    return [replace(e, head=ids[e.head] or e.head, tail=ids[e.tail] or e.tail) for e in events], list(unknown)


def from_csv(path: Path, text: str, who: str) -> Decisions:
    """Read a table. Columns have the names in the first row, or else those of `WITHOUT_HEADER`.

    Columns are separated by the commonest of comma, semicolon and tab in the first line; without quotes if by tabs. The
    first line of a table that `fewlink complete` has written is left out. A row whose column `decision` is empty is
    undecided, and left out; in a table without that column, all are accepted.
    """
    skipped = 1 if text.startswith(MADE_WITH) else 0
    if skipped:
        text = text.partition("\n")[2]
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    tabs = delimiter == "\t"
    quoting: Literal[0, 3] = csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    events: list[Event] = []
    relations: set[str] = set()
    columns: tuple[str, ...] = ()
    header = False
    time = now()
    try:
        for cells in reader:
            number = reader.line_num + skipped
            cells = [_unescaped(cell) if tabs else unguarded(cell) for cell in cells]
            if not any(map(str.strip, cells)):
                continue
            if not columns:
                header = {"head", "tail"} <= set(cells)
                columns = tuple(cells) if header else WITHOUT_HEADER
                if "rank" in columns and "decision" not in columns:
                    problem = "lists predictions: add a column 'decision' with accepted or rejected"
                    raise InputError(path, problem, number)
                if header:
                    continue
            row = dict(zip(columns, cells, strict=False))
            if len(cells) > len(columns) or not row.get("head", "").strip() or not row.get("tail", "").strip():
                expected = ", ".join(columns if header else COLUMNS)
                raise InputError(path, f"has {plural(len(cells), 'column')}: write {expected}", number)
            if header and "decision" in columns and not row.get("decision"):
                continue
            if row.get("relation"):
                relations.add(row["relation"])
            events.append(_decision(path, number, row, who, time))
    except csv.Error as error:
        raise InputError(path, f"is not CSV ({error})", reader.line_num + skipped) from None
    return Decisions(events, relation=_only_relation(path, relations))


def _unescaped(text: str) -> str:
    letters = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    return re.sub(r"\\([tnr\\])", lambda found: letters[found[1]], text)


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
    """Read accepted pairs from lines of three IRIs."""
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


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers."""
    return ((number, line) for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if line.strip())


def from_json(path: Path, text: str, who: str) -> Decisions:
    """Read the log of a project."""
    try:
        content = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON ({error})") from None
    if not isinstance(content, dict) or content.get("format") != JSON_FORMAT:
        raise InputError(path, f"is not a project export: its format is not '{JSON_FORMAT}'")
    try:
        events = [_checked(Event(**fields)) for fields in content["log"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is a damaged export ({error})") from None
    description = content.get("description")
    name = content.get("name")
    return Decisions(
        events,
        description=description if isinstance(description, str) else "",
        relation=name if isinstance(name, str) else "",
        log=True,
    )


def _checked(event: Event) -> Event:
    """The event; raises ValueError if one of its fields is invalid."""
    if not isinstance(event.number, int):
        raise ValueError("an event's number is not a number")
    if not is_probability(event.probability):
        raise ValueError(f"the probability of event {event.number} is not a number from 0 to 1")
    texts = all(isinstance(each, str) for each in (event.kind, event.head, event.tail, event.who, event.time))
    undoes = isinstance(event.undoes, int) if event.kind == "undo" else event.undoes is None
    if not (texts and undoes and event.head.strip() and event.tail.strip() and event.kind in (*KINDS, "undo")):
        raise ValueError(f"event {event.number} is not valid")
    return event


READERS = {"csv": from_csv, "nt": from_ntriples, "json": from_json}
