"""Export and import projects: decisions as TSV, true pairs as triples or N-Triples, the whole log as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from fewlink.core.errors import FewlinkError, InputError, choose, read_file
from fewlink.core.storage import write_bytes
from fewlink.curation.schema import KINDS, Event
from fewlink.curation.store import ProjectFile, now
from fewlink.graph.vocabulary import FEWLINK_IRI_PREFIXES

FORMAT, FORMAT_1 = "fewlink-project/2", "fewlink-project/1"  # format 1 has no probabilities
HEADER = ("head", "tail", "decision", "who", "time", "probability")
ENTITY, RELATION = FEWLINK_IRI_PREFIXES  # for ids that are not IRIs
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]+")
TRIPLE = re.compile(r"\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*<([^\x00-\x20<>]+)>\s*\.\s*(#.*)?")
Find = Callable[[str], str | None]  # from the name or id of an entity to its id
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


class Imported(NamedTuple):
    """The number of events added and read, and the pairs with entities that the graph lacks."""

    added: int
    read: int
    unknown: Sequence[tuple[str, str]] = ()


def export(file: ProjectFile, project: str | int, format: str) -> str:
    """A project as text: decided pairs (`tsv`), true pairs (`triples`, `nt`) or everything (`json`)."""
    return choose("format", format, WRITERS)(file, project)


def write_export(file: ProjectFile, project: str | int, path: Path, format: str | None = None) -> Path:
    """Write an export atomically; by default, the suffix of the file decides the format."""
    write_bytes(path, export(file, project, format or format_of(path)).encode("utf-8", "surrogatepass"))
    return path


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
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    return import_text(file, project, text, format or format_of(path), who=who, path=path, find=find)


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
    description, events = choose("format", format, READERS)(Path(path), text, who)
    if not events:
        raise InputError(path, "has no decisions to import")
    unknown: list[tuple[str, str]] = []
    if find is not None:
        events, unknown = by_id(events, find)
    changed: Sequence[Event] = events
    if format != "json" and project in {known.name for known in file.projects()}:
        before = {state.pair: state.kind for state in file.decisions(project)}
        changed = [event for event in events if before.get(event.pair) != event.kind]
    return Imported(file.merge(project, changed, make=description), len(events), unknown)


def by_id(events: Sequence[Event], find: Find) -> tuple[list[Event], list[tuple[str, str]]]:
    """Replace names by ids; also return the pairs with an entity that was not found, whose name stays."""
    ids = {name: find(name) for name in dict.fromkeys(end for event in events for end in event.pair)}
    unknown = dict.fromkeys(event.pair for event in events if None in map(ids.get, event.pair))
    return [replace(e, head=ids[e.head] or e.head, tail=ids[e.tail] or e.tail) for e in events], list(unknown)


def format_of(path: Path) -> str:
    """The format of a file by its suffix; raises if the suffix is unknown."""
    suffix = path.suffix.lower()
    formats = {".tsv": "tsv", ".txt": "tsv", ".nt": "nt", ".ntriples": "nt", ".json": "json"}
    if suffix not in formats:
        raise InputError(path, "has an unknown suffix: use .tsv, .nt or .json")
    return formats[suffix]


def to_tsv(file: ProjectFile, project: str | int) -> str:
    """A header and a line for each decided pair; tabs, line ends and backslashes in names are escaped."""
    rows = [HEADER]
    for state in file.decisions(project):
        probability = "" if state.probability is None else repr(state.probability)
        rows.append((state.head, state.tail, state.kind, state.who, state.time, probability))
    return "".join("\t".join(cell.translate(ESCAPES) for cell in row) + "\n" for row in rows)


def to_triples(file: ProjectFile, project: str | int) -> str:
    """References and accepted pairs as lines of head, relation and tail, which all commands read as triples.

    Names are not escaped; raises if one contains a tab or line break.
    """
    relation = file.project(project).name
    rows = [(head, relation, tail) for head, tail in file.pairs(project, *KINDS[:2])]
    if broken := next((name for row in rows for name in row if re.search("[\t\n\r]", name)), None):
        raise FewlinkError(f"'{broken}' contains a tab or line break: export .nt or .json instead")
    return "".join("\t".join(row) + "\n" for row in rows)


def to_ntriples(file: ProjectFile, project: str | int) -> str:
    """References and accepted pairs as N-Triples; an id that is not an IRI becomes a URN."""
    relation = iri(file.project(project).name, RELATION)
    lines = [f"<{iri(h, ENTITY)}> <{relation}> <{iri(t, ENTITY)}> .\n" for h, t in file.pairs(project, *KINDS[:2])]
    return "".join(lines)


def to_json(file: ProjectFile, project: str | int) -> str:
    """The project and its whole log."""
    facts = file.project(project)
    content = {
        "format": FORMAT,
        "name": facts.name,
        "description": facts.description,
        "made": facts.made,
        "log": [asdict(event) for event in file.log(project)],
    }
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


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


def from_tsv(path: Path, text: str, who: str) -> tuple[str, list[Event]]:
    events, time = [], now()
    for number, line in _lines(text):
        cells = [_unescaped(cell) for cell in line.split("\t")]
        if number == 1 and tuple(cells[:2]) == HEADER[:2]:
            continue
        if not 2 <= len(cells) <= len(HEADER) or not all(cells[:2]):
            raise InputError(path, f"has {len(cells)} columns: write {', '.join(HEADER)}", number)
        head, tail, kind, by, at, chance = [*cells, *[""] * (len(HEADER) - len(cells))]
        kind = kind or "accepted"
        if kind not in KINDS:
            raise InputError(path, f"unknown decision '{kind}': use {', '.join(KINDS)}", number)
        try:
            probability = float(chance) if chance.strip() else None
        except ValueError:
            probability = -1.0
        if not is_probability(probability):
            raise InputError(path, f"the probability '{chance}' is not a number from 0 to 1", number)
        events.append(Event(number, kind, head, tail, None, by or who, at or time, probability))
    return "", events


def is_probability(value: object) -> bool:
    """Whether a value is None or a number from 0 to 1."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)


def from_ntriples(path: Path, text: str, who: str) -> tuple[str, list[Event]]:
    events, relations, time = [], set(), now()
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
    if len(relations) > 1:
        raise InputError(path, f"has {len(relations)} relations, but a project has one: split the file")
    return "", events


def from_json(path: Path, text: str, who: str) -> tuple[str, list[Event]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"is not JSON ({error})") from None
    if not isinstance(content, dict) or content.get("format") not in (FORMAT, FORMAT_1):
        raise InputError(path, f"is not a project export: its format is not '{FORMAT}'")
    try:
        events = [_checked(Event(**fields)) for fields in content["log"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, f"is a damaged export ({error})") from None
    return str(content.get("description", "")), events


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


WRITERS: dict[str, Callable[[ProjectFile, str | int], str]] = {
    "tsv": to_tsv,
    "triples": to_triples,
    "nt": to_ntriples,
    "json": to_json,
}
READERS: dict[str, Callable[[Path, str, str], tuple[str, list[Event]]]] = {
    "tsv": from_tsv,
    "nt": from_ntriples,
    "json": from_json,
}
