from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core import storage
from fewlink.core.errors import FewlinkError, InputError, wrong_format
from fewlink.core.storage import files, folders, places

FORMAT = "test/1"


def write(path: Path, text: str = "hello", format: str = FORMAT) -> Path:
    with storage.new_folder(path, format, {"fact": 1}) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.txt").write_text("b")
    return path


def test_a_folder_lists_its_files_and_facts(tmp_path: Path) -> None:
    manifest = storage.open_folder(write(tmp_path / "f"), FORMAT)
    assert (manifest["format"], manifest["fact"]) == (FORMAT, 1)
    assert list(manifest["files"]) == ["a.txt", "deep/b.txt"]
    hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert manifest["files"]["a.txt"] == {"bytes": 5, "sha256": hello}


def test_an_error_while_writing_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), storage.new_folder(tmp_path / "f", FORMAT, {}) as folder:
        (folder / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_error_while_replacing_keeps_the_old_folder(tmp_path: Path) -> None:
    write(tmp_path / "f", "old")
    with pytest.raises(KeyboardInterrupt), storage.new_folder(tmp_path / "f", FORMAT, {}) as folder:
        (folder / "a.txt").write_text("new")
        raise KeyboardInterrupt
    storage.open_folder(tmp_path / "f", FORMAT, verify=True)
    assert (tmp_path / "f" / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_folder_of_the_same_format_is_replaced_and_any_other_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "f", "old")
    write(tmp_path / "f", "new")
    assert (tmp_path / "f" / "a.txt").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("irreplaceable")
    (tmp_path / "file").write_text("a file")
    for name in ("f", "mine", "file"):
        with pytest.raises(FewlinkError, match=f"{name} .*other/1"):
            write(tmp_path / name, format="other/1")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "irreplaceable"


def test_the_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for place in (Path("."), Path("..")):
        with pytest.raises(FewlinkError, match="working folder"):
            write(place)


def test_an_unwritable_path_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FewlinkError, match="file"):
        write(tmp_path / "file" / "f")
    with pytest.raises(FewlinkError, match="file"):
        storage.write_json(tmp_path / "file" / "a.json", {})


