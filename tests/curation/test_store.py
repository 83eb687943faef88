"""Decisions in a project file: none is lost, the last one counts, and a file that cannot be used is named."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import project_damage
from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.curation import schema, store
from fewlink.curation.store import APPLICATION, ProjectFile, adding_to


@pytest.fixture
def file(tmp_path: Path) -> ProjectFile:
    made = ProjectFile(tmp_path / "decisions.fewlink")
    made.add_project("cures", [("a", "b"), ("c", "d")], description="what cures what", who="ann")
    return made


def test_a_project_starts_with_its_references(file: ProjectFile) -> None:
    project = file.project("cures")
    assert (project.name, project.description, project.references) == ("cures", "what cures what", 2)
    assert file.pairs("cures", "reference") == [("a", "b"), ("c", "d")]
    assert file.projects() == [project]
    assert file.project(project.number) == project


def test_the_last_decision_counts_and_the_log_keeps_all(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    file.decide("cures", [("rejected", "x", "y"), ("accepted", "x", "z")], "ann")
    assert file.pairs("cures", "rejected") == [("x", "y")]
    assert file.pairs("cures", "accepted") == [("x", "z")]
    assert [event.kind for event in file.log("cures")] == ["reference", "reference", "accepted", "rejected", "accepted"]
    assert all(event.time.endswith("Z") for event in file.log("cures"))


def test_a_repeated_decision_adds_nothing(file: ProjectFile) -> None:
    for _ in range(2):
        file.decide("cures", [("accepted", "x", "y")], "ann")
    assert len(file.log("cures")) == 3


def test_a_second_curator_who_agrees_is_in_the_log(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    (state,) = file.decide("cures", [("accepted", "x", "y")], "bob")
    assert (state.who, state.conflict, len(file.log("cures"))) == ("bob", None, 4)
    file.undo("cures", who="bob")
    assert [state.who for state in file.decisions("cures", "accepted")] == ["ann"]


def test_a_repetition_without_a_name_leaves_the_author(file: ProjectFile) -> None:
    before = file.log("cures")
    (state,) = file.decide("cures", [("reference", *before[0].pair)])
    assert state.who == before[0].who != "" and file.log("cures") == before


def test_a_conflict_names_what_the_other_curator_decided(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    (state,) = file.decide("cures", [("rejected", "x", "y")], "bob")
    assert state.kind == "rejected"
    assert state.conflict is not None
    assert (state.conflict.who, state.conflict.kind) == ("ann", "accepted")
    assert file.project("cures").conflicts == 1


def test_a_curator_who_changes_their_mind_is_no_conflict(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    (state,) = file.decide("cures", [("rejected", "x", "y")], "ann")
    assert state.conflict is None


def test_undo_is_a_further_event_and_shows_what_counted_before(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    file.decide("cures", [("rejected", "x", "y")], "bob")
    undone = file.undo("cures", who="bob")
    assert (undone.kind, undone.pair) == ("rejected", ("x", "y"))
    assert file.pairs("cures", "accepted") == [("x", "y")]
    assert file.log("cures")[-1].undoes == undone.number
    file.undo("cures", who="ann")
    assert file.pairs("cures", "accepted", "rejected") == []


def test_undo_takes_back_ones_own_decision_and_never_a_reference_by_itself(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "x", "y")], "ann")
    with pytest.raises(FewlinkError, match="'bob' has no decision to undo"):
        file.undo("cures", who="bob")
    file.undo("cures", who="ann")
    with pytest.raises(FewlinkError, match="'ann' has no decision to undo"):
        file.undo("cures", who="ann")
    with pytest.raises(FewlinkError, match="curator"):
        file.undo("cures")
    reference = file.log("cures")[0]
    file.undo("cures", reference.number)
    assert file.pairs("cures", "reference") == [("c", "d")]
    with pytest.raises(FewlinkError, match=f"event {reference.number}"):
        file.undo("cures", reference.number)


def test_decisions_are_stored_all_or_none(file: ProjectFile) -> None:
    with pytest.raises(FewlinkError, match="not 'perhaps'"):
        file.decide("cures", [("accepted", "x", "y"), ("perhaps", "x", "z")], "ann")
    assert len(file.log("cures")) == 2


def test_names_are_unique_and_unknown_ones_are_suggested(file: ProjectFile) -> None:
    with pytest.raises(FewlinkError, match="'cures'"):
        file.add_project("cures")
    with pytest.raises(UnknownName, match="did you mean 'cures'"):
        file.project("cure")
    with pytest.raises(FewlinkError, match="name of a project"):
        file.add_project(" ")


def test_events_cannot_be_changed_or_removed(file: ProjectFile) -> None:
    base = sqlite3.connect(file.path)
    for statement in ("UPDATE event SET who = 'eve'", "DELETE FROM event"):
        with pytest.raises(sqlite3.IntegrityError, match="events"):
            base.execute(statement)


def test_a_commit_is_on_the_disk_when_it_returns(file: ProjectFile) -> None:
    assert file._base.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA: also after a loss of power


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DROP TRIGGER no_removal", "no_removal has changed"),
        ("DROP VIEW counting; CREATE VIEW counting AS SELECT * FROM event", "counting has changed"),
    ],
)
def test_a_file_with_other_views_or_triggers_is_damaged(file: ProjectFile, change: str, problem: str) -> None:
    file.close()
    with sqlite3.connect(file.path) as base:
        base.executescript(change)
    base.close()
    with pytest.raises(InputError, match=rf"is damaged \({problem}\)"):
        ProjectFile(file.path)


def test_an_id_is_stored_as_it_is(file: ProjectFile) -> None:
    odd = " ünï\tcode 'x'); DROP TABLE event;-- "
    file.decide("cures", [("accepted", odd, "y")], "ann")
    assert file.pairs("cures", "accepted") == [(odd, "y")]


def test_threads_share_a_file(file: ProjectFile) -> None:
    def work(name: str) -> None:
        for i in range(20):
            file.decide("cures", [("accepted", f"{name}{i}", "t")], name)
            file.project("cures")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.project("cures").accepted == 80


CURATOR = textwrap.dedent("""
    import sys
    from fewlink.curation.store import ProjectFile
    path, who, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    file = ProjectFile(path)
    for batch in range(batches):
        file.decide("cures", [("accepted", f"{who}{batch}", str(i)) for i in range(size)], who)
        print(batch, flush=True)  # only what was said to be stored must be there
