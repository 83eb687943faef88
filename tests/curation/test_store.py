"""Decisions in a project file: none is lost, the last one counts, and a file that cannot be used is named."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import project_damage
from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.curation.store import Progress, ProjectFile, TailCount

VERSION_0_3 = Path(__file__).parents[1] / "goldens" / "records" / "attack.decisions"


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
    import sys, time
    from fewlink.curation.store import ProjectFile
    path, who, batches, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    file = ProjectFile(path)
    for batch in range(batches):
        file.decide("cures", [("accepted", f"{who} {batch}", str(i)) for i in range(size)], who)
        print(batch, flush=True)  # only what was said to be stored must be there
        time.sleep(0.002)  # so that the other curator gets a turn
""")


def curator(path: Path, who: str, batches: int, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CURATOR, str(path), who, str(batches), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


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
    base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(InputError, match="format 99"):
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
    assert ProjectFile(path, write=False).projects() == []


def test_everyone_who_makes_one_file_at_once_keeps_their_decisions(tmp_path: Path) -> None:
    path = tmp_path / "new.decisions"

    def decide(name: str) -> None:
        with ProjectFile(path) as file:
            file.add_project(name)
            file.decide(name, [("accepted", "x", "y")])

    threads = [threading.Thread(target=decide, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ProjectFile(path, write=False) as file:
        assert {each.name: each.accepted for each in file.projects()} == dict.fromkeys("abcd", 1)
    assert list(tmp_path.iterdir()) == [path]


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


def test_a_file_of_version_0_3_is_read_and_extended(tmp_path: Path) -> None:
    path = Path(shutil.copy(VERSION_0_3, tmp_path))
    content = path.read_bytes()
    with ProjectFile(path, write=False) as read:  # it stays as it is
        projects = read.projects()
        before = read.log("targets")
        decisions = read.decisions("targets")
    assert path.read_bytes() == content and len(before) > 10 and any(state.conflict for state in decisions)
    with ProjectFile(path) as file, ProjectFile(path) as second:  # the second one finds it extended
        assert file.projects() == projects and file.log("targets") == before
        assert file.decisions("targets") == decisions
        file.decide("targets", [("accepted", "x", "y", 0.75)], "ann")
        assert second.decisions("targets")[-1].probability == 0.75
        assert second.undo("targets", who="ann").probability == 0.75
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_damaged_file_of_version_0_3_is_an_error(tmp_path: Path) -> None:
    path = Path(shutil.copy(VERSION_0_3, tmp_path))
    path.write_bytes(path.read_bytes().replace(b"rejected", b"accepted", 3))
    with pytest.raises(InputError, match="is damaged"):
        ProjectFile(path, write=False)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event SET who = 'eve' WHERE number = 3",
        "UPDATE event SET probability = 0.5 WHERE number = 4",
        "UPDATE event SET hash = '' WHERE number = 4",
        "DELETE FROM event WHERE number = 3",
        "DELETE FROM event WHERE number > 3",
        "UPDATE project SET name = 'causes'",
        "UPDATE project SET description = 'other'",
    ],
)
def test_a_changed_or_missing_row_is_noticed(file: ProjectFile, change: str) -> None:
    file.decide("cures", [("accepted", head, "t") for head in "xyz"], "ann")
    file.close()
    base = sqlite3.connect(file.path)
    base.executescript(change)
    base.close()
    for write in (True, False):
        with pytest.raises(InputError, match=r"decisions\.fewlink: is damaged"):
            ProjectFile(file.path, write=write)


@pytest.mark.slow
def test_no_damage_to_a_file_or_its_journal_is_silent(tmp_path: Path) -> None:
    found = project_damage.trials(90, 1, tmp_path)
    assert found["silent"] == 0 and found["same"] > 10 and found["refused"] > 10


@pytest.mark.slow
def test_killed_processes_lose_nothing_that_they_had_stored(file: ProjectFile) -> None:
    for kill in range(2):
        curators = {f"{who}{kill}": curator(file.path, f"{who}{kill}", 100_000, 5) for who in ("ann", "bob")}
        stored = {}
        for process in curators.values():
            assert process.stdout is not None
            while (line := process.stdout.readline()) != f"{kill + 2}\n":
                assert line, "a process ended early"
        for who, process in curators.items():
            process.send_signal(signal.SIGKILL)
            stored[who] = [kill + 2, *map(int, process.communicate()[0].split())][-1] + 1
        with ProjectFile(file.path, write=kill % 2 == 0) as opened:
            heads = [head for head, _ in opened.pairs("cures", "accepted")]
        for who, batches in stored.items():
            assert {heads.count(f"{who} {batch}") for batch in range(batches)} == {5}
            later = {heads.count(f"{who} {batch}") for batch in range(batches, batches + 3)}
            assert later <= {0, 5}  # a batch is there as a whole or not at all


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


def progress(*counts: int, rejected: int = 0) -> Progress:
    tails = tuple(TailCount(f"t{place}", count) for place, count in enumerate(counts))
    return Progress(sum(counts), rejected, tails)


def test_right_so_far_is_the_share_of_accepted_pairs() -> None:
    assert progress().right is None and progress().warning() is None
    assert progress(2, 1, rejected=1).right == 0.75


@pytest.mark.parametrize(
    ("counts", "warning"),
    [
        ((7,), None),  # too few to tell
        ((5, 3), None),
        ((6, 3), None),  # exactly two thirds
        ((9,), "all 9 accepted pairs have the tail T0"),
        ((9, 1), "9 of 10 accepted pairs have the tail T0"),
    ],
)
def test_a_tail_that_most_accepted_pairs_have_is_warned_of(counts: tuple[int, ...], warning: str | None) -> None:
    found = progress(*counts).warning(str.upper)
    assert found is None if warning is None else (found or "").startswith(warning)


def test_progress_counts_current_decisions_only(file: ProjectFile) -> None:
    file.decide("cures", [("accepted", "d", "x"), ("accepted", "e", "b"), ("accepted", "f", "b")], "ann")
    file.decide("cures", [("rejected", "d", "x"), ("rejected", "g", "b")], "bob")
    assert file.progress("cures") == Progress(2, 2, (TailCount("b", 2),))
