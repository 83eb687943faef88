"""The project file: references and curators' decisions in SQLite, as an append-only log.

A project is a relation to complete. Each reference, acceptance, rejection and undo is an event with its curator and its
time (UTC). The last event of a pair that is not undone counts; an earlier, different decision of another curator is its
`conflict`. Committed events survive crashes and power loss, and several processes and threads can write. Each row has a
checksum, which is compared when the file is opened. Entities are stored by their ids in the graph.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from fewlink.core.errors import FewlinkError, InputError, UnknownName, check_file, did_you_mean
from fewlink.core.files import replaced_file

APPLICATION = 0x46574C4B  # "FWLK": marks the SQLite file as ours
FORMAT = 4  # of the files that are written, as SQLite's user_version
CHAINED = 3  # the format of fewlink 0.3, in which the hash of an event begins with that of the event before it
LOCK_SECONDS = 30.0  # for writers to wait for each other
MAX_CHARACTERS = 4_000  # of a name or a description
KINDS = ("reference", "accepted", "rejected")  # of decisions; a project starts with its references
COLUMNS = "number, kind, head, tail, undoes, who, time, probability"
PROJECT_COLUMNS = "number, name, description, made"
MIN_ACCEPTED = 8  # pairs, before one tail can crowd out the rest
CROWDED = 2 / 3  # of the accepted pairs, with one tail
NewDecision = tuple[str, str, str] | tuple[str, str, str, float | None]  # kind, head, tail, the model's probability

TABLES = """
CREATE TABLE project (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    made TEXT NOT NULL,
    hash TEXT NOT NULL DEFAULT ''
);
CREATE TABLE event (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project INTEGER NOT NULL REFERENCES project (number),
    kind TEXT NOT NULL CHECK (kind IN ('reference', 'accepted', 'rejected', 'undo')),
    head TEXT NOT NULL,
    tail TEXT NOT NULL,
    undoes INTEGER UNIQUE REFERENCES event (number),
    who TEXT NOT NULL,
    time TEXT NOT NULL,
    probability REAL CHECK (probability BETWEEN 0 AND 1),
    hash TEXT NOT NULL DEFAULT '',
    CHECK ((kind = 'undo') = (undoes IS NOT NULL))
);
CREATE INDEX pair ON event (project, head, tail, number);
"""
UPGRADE = """
DROP TRIGGER IF EXISTS no_change;
DROP TRIGGER IF EXISTS no_removal;
DROP VIEW IF EXISTS decision;
DROP VIEW IF EXISTS counting;
DROP INDEX IF EXISTS copy_of_projects;
DROP INDEX IF EXISTS copy_of_events;
ALTER TABLE project ADD COLUMN hash TEXT NOT NULL DEFAULT '';
"""
VIEWS = """
CREATE TEMP VIEW counting AS
    SELECT * FROM event
    WHERE kind <> 'undo' AND NOT EXISTS (SELECT 1 FROM event AS undo WHERE undo.undoes = event.number);
CREATE TEMP VIEW decision AS
    SELECT last.*, (
        SELECT number FROM counting AS other
        WHERE other.project = last.project AND other.head = last.head AND other.tail = last.tail
            AND other.number < last.number AND other.who <> last.who
            AND (other.kind = 'rejected') <> (last.kind = 'rejected')
        ORDER BY number DESC LIMIT 1
    ) AS conflict
    FROM counting AS last
    WHERE number = (
        SELECT max(number) FROM counting AS later
        WHERE later.project = last.project AND later.head = last.head AND later.tail = last.tail
    );