def test_a_missing_a_truncated_and_a_foreign_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        storage.open_folder(tmp_path / "nothing", FORMAT)
    with pytest.raises(InputError, match=r"manifest.json"):
        storage.open_folder(tmp_path, FORMAT)
    with pytest.raises(InputError, match=r"'test/1'.*'test/2'"):
        storage.open_folder(write(tmp_path / "f"), "test/2")
    (tmp_path / "f" / "a.txt").write_text("hell")
    with pytest.raises(InputError, match=r"a.txt"):
        storage.open_folder(tmp_path / "f", FORMAT, verify=False)
    (tmp_path / "f" / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a.txt"):
        storage.open_folder(tmp_path / "f", FORMAT, verify=False)


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on; every folder is a large one."""
    names: list[str] = []
    monkeypatch.setattr(folders, "ALWAYS_VERIFIED_BYTES", 3)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole = storage.sha256_file
    monkeypatch.setattr(folders, "sha256_file", lambda path, *rest: names.append(path.name) or whole(path, *rest))
    return names


def test_a_large_folder_is_hashed_once_and_again_when_a_file_has_changed(tmp_path: Path, hashed: list[str]) -> None:
    write(tmp_path / "f")
    hashed.clear()
    for _ in range(3):
        storage.open_folder(tmp_path / "f", FORMAT)
    assert hashed == ["a.txt", "b.txt"]
    storage.open_folder(tmp_path / "f", FORMAT, verify=True)
    storage.open_folder(tmp_path / "f", FORMAT, verify=False)
    assert hashed == ["a.txt", "b.txt"] * 2
    before = (tmp_path / "f" / "a.txt").stat()
    (tmp_path / "f" / "a.txt").write_text("jello")
    os.utime(tmp_path / "f" / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy that keeps the time
    with pytest.raises(InputError, match=r"a.txt"):
        storage.open_folder(tmp_path / "f", FORMAT)


def test_a_small_folder_is_hashed_whenever_it_is_opened(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "ALWAYS_VERIFIED_BYTES", 6)
    write(tmp_path / "f")
    hashed.clear()
    for verify in (None, None, True, False):
        storage.open_folder(tmp_path / "f", FORMAT, verify)
    assert hashed == ["a.txt", "b.txt"] * 3


def test_a_large_folder_opens_where_nothing_can_be_remembered(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    write(tmp_path / "f")
    hashed.clear()
    for _ in range(2):
        storage.open_folder(tmp_path / "f", FORMAT)
    assert hashed == ["a.txt", "b.txt"] * 2
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # an account without a home folder
    storage.open_folder(tmp_path / "f", FORMAT)


def test_the_folder_of_a_newer_version_is_named_as_such(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", format="test/12")
    with pytest.raises(InputError, match=r"newer version .*test/12"):
        storage.open_folder(folder, "test/3")
    for other in ("other/1", "test/13"):
        assert "newer version" not in str(wrong_format(folder, "test/12", other))


def flip(file: Path, data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)


@given(st.data(), st.sampled_from(["a.txt", "deep/b.txt"]))
def test_any_flipped_byte_is_an_error(data: st.DataObject, name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / "f")
        flip(folder / name, data)
        with pytest.raises(InputError):
            storage.open_folder(folder, FORMAT)


@given(st.data())
def test_no_flipped_byte_changes_the_content_of_a_manifest(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / "f")
        before = storage.open_folder(folder, FORMAT)
        flip(folder / "manifest.json", data)
        with contextlib.suppress(InputError):
            assert storage.open_folder(folder, FORMAT) == before


@pytest.mark.parametrize("files", [None, [], {"a.txt": {}}, {"a.txt": None}, {"a.txt": {"bytes": "5", "sha256": 1}}])
def test_an_invalid_manifest_is_an_error(tmp_path: Path, files: object) -> None:
    write(tmp_path / "f")
    (tmp_path / "f" / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": files}))
    with pytest.raises(InputError):
        storage.open_folder(tmp_path / "f", FORMAT)


def test_a_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write_json(tmp_path / "new" / "a.json", {"é": [1]})
    assert storage.read_json(tmp_path / "new" / "a.json") == {"é": [1]}

    def power_cut(source: Path, target: Path) -> None:
        raise RuntimeError

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(RuntimeError):
        storage.write_json(tmp_path / "new" / "a.json", {"other": 2})
    assert storage.read_json(tmp_path / "new" / "a.json") == {"é": [1]}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.json"]


def test_broken_json_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n "a": 1,\n "b"\n}')
    with pytest.raises(InputError, match=r"a.json:4"):
        storage.read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"none.json"):
        storage.read_json(tmp_path / "none.json")


@given(st.binary() | st.text().map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_json_or_a_clean_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.json"
        path.write_bytes(content)
        try:
            storage.read_json(path)
        except InputError as error:
            assert "a.json" in str(error)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"1" * 5000, b"\xff\xfe\x00"])
def test_unparsable_json_is_a_clean_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError):
        storage.read_json(tmp_path / "a.json")


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_a_killed_writer_moved_is_read_and_the_next_writer_restores_it(tmp_path: Path) -> None:
    write(tmp_path / "kept", "old").rename(tmp_path / ".kept.previous")
    assert storage.open_folder(tmp_path / "kept", FORMAT)["fact"] == 1
    assert storage.is_folder_of(tmp_path / "kept", FORMAT)
    assert listed(tmp_path) == [".kept.previous"]  # reading changes nothing
    storage.recover(tmp_path / "kept")
    assert (tmp_path / "kept" / "a.txt").read_text() == "old" and listed(tmp_path) == ["kept"]


def test_a_complete_draft_gives_way_to_the_version_that_readers_saw(tmp_path: Path) -> None:
    write(tmp_path / "kept", "new").rename(tmp_path / ".kept.new")
    write(tmp_path / "kept", "old").rename(tmp_path / ".kept.previous")
    write(tmp_path / ".kept.new")  # a folder of this name has drafts of its own
    storage.recover(tmp_path / "kept")
    assert (tmp_path / "kept" / "a.txt").read_text() == "old" and listed(tmp_path) == ["kept"]


@pytest.mark.parametrize("name", ["emb.v1", "emb.123", ".emb", "emb.previous", "emb*", "[e]mb"])
def test_no_writer_touches_what_belongs_to_another_folder(tmp_path: Path, name: str) -> None:
    """Folders whose names begin alike, moved by their killed writers, with drafts."""
    write(tmp_path / name, "other").rename(tmp_path / f".{name}.previous")
    (tmp_path / f".{name}.new").mkdir()
    write(tmp_path / "emb", "mine")
    write(tmp_path / "emb", "mine again")
    assert listed(tmp_path) == sorted([f".{name}.previous", f".{name}.new", "emb"])
    write(tmp_path / "em")
    (tmp_path / "emb").rename(tmp_path / "other place")
    with pytest.raises(InputError, match="emb"):
        storage.open_folder(tmp_path / "emb", FORMAT)
    assert storage.open_folder(tmp_path / name, FORMAT)["fact"] == 1


def test_what_is_left_of_a_removed_version_is_not_read(tmp_path: Path) -> None:
    left = write(tmp_path / "kept").rename(tmp_path / ".kept.previous")
    (left / "manifest.json").unlink()  # goes first
    with pytest.raises(InputError, match="kept"):
        storage.open_folder(tmp_path / "kept", FORMAT)
    write(tmp_path / "kept")
    assert listed(tmp_path) == ["kept"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "a.txt").read_text() == "new"
    (tmp_path / "real").rename(tmp_path / ".real.previous")
    assert storage.open_folder(tmp_path / "link", FORMAT)["fact"] == 1


def test_folders_in_a_folder_are_written_without_locks_and_drafts(tmp_path: Path) -> None:
    with storage.new_folder(tmp_path / "f", FORMAT, {}) as folder:
        write(folder / "inner")
        storage.write_json(folder / "a.json", 1)
        storage.write_json(folder / "a.json", 2)
        assert listed(folder) == ["a.json", "inner"]
    assert storage.open_folder(tmp_path / "f" / "inner", FORMAT)["fact"] == 1
    assert "inner/manifest.json" in storage.open_folder(tmp_path / "f", FORMAT)["files"]


def test_files_and_folders_have_the_permissions_of_others(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        storage.write_json(tmp_path / "a.json", {})
        write(tmp_path / "f")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {modes[name] for name in ("a.json", "a.txt", "b.txt", "manifest.json")} == {0o640}
    assert {modes[name] for name in ("f", "deep")} == {0o750}


def test_what_a_killed_writer_of_a_file_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".a.json.new").mkdir()
    (tmp_path / ".a.json.new" / "draft").write_text("half")
    (tmp_path / ".a.json.lock").touch()
    storage.write_json(tmp_path / "a.json", 1)
    assert listed(tmp_path) == ["a.json"]


def in_a_process(code: str, *words: object) -> subprocess.Popen[str]:
    """Code in a process of its own, after `storage` and `Path` are imported; `argv` are the words."""
    head = "import os, sys, time; from pathlib import Path; from fewlink.core import storage; argv = sys.argv[1:]\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, words)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
with getattr(storage, argv[0])(Path(argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make files")
def test_a_lock_that_nobody_can_make_is_an_error() -> None:
    with pytest.raises(FewlinkError, match=r"^/proc/a\.json cannot be written \(No such file"):
        storage.write_json(Path("/proc/a.json"), {})


@pytest.fixture(params=["locked", "locked_inside"])
def held(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Any, subprocess.Popen[str]]]:
    """A folder that another process has locked, the function that locks it, and the process."""
    folder = tmp_path / "f"
    folder.mkdir()
    process = in_a_process(HOLD, request.param, folder)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    with process:
        yield folder, getattr(storage, request.param), process
        process.kill()


def test_a_second_writer_is_refused_at_once_or_waits_and_says_so(
    held: tuple[Path, Any, subprocess.Popen[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, lock, process = held
    for _ in range(2):  # a refused writer does not remove the lock
        with pytest.raises(FewlinkError, match="f is being trained"), lock(folder, "f is being trained"):
            pass
    assert process.stdin is not None
    threading.Timer(1.5, process.stdin.close).start()  # its input ends, and so does its lock
    with lock(folder), lock(folder):  # the same thread may lock twice
        assert str(folder) in capsys.readouterr().err
    assert listed(tmp_path) == ["f"] and listed(folder) == []


def test_the_lock_of_a_killed_process_is_free(held: tuple[Path, Any, subprocess.Popen[str]], tmp_path: Path) -> None:
    folder, lock, process = held
    process.kill()
    process.wait()
    with lock(folder, "busy"):
        pass
    assert listed(tmp_path) == ["f"] and listed(folder) == []


def test_locking_inside_a_folder_puts_right_what_is_in_it(tmp_path: Path) -> None:
    write(tmp_path / "best").rename(tmp_path / ".best.previous")
    for name in (".best.new", ".config.json.new"):
        (tmp_path / name).mkdir()
    (tmp_path / ".config.json.lock").touch()
    (tmp_path / ".profile").touch()
    with storage.replaced_file(tmp_path / "mine") as draft, storage.locked_inside(tmp_path):
        draft.touch()  # what this thread is writing stays
        assert listed(tmp_path) == [".lock", ".mine.lock", ".mine.new", ".profile", "best"]
    assert listed(tmp_path) == [".profile", "best", "mine"]


COUNT = """
place, number = Path(argv[0]), int(argv[1])
sys.stdin.read(1)
for _ in range(number):
    with storage.locked(place):
        count = int(place.read_text())
        time.sleep(0.001)
        place.write_text(str(count + 1))
"""


def test_locks_that_remove_their_files_still_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    processes = [in_a_process(COUNT, tmp_path / "count", 40) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        with process:
            assert process.wait() == 0
    assert (tmp_path / "count").read_text() == "160" and listed(tmp_path) == ["count"]


REPLACE = """
place, number, os.fsync = Path(argv[0]), 0, lambda handle: None
print("ready", flush=True)
while not (place.parent / "stop").exists():
    number += 1
    with storage.new_folder(place, "test/1", {"number": number}) as folder:
        for name in "abc":
            (folder / name).write_text(str(number))
"""


def test_a_reader_sees_one_version_while_a_writer_replaces_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "f"
    with storage.new_folder(place, FORMAT, {"number": 0}) as folder:
        for name in "abc":
            (folder / name).write_text("0")
    writer = in_a_process(REPLACE, place)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"

    def load(found: Path, manifest: dict[str, Any]) -> set[int]:
        return {manifest["number"], *(int((found / name).read_text()) for name in "abc")}

    seen = set[int]()
    with writer:
        try:
            for _ in range(100_000):
                version = storage.read_folder(place, FORMAT, load, verify=False)
                assert len(version) == 1
                seen |= version
                if len(seen) > 100:
                    break
        finally:
            (tmp_path / "stop").touch()
    assert len(seen) > 100 and listed(tmp_path) == ["f", "stop"]


def test_a_manifest_that_was_moved_before_it_could_be_held_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "a", "new")
    later = (folder / storage.MANIFEST).read_bytes()
    write(folder, "old")
    tries, opened = list[str](), Path.open

    def moved_first(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if path.name == storage.MANIFEST and mode == "rb" and not tries:
            tries.append("moved")
            raise FileNotFoundError(2, "moved by a writer")
        return opened(path, mode, *rest, **more)

    def load(place: Path, manifest: dict[str, Any]) -> tuple[str, str]:
        text = (place / "a.txt").read_text()
        if len(tries) == 1:  # replaced meanwhile, and the later manifest has the number of the first
            (place / "a.txt").write_text("new")
            (place / storage.MANIFEST).write_bytes(later)
        tries.append("loaded")
        return text, (place / "a.txt").read_text()

    monkeypatch.setattr(Path, "open", moved_first)
    assert storage.read_folder(folder, FORMAT, load, verify=False) == ("new", "new")


def test_a_folder_that_was_away_for_a_moment_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, looked = write(tmp_path / "a"), list[Path]()
    away = places.beside(folder, "previous")

    def while_replaced(path: Path) -> Path:
        """A writer moves the folder away after the first look, and back before the second."""
        if away.exists():
            away.rename(folder)
        looked.append(places.place_of(path))
        if len(looked) == 1:
            folder.rename(away)
        return looked[-1]

    monkeypatch.setattr(folders, "place_of", while_replaced)
    assert storage.read_folder(folder, FORMAT, lambda place, manifest: (place / "a.txt").read_text(), verify=False)
    assert len(looked) > 2


def test_a_folder_that_never_stops_changing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_READ_SECONDS", 0.1)
    place = write(tmp_path / "f")
    with pytest.raises(InputError, match="f: "):
        storage.read_folder(place, FORMAT, lambda found, manifest: write(place))
    with pytest.raises(ZeroDivisionError):  # an error of the reader itself is raised
        storage.read_folder(place, FORMAT, lambda found, manifest: 1 // 0)


def test_a_repeated_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}')
    with pytest.raises(InputError, match=r"a.json"):
        storage.read_json(tmp_path / "a.json")


def test_a_lock_is_held_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed after its release, it may be the file of the next writer, and a third one would make another."""
    held, unlink = list[bool](), os.unlink

    def watched(path: Path) -> None:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        unlink(path)

    monkeypatch.setattr(os, "unlink", watched)
    with storage.locked(tmp_path / "f"), storage.locked_inside(tmp_path):
        pass
    assert held == [True, True]


def test_what_is_written_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[tuple[str, str]]()

    def placed(real: Any) -> Any:
        return lambda old, new: (real(old, new), done.append(("placed", Path(new).name)))

    for module in (files, folders):
        monkeypatch.setattr(module, "sync", lambda path: done.append(("synced", path.name)))
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, placed(getattr(os, name)))
    storage.write_json(tmp_path / "a.json", 1)
    parent = ("synced", tmp_path.name)
    assert done == [("synced", "draft"), ("placed", "a.json"), parent]
    done.clear()
    write(tmp_path / "f")
    assert done[-2:] == [("placed", "f"), parent]
    names = {"a.txt", "deep", "b.txt", "manifest.json", ".f.new"}
    assert set(done[:-2]) == {("synced", name) for name in names}


