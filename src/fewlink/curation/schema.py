"""The tables of a project file, and the records stored in them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 3
KINDS = ("reference", "accepted", "rejected")  # of decisions; a project starts with its references
NO_CHANGE = "CREATE TRIGGER no_change BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events do not change'); END"
SCHEMA = f"""
CREATE TABLE project (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    made TEXT NOT NULL
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
{NO_CHANGE};
CREATE TRIGGER no_removal BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'events are not removed'); END;
CREATE VIEW counting AS
    SELECT * FROM event
    WHERE kind <> 'undo' AND NOT EXISTS (SELECT 1 FROM event AS undo WHERE undo.undoes = event.number);
CREATE VIEW decision AS
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

# Indexes that repeat every column: SQLite's integrity check compares them, so a damaged value is detected.
COPIES = (
    "CREATE INDEX IF NOT EXISTS copy_of_projects ON project (number, name, description, made)",
    "CREATE INDEX IF NOT EXISTS copy_of_events"
    " ON event (number, project, kind, head, tail, undoes, who, time, probability)",
)
HASHED = """
    SELECT event.number, project.name, kind, head, tail, undoes, who, time, probability, hash
    FROM event LEFT JOIN project ON project.number = event.project ORDER BY event.number
"""
WAL_MARK = b"\2\2"  # in bytes 18 and 19 of an SQLite file with a write-ahead log
VIEWS = "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')"


def address_of(path: Path, *, write: bool) -> str:
    """The URI to open a project file with.

    Format 2 has a write-ahead log. To read such a file while nobody writes must not need a log in its folder.
    """
    address = f"{path.absolute().as_uri()}?mode={'rwc' if write else 'ro'}"
    if write or Path(f"{path}-wal").exists():
        return address
    with path.open("rb") as file:
        return f"{address}&immutable=1" if file.read(20)[18:] == WAL_MARK else address


def hash_of(previous: str, facts: Sequence[Any]) -> str:
    """The hash of an event: of the hash of the event before it, and of its columns as `HASHED` lists them."""
    return hashlib.sha256(f"{previous}{json.dumps(facts, default=repr)}".encode()).hexdigest()


def _add_probabilities(base: sqlite3.Connection) -> None:
    base.execute("ALTER TABLE event ADD COLUMN probability REAL CHECK (probability BETWEEN 0 AND 1)")


def _add_hashes(base: sqlite3.Connection) -> None:
    base.execute("DROP TRIGGER no_change")
    base.execute("ALTER TABLE event ADD COLUMN hash TEXT NOT NULL DEFAULT ''")
    previous = ""
    for row in base.execute(HASHED).fetchall():
        previous = hash_of(previous, row[:-1])
        base.execute("UPDATE event SET hash = ? WHERE number = ?", (previous, row[0]))
    base.execute(NO_CHANGE)


# What turns each format into the next; views follow the columns of their tables.
UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {1: _add_probabilities, 2: _add_hashes}


def problem_of(base: sqlite3.Connection) -> str:
    """The first problem of a project file; empty if there is none.

    SQLite's integrity check, a changed view or trigger, or a changed or missing event can reveal it.
    """
    problem = str(base.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        return problem
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(SCHEMA)
        expected = dict(new.execute(VIEWS))
    found = dict(base.execute(VIEWS))
    changed = next((f"{name} has changed" for name in expected if found.get(name) != expected[name]), "")
    return changed or _problem_of_events(base)


def _problem_of_events(base: sqlite3.Connection) -> str:
    """The first event whose hash is wrong, or whether the last ones are missing."""
    if base.execute("PRAGMA user_version").fetchone()[0] < 3:
        return ""
    previous = ""
    number = 0
    for row in base.execute(HASHED):
        if hash_of(previous, row[:-1]) != row[-1]:
            return f"event {row[0]} has changed, or one before it is missing"
        number = row[0]
        previous = row[-1]
    count = base.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return f"events after {number} are missing" if (count or (0,))[0] != number else ""


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