"""


@dataclass(frozen=True)
class Event:
    """An entry of the log: a decision, or an "undo" of the event `undoes`, with the same pair.

    `probability` is the model's unadjusted probability of the pair at that time; None if unknown.
    """

    number: int
    kind: str
    head: str
    tail: str
    undoes: int | None
    who: str
    time: str
    probability: float | None = None

    @property
    def pair(self) -> tuple[str, str]:
        return self.head, self.tail


@dataclass(frozen=True)
class Decision(Event):
    """The current decision on a pair; `conflict` is an earlier, different decision of another curator."""

    conflict: Event | None = None


@dataclass(frozen=True)
class Project:
    """A relation to complete, with the numbers of its decisions."""

    number: int
    name: str
    description: str
    made: str
    references: int
    accepted: int
    rejected: int
    conflicts: int
    events: int


class TailCount(NamedTuple):
    """A tail, and how many accepted pairs have it."""

    tail: str
    accepted: int


@dataclass(frozen=True)
class Progress:
    """The numbers of accepted and rejected pairs, and the `tails` of the accepted ones, the most frequent first."""

    accepted: int
    rejected: int
    tails: tuple[TailCount, ...]

    @property
    def decided(self) -> int:
        return self.accepted + self.rejected

    @property
    def right(self) -> float | None:
        """The share of the decided pairs that were accepted; None before the first decision."""
        return self.accepted / self.decided if self.decided else None

    def warning(self, name: Callable[[str], str] = str) -> str | None:
        """The sentence that warns of a tail that most accepted pairs have; `name` makes its id readable."""
        if self.accepted < MIN_ACCEPTED or self.tails[0].accepted <= CROWDED * self.accepted:
            return None
        tail, count = self.tails[0]
        share = "all" if count == self.accepted else f"{count:,} of"
        return (
            f"{share} {self.accepted:,} accepted pairs have the tail {name(tail)}:"
            " decide pairs with other tails too, or let the most informative come first"
        )


class ProjectFile:
    """A file of projects, created if it does not exist unless `must_exist`; without `write`, it is read-only."""

    def __init__(self, path: str | Path, *, must_exist: bool = False, write: bool = True) -> None:
        self.path = Path(path)
        self.write = write
        self._lock = threading.RLock()  # one connection, used by one thread at a time
        self._check_file(must_exist or not write)
        with self._errors():
            self._base = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}",
                uri=True,
                timeout=LOCK_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._base.close()
            raise

    def _check_file(self, must_exist: bool) -> None:
        """Raise if the file cannot be opened or is not a project file."""
        if not os.path.exists(self.path):
            if must_exist:
                raise InputError(self.path, "does not exist: `fewlink serve --project FILE` creates it")
            _check_folder(self.path)
            return
        check_file(self.path)

    def _prepare(self) -> None:
        """Make the tables of a new file, check the rows, and turn a file of fewlink 0.3 into one of this format."""
        self._base.execute("PRAGMA foreign_keys = ON")
        self._base.execute("PRAGMA synchronous = EXTRA")  # a commit is on the disk when it returns
        if self.write and not self._is_ours():
            with self._transaction():
                if not self._is_ours():  # another process may have made them
                    self._run_all(TABLES)
                    self._base.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._base.execute(f"PRAGMA user_version = {FORMAT}")
        if not self._is_ours():
            raise InputError(self.path, "is not a project file: name another file, or a new one")
        with self._reading():  # one state of the file: others may be writing
            problem = _problem_of(self._base)
        if problem:
            raise self._damaged(problem)
        if self.write and _format_of(self._base) < FORMAT:
            with self._transaction():
                if _format_of(self._base) < FORMAT:  # another process may have done it
                    self._run_all(UPGRADE)
                    self._hash("project", PROJECT_COLUMNS)
                    self._hash("event", f"project, {COLUMNS}")
                    self._base.execute(f"PRAGMA user_version = {FORMAT}")
        self._run_all(VIEWS)
        if not self.write:
            self._base.execute("PRAGMA query_only = ON")

    def _run_all(self, script: str) -> None:
        """Run the statements of a script, in the transaction that is open."""
        for statement in script.split(";\n"):
            self._base.execute(statement)

    def _hash(self, table: str, columns: str, number: int | None = None) -> None:
        """Store the checksum of a row, or of all rows."""
        where = "" if number is None else f" WHERE number = {number}"
        for row in self._base.execute(f"SELECT number, {columns} FROM {table}{where}").fetchall():
            self._base.execute(f"UPDATE {table} SET hash = ? WHERE number = ?", (_hash_of(row[1:]), row[0]))

    def _is_ours(self) -> bool:
        """Whether the file has our tables; False if it is empty, and an error if another program wrote it."""
        # Tables are counted first: another process may be making ours.
        tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = self._base.execute("PRAGMA application_id").fetchone()[0]
        version = _format_of(self._base)
        if application == APPLICATION and not CHAINED <= version <= FORMAT:
            raise InputError(
                self.path, f"has format {version}, but this version of fewlink reads {FORMAT}: install a newer fewlink"
            )
        if application != APPLICATION and tables:
            raise InputError(self.path, "is an SQLite file of another program, not a project file: name another file")
        return bool(application == APPLICATION)

    def close(self) -> None:
        with self._lock:
            self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def projects(self) -> list[Project]:
        """All projects, in order of creation."""
        with self._reading():
            rows = self._base.execute(f"SELECT {PROJECT_COLUMNS} FROM project ORDER BY number").fetchall()
            return [self._counted(row) for row in rows]

    def project(self, name: str | int) -> Project:
        """A project by its name or number; raises if there is none."""
        with self._reading():
            return self._counted(self._find(name))

    def only(self, name: str | None, default: str | None = None) -> str:
        """The project `name`, else the only one in the file, else `default`; raises if there are several."""
        names = [project.name for project in self.projects()]
        if name is None and default is not None and not names:
            return default
        if name is None and len(names) != 1:
            if not names:
                raise InputError(self.path, "has no projects yet")
            raise InputError(self.path, f"has {len(names)} projects ({', '.join(names[:10])}): name one")
        return self.project(names[0] if name is None else name).name

    def add_project(
        self, name: str, references: Iterable[tuple[str, str]] = (), *, description: str = "", who: str = ""
    ) -> Project:
        """Create a project with these references; raises if the name is taken."""
        with self._writing():
            number = self._make(name, description)
            self._append(number, [("reference", *pair) for pair in references], who, None)
            return self.project(number)

    def _make(self, name: str, description: str) -> int:
        """Insert a project and return its number."""
        name = _checked(name.strip(), "the name of a project")
        sql = "INSERT INTO project (name, description, made)"
        try:
            added = self._base.execute(f"{sql} VALUES (?, ?, ?)", (name, description[:MAX_CHARACTERS], now()))
        except sqlite3.IntegrityError:
            raise FewlinkError(f"{self.path} has a project '{name}' already: choose another name") from None
        number = int(added.lastrowid or 0)
        self._hash("project", PROJECT_COLUMNS, number)
        return number

    def decide(
        self, project: str | int, decisions: Iterable[NewDecision], who: str = "", time: str | None = None
    ) -> list[Decision]:
        """Store decisions (kind, head, tail), all or none, and return the current decisions on their pairs.

        A decision can have a fourth item, the model's unadjusted probability of the pair. A decision that repeats the
        curator's last one on the pair is not stored, nor one without a name that repeats the current one.
        """
        with self._writing():
            number = self._find(project)[0]
            pairs = self._append(number, decisions, who, time)
            states = {state.pair: state for pair in pairs for state in self._states(number, pair=pair)}
        return [states[pair] for pair in pairs]

    def undo(self, project: str | int, number: int | None = None, who: str = "") -> Event:
        """Undo an event, by default the last current decision of `who`, and return it."""
        return self.undo_all(project, [number], who)[0]

    def undo_all(self, project: str | int, numbers: Sequence[int | None], who: str = "") -> list[Event]:
        """Undo several events, all or none; None stands for the last current decision of `who`."""
        with self._writing():
            row = self._find(project)
            return [self._undo(row, number, who) for number in numbers]

    def _undo(self, row: Any, number: int | None, who: str) -> Event:
        found = f"SELECT {COLUMNS} FROM counting WHERE project = ?"
        if number is None:
            found += " AND who = ? AND kind <> 'reference' ORDER BY number DESC LIMIT 1"
            event = self._base.execute(found, (row[0], who)).fetchone()
            if event is None:
                problem = f"'{who}' has no decision to undo"
                if not who:
                    problem = "no decision without a curator's name to undo: give who (--who) or event (--event)"
                raise FewlinkError(f"project '{row[1]}': {problem}")
        else:
            event = self._base.execute(found + " AND number = ?", (row[0], number)).fetchone()
            if event is None:
                raise FewlinkError(f"project '{row[1]}' has no event {number} to undo: see fewlink project log")
        undone = Event(*event)
        self._insert(row[0], "undo", undone.head, undone.tail, undone.number, who, now())
        return undone

    def decisions(self, project: str | int, kind: str | None = None) -> list[Decision]:
        """The current decisions, or those of one kind, oldest first."""
        with self._reading():
            return self._states(self._find(project)[0], kind)

    def pairs(self, project: str | int, *kinds: str) -> list[tuple[str, str]]:
        """The pairs (head, tail) with current decisions of these kinds, oldest first."""
        return [state.pair for state in self.decisions(project) if state.kind in kinds]

    def progress(self, project: str | int) -> Progress:
        """The share of right pairs so far, and the tails of the accepted ones."""
        count = "SELECT tail, count(*) FROM decision WHERE project = ? AND kind = 'accepted' GROUP BY tail"
        with self._reading():
            found = self.project(project)
            tails = self._base.execute(f"{count} ORDER BY count(*) DESC, min(number)", (found.number,))
            return Progress(found.accepted, found.rejected, tuple(TailCount(*row) for row in tails))

    def log(self, project: str | int) -> list[Event]:
        """All events, oldest first."""
        with self._reading():
            number = self._find(project)[0]
            rows = self._base.execute(f"SELECT {COLUMNS} FROM event WHERE project = ? ORDER BY number", (number,))
            return [Event(*row) for row in rows]

    def merge(self, project: str | int, events: Sequence[Event], *, make: str | None = None) -> int:
        """Add the events of another log that this one lacks, all or none, and return their number.

        With a description as `make`, a missing project is created with it.
        """
        with self._writing():
            if make is not None and project not in {known.name for known in self.projects()}:
                project = self._make(str(project), make)
            number, name = self._find(project)[:2]
            seen = Counter[Hashable]()
            own = {_key(event, event.undoes, seen): event.number for event in self.log(project)}
            seen.clear()
            numbers: dict[int, int] = {}  # event numbers of the other log → of this one
            added = 0
            for event in events:
                undoes = None if event.undoes is None else numbers.get(event.undoes)
                if event.kind == "undo" and undoes is None:
                    raise FewlinkError(
                        f"project '{name}': event {event.number} undoes {event.undoes}, which does not precede it"
                    )
                key = _key(event, undoes, seen)
                if key not in own:
                    taken = self._base.execute("SELECT 1 FROM event WHERE undoes = ?", (undoes,)).fetchone()
                    if taken is not None:
                        continue  # already undone here
                    head = _checked(event.head, "a head")
                    tail = _checked(event.tail, "a tail")
                    own[key] = self._insert(
                        number, event.kind, head, tail, undoes, event.who, event.time, event.probability
                    )
                    added += 1
                numbers[event.number] = own[key]
        return added

    def copy_to(self, path: str | Path) -> None:
        """Write a checked copy of the file as it is now, while others may write; raises if `path` exists."""
        path = Path(path)
        _check_folder(path)
        with replaced_file(path) as draft:
            if path.exists():
                raise InputError(path, "exists already: name another file, or move it away first")
            with self._lock, self._errors(path), closing(sqlite3.connect(draft)) as copy:
                self._base.backup(copy)
                problem = _problem_of(copy)
            if problem:
                raise self._damaged(problem)

    def _find(self, name: str | int) -> Any:
        """The row of a project."""
        column = "number" if isinstance(name, int) else "name"
        row = self._base.execute(f"SELECT {PROJECT_COLUMNS} FROM project WHERE {column} = ?", (name,)).fetchone()
        if row is None:
            names = [other for (other,) in self._base.execute("SELECT name FROM project ORDER BY number")]
            hint = f": it has {', '.join(names[:10])}" if names else ": it has none yet"
            raise UnknownName(f"{self.path} has no project '{name}'{did_you_mean(str(name), names) or hint}")
        return row

    def _counted(self, row: tuple[int, str, str, str]) -> Project:
        count = "SELECT kind, count(*), count(conflict) FROM decision WHERE project = ? GROUP BY kind"
        counts = {kind: (pairs, conflicts) for kind, pairs, conflicts in self._base.execute(count, (row[0],))}
        events = self._base.execute("SELECT count(*) FROM event WHERE project = ?", (row[0],)).fetchone()[0]
        references, accepted, rejected = (counts.get(kind, (0, 0))[0] for kind in KINDS)
        conflicts = sum(conflicts for _, conflicts in counts.values())
        return Project(*row, references, accepted, rejected, conflicts, events)

    def _states(self, project: int, kind: str | None = None, pair: tuple[str, str] | None = None) -> list[Decision]:
        where = "project = ?"
        values: list[Any] = [project]
        if kind:
            where += " AND kind = ?"
            values.append(kind)
        if pair:
            where += " AND head = ? AND tail = ?"
            values += pair
        rows = self._base.execute(f"SELECT {COLUMNS}, conflict FROM decision WHERE {where} ORDER BY number", values)
        states = []
        for row in rows.fetchall():
            other = None
            if row[-1] is not None:
                found = self._base.execute(f"SELECT {COLUMNS} FROM event WHERE number = ?", (row[-1],))
                other = Event(*found.fetchone())
            states.append(Decision(**asdict(Event(*row[:-1])), conflict=other))
        return states

    def _append(
        self, project: int, decisions: Iterable[NewDecision], who: str, time: str | None
    ) -> list[tuple[str, str]]:
        """Insert the decisions that are not repetitions, and return the pairs of all the given ones."""
        pairs: dict[tuple[str, str], None] = {}
        for kind, head, tail, *rest in decisions:
            if kind not in KINDS:
                raise FewlinkError(f"a decision is one of {', '.join(KINDS)}, not '{kind}'")
            pair = (_checked(head, "a head"), _checked(tail, "a tail"))
            pairs[pair] = None
            before = self._states(project, pair=pair)
            if not before or before[0].kind != kind or (who and before[0].who != who):
                self._insert(project, kind, *pair, None, who, time or now(), *rest)
        return list(pairs)

    def _insert(
        self,
        project: int,
        kind: str,
        head: str,
        tail: str,
        undoes: int | None,
        who: str,
        time: str,
        probability: float | None = None,
    ) -> int:
        if probability is not None and not 0 <= probability <= 1:
            raise FewlinkError(f"the probability of {head} → {tail} is {probability}: it must be from 0 to 1")
        columns = "project, kind, head, tail, undoes, who, time, probability"
        values = (project, kind, head, tail, undoes, who[:MAX_CHARACTERS], time, probability)
        marks = ", ".join("?" * len(values))
        added = self._base.execute(f"INSERT INTO event ({columns}) VALUES ({marks})", values)
        number = int(added.lastrowid or 0)
        self._hash("event", f"project, {COLUMNS}", number)
        return number

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read a consistent state of the file in all statements inside."""
        with self._lock, self._errors():
            if self._base.in_transaction:
                yield
                return
            self._base.execute("BEGIN")
            try:
                yield
            finally:
                if self._base.in_transaction:  # SQLite ends it after some errors
                    self._base.execute("COMMIT")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.write:
            raise InputError(self.path, "was opened for reading only")
        with self._lock, self._errors(), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block as one transaction, after waiting for other writers."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:  # SQLite ends it after some errors
                self._base.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self, written: Path | None = None) -> Iterator[None]:
        """Turn errors of SQLite into errors that name the file and say what to do."""
        written = written or self.path
        try:
            yield
        except (OverflowError, UnicodeEncodeError):
            raise FewlinkError(f"{self.path} cannot store a number this large or text that is not Unicode") from None
        except UnicodeDecodeError:
            raise self._damaged("it has text that is not UTF-8") from None
        except sqlite3.Error as error:
            text = str(error)
            for word, problem in (
                ("readonly", "is read-only: give write access to it and to its folder"),
                ("locked", f"is in use by another process for over {LOCK_SECONDS:.0f} s: try again"),
                ("full", "cannot be written: the disk is full"),
                ("disk I/O", "cannot be read or written (disk I/O error): check the disk"),
                ("unable to open", "cannot be opened: check that its folder is writable"),
                ("closed", "is closed"),
                ("not a database", "is not a project file: name another file, or a new one"),
            ):
                if word in text:
                    raise InputError(written, problem) from None
            raise self._damaged(text) from None

    def _damaged(self, problem: str) -> InputError:
        return InputError(self.path, f"is damaged ({problem}): restore a copy, or import an export into a new file")


