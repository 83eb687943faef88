"""The project file: references and curators' decisions in SQLite, as an append-only log.

A project is a relation to complete. Each reference, acceptance, rejection and undo is an event with its curator and its
time (UTC). The last event of a pair that is not undone counts; an earlier, different decision of another curator is its
`conflict`. Committed events survive crashes and power loss, and several processes and threads can write. Each event has
the hash of itself and the one before it, so a changed or lost event is noticed. Entities are stored by their ids in the
graph.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from fewlink.core.errors import FewlinkError, InputError, UnknownName, check_file, did_you_mean
from fewlink.core.files import locked, replaced_file
from fewlink.curation.progress import Progress, TailCount
from fewlink.curation.schema import (
    COPIES,
    FORMAT,
    KINDS,
    SCHEMA,
    UPGRADES,
    Decision,
    Event,
    Project,
    address_of,
    hash_of,
    problem_of,
)

APPLICATION = 0x46574C4B  # "FWLK": marks the SQLite file as ours
MAGIC = b"SQLite format 3\0"
LOCK_SECONDS = 30.0  # for writers to wait for each other
MAX_CHARACTERS = 4_000  # of a name or a description
COLUMNS = "number, kind, head, tail, undoes, who, time, probability"
NewDecision = tuple[str, str, str] | tuple[str, str, str, float | None]  # kind, head, tail, the model's probability


class ProjectFile:
    """A file of projects, created if it does not exist unless `must_exist`; without `write`, it is read-only.

    A new file can be stored as `draft`, which is to be moved to `path`; errors name `path`.
    """

    def __init__(
        self, path: str | Path, *, must_exist: bool = False, write: bool = True, draft: Path | None = None
    ) -> None:
        self.path = Path(path)
        self.write = write
        self._columns = COLUMNS
        self._place = draft or self.path
        self._lock = threading.RLock()  # one connection, used by one thread at a time
        self._check_file(must_exist or not write)
        with self._errors():
            if not write and Path(f"{self.path}-journal").exists():
                self._connect(write=True).close()  # SQLite undoes what a killed writer has left
            with nullcontext() if os.path.exists(self.path) else locked(self.path):
                self._base = self._connect(write)
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._base.close()
            raise

    def _connect(self, write: bool) -> sqlite3.Connection:
        base = sqlite3.connect(
            address_of(self._place, write=write),
            uri=True,
            timeout=LOCK_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        base.execute("SELECT 1 FROM sqlite_master")
        return base

    def _check_file(self, must_exist: bool) -> None:
        """Raise if the file cannot be opened or is not a project file."""
        if os.path.exists(self.path):
            check_file(self.path)
        try:
            with self.path.open("rb") as file:
                start = file.read(len(MAGIC))
        except FileNotFoundError:
            if must_exist:
                raise InputError(self.path, "does not exist: `fewlink serve --project FILE` creates it") from None
            _check_folder(self.path)
            return
        except OSError as error:
            raise InputError(self.path, f"cannot be read ({error.strerror})") from None
        if start and start != MAGIC:
            raise InputError(self.path, "is not a project file: name another file, or a new one")

    def _prepare(self) -> None:
        """Create the tables of a new file; raise for a file of another program or of a newer format."""
        base = self._base
        base.execute("PRAGMA foreign_keys = ON")
        base.execute("PRAGMA synchronous = EXTRA")  # a commit is on the disk when it returns
        if self.write and not self._is_ours():
            with self._transaction():
                if not self._is_ours():  # another process may have made them
                    for statement in _statements(SCHEMA):
                        base.execute(statement)
                    base.execute(f"PRAGMA application_id = {APPLICATION}")
                    base.execute(f"PRAGMA user_version = {FORMAT}")
        if not self._is_ours():
            raise InputError(self.path, "is not a project file: name another file, or a new one")
        if self.write and self._format() < FORMAT:
            with self._transaction():
                for number in range(self._format(), FORMAT):  # another process may have done it
                    UPGRADES[number](base)
                    base.execute(f"PRAGMA user_version = {number + 1}")
        if self.write:
            self._leave_log()
        if self._format() < 2:  # only read
            self._columns = COLUMNS.replace("probability", "NULL AS probability")
        with self._reading():  # one state of the file: others may be writing
            problem = problem_of(base)
        if problem:
            raise self._damaged(problem)
        with suppress(sqlite3.OperationalError):  # a file that cannot be written can still be read
            for statement in COPIES if self.write else ():
                base.execute(statement)

    def _leave_log(self) -> None:
        """Keep all decisions in one file, without the write-ahead log of format 2, unless others are using it."""
        if self._base.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            self._base.execute("PRAGMA busy_timeout = 1000")
            with suppress(sqlite3.OperationalError):
                self._base.execute("PRAGMA journal_mode = DELETE")
            self._base.execute(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000:.0f}")

    def _is_ours(self) -> bool:
        """Whether the file has our tables: False for an empty one; raises for that of another program."""
        # Tables are counted first: another process may be making ours.
        tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = self._base.execute("PRAGMA application_id").fetchone()[0]
        version = self._format()
        if application == APPLICATION and version > FORMAT:
            raise InputError(
                self.path, f"has format {version}, but this version of fewlink reads {FORMAT}: install a newer fewlink"
            )
        if application != APPLICATION and tables:
            raise InputError(self.path, "is an SQLite file of another program, not a project file: name another file")
        return bool(application == APPLICATION)

    def _format(self) -> int:
        return int(self._base.execute("PRAGMA user_version").fetchone()[0])

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
            return [self._counted(row) for row in self._base.execute("SELECT * FROM project ORDER BY number")]

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
        return int(added.lastrowid or 0)

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
        found = f"SELECT {self._columns} FROM counting WHERE project = ?"
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
            rows = self._base.execute(f"SELECT {self._columns} FROM event WHERE project = ? ORDER BY number", (number,))
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
                if (key := _key(event, undoes, seen)) not in own:
                    taken = self._base.execute("SELECT 1 FROM event WHERE undoes = ?", (undoes,)).fetchone()
                    if taken is not None:
                        continue  # already undone here
                    pair = _checked(event.head, "a head"), _checked(event.tail, "a tail")
                    own[key] = self._insert(number, event.kind, *pair, undoes, event.who, event.time, event.probability)
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
                copy.execute("PRAGMA journal_mode = DELETE")
                problem = problem_of(copy)
            if problem:
                raise self._damaged(problem)

    def _find(self, name: str | int) -> Any:
        """The row of a project."""
        column = "number" if isinstance(name, int) else "name"
        row = self._base.execute(f"SELECT * FROM project WHERE {column} = ?", (name,)).fetchone()
        if row is None:
            names = [other for (other,) in self._base.execute("SELECT name FROM project ORDER BY number")]
            hint = did_you_mean(str(name), names) or (
                f": it has {', '.join(names[:10])}" if names else ": it has none yet"
            )
            raise UnknownName(f"{self.path} has no project '{name}'{hint}")
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
        values = [project, *([kind] if kind else []), *(pair or ())]
        where += (" AND kind = ?" if kind else "") + (" AND head = ? AND tail = ?" if pair else "")
        rows = self._base.execute(
            f"SELECT {self._columns}, conflict FROM decision WHERE {where} ORDER BY number", values
        )
        states = []
        for row in rows.fetchall():
            other = None
            if row[-1] is not None:
                found = self._base.execute(f"SELECT {self._columns} FROM event WHERE number = ?", (row[-1],))
                other = Event(*found.fetchone())
            states.append(Decision(**asdict(Event(*row[:-1])), conflict=other))
        return states

    def _append(
        self, project: int, decisions: Iterable[NewDecision], who: str, time: str | None
    ) -> list[tuple[str, str]]:
        """Insert decisions that are not repetitions, and return the pairs of all."""
        pairs: dict[tuple[str, str], None] = {}
        for kind, head, tail, *rest in decisions:
            if kind not in KINDS:
                raise FewlinkError(f"a decision is one of {', '.join(KINDS)}, not '{kind}'")
            pair = _checked(head, "a head"), _checked(tail, "a tail")
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
        last = self._base.execute("SELECT number, hash FROM event ORDER BY number DESC LIMIT 1").fetchone()
        before, previous = last or (0, "")
        name = self._base.execute("SELECT name FROM project WHERE number = ?", (project,)).fetchone()[0]
        number = before + 1
        facts = (kind, head, tail, undoes, who[:MAX_CHARACTERS], time, probability)
        values = (number, project, *facts, hash_of(previous, (number, name, *facts)))
        columns = "number, project, kind, head, tail, undoes, who, time, probability, hash"
        self._base.execute(f"INSERT INTO event ({columns}) VALUES ({', '.join('?' * len(values))})", values)
        return int(number)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read a consistent state of the file in all statements inside."""
        with self._lock, self._errors():
            if self._base.in_transaction:
                yield
                return
            self._begin("BEGIN", "SELECT 1 FROM sqlite_master")  # SQLite locks the file with the first statement
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
        """All or nothing; waits for other writers."""
        self._begin("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:  # SQLite ends it after some errors
                self._base.execute("ROLLBACK")
            raise

    def _begin(self, *statements: str) -> None:
        """Begin a transaction with these statements, once the locks of others allow it.

        SQLite itself looks every tenth of a second, and would miss the short gaps of a process that writes on and on.
        """
        give_up = monotonic() + LOCK_SECONDS
        self._base.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    for statement in statements:
                        self._base.execute(statement)
                    return
                except sqlite3.OperationalError as error:
                    if self._base.in_transaction:
                        self._base.execute("ROLLBACK")
                    if "locked" not in str(error) or monotonic() > give_up:
                        raise
                sleep(random.uniform(0.0005, 0.002))
        finally:
            self._base.execute(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000:.0f}")

    @contextmanager
    def _errors(self, written: Path | None = None) -> Iterator[None]:
        """Turn SQLite's errors into errors that name the file, or the one that is `written`, and say what to do."""
        written = written or self.path
        try:
            yield
        except (OverflowError, UnicodeEncodeError):
            raise FewlinkError(f"{self.path} cannot store a number this large or text that is not Unicode") from None
        except UnicodeDecodeError:
            raise self._damaged("it has text that is not UTF-8") from None
        except sqlite3.Error as error:
            text = str(error)
            if "readonly" in text:
                raise InputError(written, "is read-only: give write access to it and to its folder") from None
            if "locked" in text:
                raise InputError(
                    self.path, f"is in use by another process for over {LOCK_SECONDS:.0f} s: try again"
                ) from None
            if "full" in text:
                raise InputError(written, "cannot be written: the disk is full") from None
            if "disk I/O" in text:
                raise InputError(self.path, "cannot be read or written (disk I/O error): check the disk") from None
            if "unable to open" in text:
                raise InputError(written, "cannot be opened: check that its folder is writable") from None
            if "closed" in text:
                raise InputError(self.path, "is closed") from None
            raise self._damaged(text) from None

    def _damaged(self, problem: str) -> InputError:
        return InputError(self.path, f"is damaged ({problem}): restore a copy, or import an export into a new file")


@contextmanager
def adding_to(path: Path) -> Iterator[ProjectFile]:
    """Open a project file to add to. A new file appears when everything was added, and not at all if that fails."""
    _check_folder(path)
    with locked(path):
        if path.exists():
            with ProjectFile(path) as file:
                yield file
        else:
            with replaced_file(path) as draft, ProjectFile(path, draft=draft) as file:
                yield file


def _check_folder(path: Path) -> None:
    """Raise if a file cannot be created because its folder does not exist."""
    if not path.parent.is_dir():
        raise InputError(path, f"cannot be created: the folder {path.parent} does not exist") from None


def now() -> str:
    """The time in UTC, to the millisecond: 2026-11-16T16:20:26.123Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _key(event: Event, undoes: int | None, seen: Counter[Hashable]) -> Hashable:
    """A key by which events of two logs are the same; `seen` counts and so numbers equal events of one log."""
    same = event.kind, event.head, event.tail, event.who, event.time, undoes
    seen[same] += 1
    return same, seen[same]


def _checked(text: str, what: str) -> str:
    if not text.strip() or len(text) > MAX_CHARACTERS:
        raise FewlinkError(f"{what} must have 1 to {MAX_CHARACTERS:,} characters, not {len(text):,}")
    return text


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, to run them in one transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if text.strip() and sqlite3.complete_statement(text):
            yield text
            text = ""
