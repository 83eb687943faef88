"""The tables of a project file, and the records stored in them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass

FORMAT = 2
KINDS = ("reference", "accepted", "rejected")  # of decisions; a project starts with its references
SCHEMA = """
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
    CHECK ((kind = 'undo') = (undoes IS NOT NULL))
);
CREATE INDEX pair ON event (project, head, tail, number);
CREATE TRIGGER no_change BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events do not change'); END;
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
UPGRADES = {  # statements that turn each format into the next; views follow the columns of their tables
    1: "ALTER TABLE event ADD COLUMN probability REAL CHECK (probability BETWEEN 0 AND 1);",
}

# Indexes that repeat every column: SQLite's integrity check compares them, so a damaged value is detected.
COPIES = (
    "CREATE INDEX IF NOT EXISTS copy_of_projects ON project (number, name, description, made)",
    "CREATE INDEX IF NOT EXISTS copy_of_events"
    " ON event (number, project, kind, head, tail, undoes, who, time, probability)",
)
VIEWS = "SELECT name, sql FROM sqlite_master WHERE type IN ('view', 'trigger')"


def problem_of(base: sqlite3.Connection) -> str:
    """The first problem that SQLite's integrity check or a changed view or trigger reveals; empty if there is none."""
    problem = str(base.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if problem != "ok":
        return problem
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(SCHEMA)
        expected = dict(new.execute(VIEWS))
    found = dict(base.execute(VIEWS))
    return next((f"{name} has changed" for name in expected if found.get(name) != expected[name]), "")


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