def now() -> str:
    """The time in UTC, to the millisecond: 2026-11-16T16:20:26.123Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format_of(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _hash_of(facts: Sequence[Any], before: str = "") -> str:
    """The checksum of a row; in the format of fewlink 0.3, also of the checksum `before` it."""
    return hashlib.sha256(f"{before}{json.dumps(facts, default=repr)}".encode()).hexdigest()


def _problem_of(base: sqlite3.Connection) -> str:
    """The first problem of a project file; empty if there is none."""
    problem = str(base.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        return problem
    if _format_of(base) == CHAINED:
        columns = "event.number, project.name, kind, head, tail, undoes, who, time, probability, hash"
        joined = "event LEFT JOIN project ON project.number = event.project ORDER BY event.number"
        rows = base.execute(f"SELECT {columns} FROM {joined}")
    else:
        for row in base.execute(f"SELECT {PROJECT_COLUMNS}, hash FROM project"):
            if _hash_of(row[:-1]) != row[-1]:
                return f"project {row[0]} has changed"
        rows = base.execute(f"SELECT project, {COLUMNS}, hash FROM event ORDER BY number")
    before = ""
    count = 0
    for count, row in enumerate(rows, 1):
        if _hash_of(row[:-1], before) != row[-1]:
            return f"event {count} has changed, or one before it is missing"
        before = row[-1] if _format_of(base) == CHAINED else ""
    last = base.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return "events are missing" if (last or (0,))[0] != count else ""


def _check_folder(path: Path) -> None:
    """Raise if a file cannot be created because its folder does not exist."""
    if not path.parent.is_dir():
        raise InputError(path, f"cannot be created: the folder {path.parent} does not exist") from None


def _key(event: Event, undoes: int | None, seen: Counter[Hashable]) -> Hashable:
    """A key that is equal for the same event in two logs; `seen` counts equal events of one log apart."""
    same = (event.kind, event.head, event.tail, event.who, event.time, undoes)
    seen[same] += 1
    return same, seen[same]


def _checked(text: str, what: str) -> str:
    if not text.strip() or len(text) > MAX_CHARACTERS:
        raise FewlinkError(f"{what} must have 1 to {MAX_CHARACTERS:,} characters, not {len(text):,}")
    return text