""")


def curator(path: Path, who: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CURATOR, str(path), who, str(batches), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_file_is_checked_in_one_state_while_others_write(file: ProjectFile, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, problem = [], schema.problem_of

    def check(base: sqlite3.Connection) -> str:
        checked.append(base.in_transaction)
        return problem(base)

    monkeypatch.setattr("fewlink.curation.store.problem_of", check)
    ProjectFile(file.path).close()
    ProjectFile(file.path, write=False).close()
    assert checked == [True, True]


@pytest.mark.slow
def test_two_processes_lose_none_of_ten_thousand_decisions(file: ProjectFile) -> None:
    curators = [curator(file.path, who, 200, 25) for who in ("ann", "bob")]
    assert [len(process.communicate()[0].split()) for process in curators] == [200, 200]
    assert file.project("cures").accepted == 10_000
    assert len({event.number for event in file.log("cures")}) == 10_002


@pytest.mark.slow
def test_killed_processes_lose_nothing_that_they_had_stored(file: ProjectFile) -> None:
    curators = {who: curator(file.path, who, 100_000, 5) for who in ("ann", "bob")}
    stored = {}
    for process in curators.values():
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "20\n":
            assert line, "a process ended early"
    for who, process in curators.items():
        process.send_signal(signal.SIGKILL)
        stored[who] = [20, *map(int, process.communicate()[0].split())][-1] + 1
    file.close()
    with ProjectFile(file.path) as opened:
        heads = [head for head, _ in opened.pairs("cures", "accepted")]
        for who, batches in stored.items():
            assert {heads.count(f"{who}{batch}") for batch in range(batches)} == {5}
            later = {heads.count(f"{who}{batch}") for batch in range(batches, batches + 3)}
            assert later <= {0, 5}  # a batch is there as a whole or not at all


def test_another_file_is_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "graph.tsv"
    text.write_text("a\tb\tc\n" * 10)
    with pytest.raises(InputError, match=r"graph\.tsv: "):
        ProjectFile(text)
    other = tmp_path / "other.db"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE notes (text)")
    base.close()
    with pytest.raises(InputError, match=r"other\.db: "):
        ProjectFile(other)
    with pytest.raises(InputError, match=r"none\.fewlink: "):
        ProjectFile(tmp_path / "none.fewlink", must_exist=True)
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        ProjectFile(tmp_path / "nowhere" / "x.fewlink")
    with pytest.raises(InputError, match="cannot be read"):
        ProjectFile(tmp_path)


def test_a_newer_format_is_refused(file: ProjectFile) -> None:
    file.close()
    base = sqlite3.connect(file.path)
    base.execute("PRAGMA user_version = 4")
    base.close()
    with pytest.raises(InputError, match="format 4"):
        ProjectFile(file.path)


def test_a_damaged_file_is_named(file: ProjectFile) -> None:
    for i in range(200):
        file.decide("cures", [("accepted", f"head {i}", "tail")], "ann")
    file.close()
    content = bytearray(file.path.read_bytes())
    content[4096 * 2 : 4096 * 4] = bytes(4096 * 2)
    file.path.write_bytes(content)
    with pytest.raises(InputError, match=r"decisions\.fewlink: is damaged"):
        ProjectFile(file.path)


def test_a_file_that_is_only_read_is_not_written(file: ProjectFile) -> None:
    reader = ProjectFile(file.path, write=False)
    assert reader.project("cures").references == 2
    with pytest.raises(InputError, match="reading only"):
        reader.decide("cures", [("accepted", "x", "y")])


@pytest.mark.slow
def test_a_file_in_a_folder_that_cannot_be_written_is_listed(file: ProjectFile) -> None:
    file.close()
    powerless = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []  # root may write everywhere
    if powerless and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere")
    code = "import sys; sys.argv[0] = 'fewlink'; from fewlink.cli import main; main()"
    command = [*powerless, sys.executable, "-c", code, "project", "list", str(file.path), "--json"]
    file.path.chmod(0o444)
    file.path.parent.chmod(0o555)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        file.path.parent.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert [project["name"] for project in json.loads(done.stdout)] == ["cures"]


def test_an_empty_file_left_by_a_crash_becomes_a_project_file(tmp_path: Path) -> None:
    path = tmp_path / "new.fewlink"
    path.touch()
    with ProjectFile(path) as file:
        assert file.projects() == []
    base = sqlite3.connect(path)
    assert base.execute("PRAGMA application_id").fetchone()[0] == APPLICATION
    assert base.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_everyone_who_makes_one_file_at_once_keeps_their_decisions(tmp_path: Path) -> None:
    path = tmp_path / "new.decisions"

    def import_into(name: str) -> None:
        with adding_to(path) as file:
            file.add_project(name)
            time.sleep(0.05)  # others begin meanwhile
            file.decide(name, [("accepted", "x", "y")])

    def decide(name: str) -> None:
        with ProjectFile(path) as file:
            file.add_project(name)
            file.decide(name, [("accepted", "x", "y")])

    works = {"a": import_into, "b": import_into, "c": import_into, "d": decide}
    threads = [threading.Thread(target=work, args=(name,)) for name, work in works.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ProjectFile(path, write=False) as file:
        assert {each.name: each.accepted for each in file.projects()} == dict.fromkeys(works, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_appears_while_its_copy_is_written_is_not_replaced(
    file: ProjectFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "copy"

    def decide() -> None:
        with ProjectFile(path) as other:
            other.add_project("another")

    def check(base: sqlite3.Connection) -> str:
        monkeypatch.undo()
        thread.start()
        thread.join(0.1)
        return schema.problem_of(base)

    thread = threading.Thread(target=decide)
    monkeypatch.setattr(store, "problem_of", check)
    file.copy_to(path)
    thread.join()
    with ProjectFile(path, write=False) as copy:
        assert [project.name for project in copy.projects()] == ["cures", "another"]


def test_two_copies_to_one_file_are_one_copy_and_one_error(file: ProjectFile, tmp_path: Path) -> None:
    problems: list[str] = []

    def copy() -> None:
        try:
            file.copy_to(tmp_path / "copy")
        except InputError as error:
            problems.append(error.problem)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == ["exists already: name another file, or move it away first"]
    assert ProjectFile(tmp_path / "copy", write=False).log("cures") == file.log("cures")


def test_a_damaged_copy_is_an_error_and_not_kept(
    file: ProjectFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "problem_of", lambda base: "page 3 is wrong")
    with pytest.raises(InputError, match=r"is damaged \(page 3 is wrong\)"):
        file.copy_to(tmp_path / "copy")
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_file_whose_tables_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, version = tmp_path / "new.decisions", ProjectFile._format

    def later(file: ProjectFile) -> int:
        monkeypatch.undo()
        ProjectFile(path).close()
        return version(file)

    monkeypatch.setattr(ProjectFile, "_format", later)
    with ProjectFile(path) as file:
        assert file.projects() == []


def test_errors_name_the_new_file_and_not_its_draft(
    file: ProjectFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    path, full_disk = tmp_path / "new.decisions", r"new\.decisions: cannot be written: the disk is full"
    with pytest.raises(InputError, match=rf"^{tmp_path}/{full_disk}"), adding_to(path) as draft:
        monkeypatch.setattr(draft, "_insert", full)
        draft.add_project("cures", [("a", "b")])
    monkeypatch.setattr(store, "problem_of", full)
    with pytest.raises(InputError, match=rf"^{tmp_path}/{full_disk}"):
        file.copy_to(path)
    with pytest.raises(InputError, match=rf"^{tmp_path}/{full_disk}"), adding_to(path):
        pass
    for add in (lambda path: adding_to(path).__enter__(), file.copy_to):
        with pytest.raises(InputError, match=r"x: cannot be created: the folder .*nowhere does not exist"):
            add(tmp_path / "nowhere" / "x")
    assert list(tmp_path.iterdir()) == [file.path]


def old_file(path: Path) -> Path:
    """A file that was written before decisions had probabilities."""
    with sqlite3.connect(path) as base:
        base.executescript(Path(__file__).with_name("format_1.sql").read_text("utf-8"))
        base.execute(f"PRAGMA application_id = {APPLICATION}")
        base.execute("PRAGMA user_version = 1")
        base.execute("PRAGMA journal_mode = WAL")
    base.close()
    return path


def test_the_probability_of_a_decision_is_kept(file: ProjectFile) -> None:
    (state,) = file.decide("cures", [("accepted", "x", "y", 0.25)], "ann")
    assert state.probability == 0.25
    file.decide("cures", [("rejected", "x", "y", 0.5)], "bob")
    (state,) = file.decisions("cures", "rejected")
    assert state.probability == 0.5 and state.conflict is not None and state.conflict.probability == 0.25
    file.undo("cures", who="bob")
    assert [event.probability for event in file.log("cures")] == [None, None, 0.25, 0.5, None]
    with pytest.raises(FewlinkError, match="from 0 to 1"):
        file.decide("cures", [("accepted", "x", "z", 1.5)])
    assert [state.probability for state in file.decisions("cures")] == [None, None, 0.25]


def test_a_file_without_probabilities_is_read_and_extended(tmp_path: Path) -> None:
    path = old_file(tmp_path / "old.decisions")
    with ProjectFile(path, write=False) as read:  # it stays as it is
        before = read.log("cures")
        assert [state.pair for state in read.decisions("cures")] == [("a", "b"), ("c", "d"), ("x", "y")]
        assert {event.probability for event in before} == {None}
    with sqlite3.connect(path) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (1,)
    base.close()
    with ProjectFile(path) as file, ProjectFile(path) as second:  # the second one finds it extended
        assert file.log("cures") == before
        (state,) = file.decide("cures", [("accepted", "x", "y", 0.75)], "ann")
        assert state.conflict is not None and state.conflict.who == "bob"
        assert second.decisions("cures", "accepted")[0].probability == 0.75
        assert second.undo("cures", who="ann").probability == 0.75


def test_an_old_file_is_extended_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_file(tmp_path / "old.decisions")
    monkeypatch.setattr(store, "FORMAT", 4)
    monkeypatch.setitem(store.UPGRADES, 3, lambda base: base.execute("ALTER TABLE nothing ADD COLUMN x"))
    with pytest.raises(InputError, match="is damaged"):
        ProjectFile(path)
    monkeypatch.undo()
    with sqlite3.connect(path) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (1,)
    base.close()
    assert len(ProjectFile(path).log("cures")) == 6


def test_a_file_that_another_process_extends_meanwhile_is_extended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old_file(tmp_path / "old.decisions")
    transaction = ProjectFile._transaction

    def later(file: ProjectFile) -> AbstractContextManager[None]:
        monkeypatch.undo()
        ProjectFile(path).close()
        return transaction(file)

    monkeypatch.setattr(ProjectFile, "_transaction", later)
    with ProjectFile(path) as file:
        assert len(file.log("cures")) == 6


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE event SET who = 'eve' WHERE number = 2", "event 2 has changed"),
        ("DELETE FROM event WHERE number = 3", "event 4 has changed, or one before it is missing"),
        ("DELETE FROM event WHERE number > 3", "events after 3 are missing"),
        ("UPDATE project SET name = 'causes'", "event 1 has changed"),
    ],
)
def test_a_changed_or_missing_event_is_noticed(file: ProjectFile, change: str, problem: str) -> None:
    file.decide("cures", [("accepted", head, "t") for head in "xyz"], "ann")
    file.close()
    base = sqlite3.connect(file.path)
    triggers = [sql for name, sql in base.execute(schema.VIEWS) if sql.startswith("CREATE TRIGGER")]
    base.executescript(f"DROP TRIGGER no_change; DROP TRIGGER no_removal; {change}; {'; '.join(triggers)};")
    base.close()
    for write in (True, False):
        with pytest.raises(InputError, match=f"is damaged.*{problem}"):
            ProjectFile(file.path, write=write)


def test_a_plain_copy_and_any_damage_lose_nothing_in_silence(file: ProjectFile, tmp_path: Path) -> None:
    for i in range(20):
        file.decide("cures", [("accepted", f"head {i}", "tail")], "ann")
    expected, content = file.log("cures"), file.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.path.name]  # no log beside it
    rng, copy = random.Random(1), tmp_path / "copy"
    for damage in range(60):
        changed = bytearray(content)
        if damage % 3 == 0:
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif damage % 3 == 1:
            begin = rng.randrange(len(content))
            changed[begin : begin + 512] = bytes(len(changed[begin : begin + 512]))
        elif damage:
            del changed[rng.randrange(len(content)) :]
        copy.write_bytes(changed)
        for beside in ("-wal", "-journal"):
            Path(f"{copy}{beside}").write_bytes(rng.randbytes(100))
        try:
            with ProjectFile(copy, must_exist=True, write=False) as opened:
                assert opened.log("cures") == expected
        except (InputError, UnknownName):
            pass
        for path in tmp_path.glob("copy*"):
            path.unlink()


def test_no_damage_to_a_file_or_its_journal_is_silent(tmp_path: Path) -> None:
    found = project_damage.trials(90, 1, tmp_path)
    assert found["silent"] == 0 and found["same"] > 10 and found["refused"] > 10


def test_a_reader_undoes_what_a_killed_writer_has_left(file: ProjectFile, tmp_path: Path) -> None:
    expected = file.log("cures")
    base = sqlite3.connect(file.path, isolation_level=None)
    base.execute("PRAGMA cache_size = 1")  # pages are written before the commit
    base.execute("BEGIN IMMEDIATE")
    for number in range(3, 2_000):
        base.execute(
            "INSERT INTO event VALUES (?, 1, 'accepted', ?, 't', NULL, '', '', NULL, '')", (number, f"h{number}")
        )
    copy = tmp_path / "copy"
    for beside in ("", "-journal"):
        Path(f"{copy}{beside}").write_bytes(Path(f"{file.path}{beside}").read_bytes())
    base.close()
    with ProjectFile(copy, write=False) as opened:
        assert opened.log("cures") == expected


def test_a_file_of_format_2_leaves_its_log_and_gets_hashes(tmp_path: Path) -> None:
    path = old_file(tmp_path / "old.decisions")
    with ProjectFile(path, write=False) as read:
        before = read.log("cures")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]  # reading makes no files
    with ProjectFile(path) as file:
        assert file.log("cures") == before
        assert file._base.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert all(len(text) == 64 for (text,) in file._base.execute("SELECT hash FROM event"))
        file.decide("cures", [("accepted", "x", "y")], "ann")


def test_a_copy_is_made_while_others_write_and_can_be_restored(file: ProjectFile, tmp_path: Path) -> None:
    stop = threading.Event()

    def work() -> None:
        for i in itertools.count():
            if stop.is_set():
                return
            file.decide("cures", [("accepted", f"h{i}", str(j)) for j in range(5)], "ann")

    writer = threading.Thread(target=work)
    writer.start()
    try:
        with ProjectFile(file.path, write=False) as other:
            other.copy_to(tmp_path / "copy")
    finally:
        stop.set()
        writer.join()
    with ProjectFile(tmp_path / "copy", write=False) as copy:
        events = copy.log("cures")
        assert events == file.log("cures")[: len(events)] and len(events) % 5 == 2
        with pytest.raises(InputError, match="exists already"):
            copy.copy_to(file.path)
        copy.copy_to(tmp_path / "restored")
    with ProjectFile(tmp_path / "restored") as restored:
        restored.decide("cures", [("accepted", "x", "y")], "bob")
        assert restored.log("cures")[:-1] == events
    assert not list(tmp_path.glob(".*"))