def test_a_version_that_was_replaced_meanwhile_is_not_returned(tmp_path: Path) -> None:
    """A writer has moved the old folder, and gives the new one its name while the old one is read."""
    place, new = write(tmp_path / "f", "old"), write(tmp_path / "new", "new")
    place.rename(tmp_path / ".f.previous")

    def load(found: Path, manifest: dict[str, Any]) -> str:
        text = (found / "a.txt").read_text()
        if not place.exists():
            shutil.copytree(new, place)
        return text

    assert storage.read_folder(place, FORMAT, load) == "new"


def test_a_folder_that_appears_while_it_is_looked_for_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, exists, asked = write(tmp_path / "f"), os.path.exists, list[bool]()
    shutil.copytree(place, tmp_path / ".f.previous")

    def late(path: Path) -> bool:
        first = path == place and not asked
        asked.extend([True] * (path == place))
        return not first and exists(path)

    monkeypatch.setattr(os.path, "exists", late)
    assert storage.place_of(place) == place


def test_the_manifest_of_a_folder_is_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, remove, listings = write(tmp_path / "f", "old"), shutil.rmtree, list[list[str]]()

    def watched(path: Path, **options: Any) -> None:
        listings.append(listed(path))
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    write(place, "new")
    assert listings == [["a.txt", "deep"]]  # of the version before


def test_a_checksum_whose_name_is_damaged_is_still_one(tmp_path: Path) -> None:
    content = storage.with_sha256({"b": [1.5, "x"], "a": None})
    assert list(content) == ["b", "a", "sha256"]
    assert storage.without_sha256(content, tmp_path) == {"b": [1.5, "x"], "a": None}
    assert storage.without_sha256({"a": 1}, tmp_path) == {"a": 1}
    digest = content.pop("sha256")
    for name in ("shb256", "sha25v", "3ha256", "sha256"):
        with pytest.raises(InputError, match=str(tmp_path)):
            storage.without_sha256({**content, "a": 0 if name == "sha256" else None, name: digest}, tmp_path)


def test_a_folder_of_another_format_that_a_killed_writer_moved_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "f", "old", "other/1").rename(tmp_path / ".f.previous")
    with pytest.raises(FewlinkError, match=r"f .*test/1"):
        write(tmp_path / "f", "new")
    assert (tmp_path / "f" / "a.txt").read_text() == "old" and listed(tmp_path) == ["f"]
