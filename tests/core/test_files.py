from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core import files
from fewlink.core.errors import FewlinkError, InputError, wrong_format

FORMAT = "test/1"


def write(path: Path, text: str = "hello", format: str = FORMAT) -> Path:
    with files.new_folder(path, format, {"fact": 1}) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.txt").write_text("b")
    return path


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_lists_its_files_and_facts(tmp_path: Path) -> None:
    manifest = files.open_folder(write(tmp_path / "f"), FORMAT)
    assert (manifest["format"], manifest["fact"]) == (FORMAT, 1)
    hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert manifest["files"]["a.txt"] == {"bytes": 5, "sha256": hello}
    assert list(manifest["files"]) == ["a.txt", "deep/b.txt"]


@pytest.mark.parametrize("old", [True, False])
def test_an_error_while_writing_changes_nothing(tmp_path: Path, old: bool) -> None:
    if old:
        write(tmp_path / "f", "old")
    with pytest.raises(KeyboardInterrupt), files.new_folder(tmp_path / "f", FORMAT, {}) as folder:
        (folder / "a.txt").write_text("new")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), files.replaced_file(tmp_path / "g") as draft:
        draft.write_text("half")
        raise KeyboardInterrupt
    assert listed(tmp_path) == ["f"] * old
    if old:
        files.open_folder(tmp_path / "f", FORMAT)
        assert (tmp_path / "f" / "a.txt").read_text() == "old"


def test_a_folder_of_the_same_format_is_replaced_and_any_other_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "f", "old")
    write(tmp_path / "f", "new")
    assert (tmp_path / "f" / "a.txt").read_text() == "new" and listed(tmp_path) == ["f"]
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


@pytest.mark.parametrize("parent", ["file", "/proc"])
def test_an_unwritable_path_is_an_error_that_names_it(tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").write_text("in the way")
    for make in (write, lambda path: files.write_json(path, {})):
        with pytest.raises(FewlinkError, match=parent):
            make(tmp_path / parent / "f")


def test_a_missing_a_cut_off_and_a_foreign_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing"):
        files.open_folder(tmp_path / "nothing", FORMAT)
    with pytest.raises(InputError, match=r"manifest.json"):
        files.open_folder(tmp_path, FORMAT)
    with pytest.raises(InputError, match=r"'test/1'.*'test/2'"):
        files.open_folder(write(tmp_path / "f"), "test/2")
    (tmp_path / "f" / "a.txt").write_text("hell")
    with pytest.raises(InputError, match=r"a.txt"):
        files.open_folder(tmp_path / "f", FORMAT)
    (tmp_path / "f" / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a.txt"):
        files.open_folder(tmp_path / "f", FORMAT)


def test_the_folder_of_a_newer_version_is_named_as_such(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", format="test/12")
    with pytest.raises(InputError, match=r"newer version .*test/12"):
        files.open_folder(folder, "test/3")
    for other in ("other/1", "test/13"):
        assert "newer version" not in str(wrong_format(folder, "test/12", other))


def test_a_large_folder_is_opened_without_hashing_until_a_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte is found although size and modification time are as before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with files.new_folder(tmp_path / "f", FORMAT, {}) as folder:
        np.save(folder / "a.npy", np.zeros(70 << 20, np.int8))
    place = tmp_path / "f" / "a.npy"
    for _ in range(2):
        files.open_folder(tmp_path / "f", FORMAT)
    before = place.stat()
    with place.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"x")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match=r"a.npy"):
        files.open_folder(tmp_path / "f", FORMAT)


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
            files.open_folder(folder, FORMAT)


@given(st.data())
def test_no_flipped_byte_changes_the_content_of_a_manifest(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / "f")
        before = files.open_folder(folder, FORMAT)
        flip(folder / "manifest.json", data)
        with contextlib.suppress(InputError):
            assert files.open_folder(folder, FORMAT) == before


@pytest.mark.parametrize("listing", [None, [], {"a.txt": {}}, {"a.txt": None}, {"a.txt": {"bytes": "5", "sha256": 1}}])
def test_an_invalid_manifest_is_an_error(tmp_path: Path, listing: object) -> None:
    write(tmp_path / "f")
    (tmp_path / "f" / "manifest.json").write_text(json.dumps(files.with_sha256({"format": FORMAT, "files": listing})))
    with pytest.raises(InputError):
        files.open_folder(tmp_path / "f", FORMAT)


@pytest.mark.parametrize("text", ['{"format": "fewlink-pretr', '{"format": "fewlink-pretrained/1"}', '{"sha256": 1}'])
def test_a_damaged_manifest_is_never_taken_for_another_programs(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json"):
        files.is_folder_of(tmp_path, FORMAT)
    (tmp_path / "manifest.json").write_text('{"short_name": "a web page"}')
    assert not files.is_folder_of(tmp_path, FORMAT)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "deep/../../x", "link", "linked/x", ".", "a\0"])
def test_a_manifest_that_names_something_outside_its_folder_is_an_error(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "f")
    outside = tmp_path / "x"
    outside.write_text("secret")
    (folder / "link").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    fact = {"bytes": 6, "sha256": files.sha256_file(outside)}
    (folder / "manifest.json").write_text(json.dumps(files.with_sha256({"format": FORMAT, "files": {name: fact}})))
    with pytest.raises(InputError):
        files.open_folder(folder, FORMAT)


@pytest.mark.parametrize("name", ["manifest.json", "a.txt"])
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_only_plain_files_are_opened(tmp_path: Path, name: str, kind: str) -> None:
    folder = write(tmp_path / "f")
    (folder / name).unlink()
    if kind == "FIFO":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match=str(folder)):
        files.open_folder(folder, FORMAT)


def test_a_folder_whose_files_are_links_into_the_cache_of_the_hub_opens(tmp_path: Path) -> None:
    folder = write(tmp_path / "model" / "snapshots" / "1a2b")
    (tmp_path / "model" / "blobs").mkdir()
    (folder / "a.txt").rename(tmp_path / "model" / "blobs" / "77")
    (folder / "a.txt").symlink_to("../../blobs/77")
    assert files.open_folder(folder, FORMAT)["fact"] == 1


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    files.write_json(tmp_path / "new" / "a.json", {"é": [1]})
    files.write_json(tmp_path / "new" / "a.json", {"é": [2]})
    assert files.read_json(tmp_path / "new" / "a.json") == {"é": [2]}
    assert listed(tmp_path / "new") == ["a.json"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{\n "a": 1,\n "b"\n}', "a.json:4"),
        ('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', "'c'"),
        ("[" * 100_000, "a.json"),
        ("1" * 5000, "a.json"),
    ],
)
def test_broken_json_is_an_error_that_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=problem):
        files.read_json(tmp_path / "a.json")


@given(st.binary() | st.text().map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_json_or_a_clean_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.json"
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            files.read_json(path)


def test_content_with_another_checksum_or_none_is_an_error(tmp_path: Path) -> None:
    content = files.with_sha256({"b": [1.5, "x"], "a": None})
    assert files.without_sha256(content, tmp_path) == {"b": [1.5, "x"], "a": None}
    for changed in ({**content, "a": 0}, {"b": [1.5, "x"], "a": None}):
        with pytest.raises(InputError, match=str(tmp_path)):
            files.without_sha256(changed, tmp_path)


def test_a_folder_that_a_killed_writer_moved_is_read_and_the_next_writer_cleans_up(tmp_path: Path) -> None:
    write(tmp_path / "kept", "old").rename(tmp_path / ".kept.previous")
    write(tmp_path / "draft", "new").rename(tmp_path / ".kept.new")
    left = listed(tmp_path)
    assert files.open_folder(tmp_path / "kept", FORMAT)["fact"] == 1
    assert files.is_folder_of(tmp_path / "kept", FORMAT) and files.exists(tmp_path / "kept")
    assert listed(tmp_path) == left  # reading changes nothing
    with pytest.raises(FewlinkError, match="other/1"):
        write(tmp_path / "kept", format="other/1")
    assert (tmp_path / "kept" / "a.txt").read_text() == "old" and listed(tmp_path) == ["kept"]


@pytest.mark.parametrize("name", ["emb.v1", ".emb", "emb.previous", "emb*", "[e]mb"])
def test_no_writer_touches_what_belongs_to_another_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, "other").rename(tmp_path / f".{name}.previous")
    (tmp_path / f".{name}.new").mkdir()
    write(tmp_path / "emb", "mine")
    write(tmp_path / "emb", "mine again")
    assert listed(tmp_path) == sorted([f".{name}.previous", f".{name}.new", "emb"])
    assert files.open_folder(tmp_path / name, FORMAT)["fact"] == 1


def test_what_is_left_of_a_removed_version_is_not_read(tmp_path: Path) -> None:
    left = write(tmp_path / "kept").rename(tmp_path / ".kept.previous")
    (left / "manifest.json").unlink()  # goes first
    with pytest.raises(InputError, match="kept"):
        files.open_folder(tmp_path / "kept", FORMAT)
    write(tmp_path / "kept")
    assert listed(tmp_path) == ["kept"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "a.txt").read_text() == "new"
    (tmp_path / "real").rename(tmp_path / ".real.previous")
    assert files.open_folder(tmp_path / "link", FORMAT)["fact"] == 1


def test_files_and_folders_have_the_permissions_of_others(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_json(tmp_path / "a.json", {})
        write(tmp_path / "f")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {modes[name] for name in ("a.json", "a.txt", "b.txt", "manifest.json")} == {0o640}
    assert {modes[name] for name in ("f", "deep")} == {0o750}


def in_a_process(code: str, *words: object) -> subprocess.Popen[str]:
    """Code in a process of its own, after `files` and `Path` are imported; `argv` are the words."""
    head = "import os, sys, time; from pathlib import Path; from fewlink.core import files; argv = sys.argv[1:]\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code), *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
with files.locked(Path(argv[0])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked the folder `f`."""
    (tmp_path / "f").mkdir()
    process = in_a_process(HOLD, tmp_path / "f")
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    with process:
        yield process
        process.kill()


def test_a_second_writer_is_refused_at_once_or_waits_and_says_so(
    holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "f"
    for _ in range(2):  # a refused writer does not remove the lock
        with pytest.raises(FewlinkError, match="f is being trained"), files.locked(folder, "f is being trained"):
            pass
    assert holder.stdin is not None
    threading.Timer(1.5, holder.stdin.close).start()  # its input ends, and so does its lock
    with files.locked(folder), files.locked(folder):  # the same thread may lock twice
        assert str(folder) in capsys.readouterr().err
        with files.locked(folder):
            pass
        assert listed(tmp_path) == [".f.lock", "f"]
    assert listed(tmp_path) == ["f"]


def test_the_lock_of_a_killed_process_is_free(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    with files.locked(tmp_path / "f", "busy"):
        pass
    assert listed(tmp_path) == ["f"]


COUNT = """
import threading
def count():
    for _ in range(20):
        with files.locked(place):
            number = int(place.read_text())
            time.sleep(0.001)
            place.write_text(str(number + 1))
place = Path(argv[0])
sys.stdin.read(1)
threads = [threading.Thread(target=count) for _ in range(2)]
[each.start() for each in threads]
[each.join() for each in threads]
"""


def test_processes_and_threads_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    processes = [in_a_process(COUNT, tmp_path / "count") for _ in range(4)]
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
    with files.new_folder(place, "test/1", {"number": number}) as folder:
        for name in "abc":
            (folder / name).write_text(str(number))
"""


def test_a_reader_sees_one_version_while_a_writer_replaces_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "f"
    with files.new_folder(place, FORMAT, {"number": 0}) as folder:
        for name in "abc":
            (folder / name).write_text("0")
    writer = in_a_process(REPLACE, place)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"

    def load(found: Path, manifest: dict[str, Any]) -> set[int]:
        return {manifest["number"], *(int((found / name).read_text()) for name in "abc")}

    seen = set[int]()
    with writer:
        try:
            while len(seen) <= 100:
                version = files.read_folder(place, FORMAT, load)
                assert len(version) == 1
                seen |= version
        finally:
            (tmp_path / "stop").touch()
    assert listed(tmp_path) == ["f", "stop"]


KILLED = """
import random, signal, threading
rng = random.Random(int(argv[1]))
threading.Timer(rng.uniform(0, 0.1), os.kill, (os.getpid(), signal.SIGKILL)).start()
for number in range(10_000):
    with files.new_folder(Path(argv[0]), "test/1", {"number": number}) as folder:
        (folder / "a").write_text(str(number))
"""


@pytest.mark.slow
def test_a_folder_is_whole_after_its_writer_was_killed(tmp_path: Path) -> None:
    place = tmp_path / "f"
    write(place)
    for seed in range(20):
        writer = in_a_process(KILLED, place, seed)
        with writer:
            assert writer.wait() == -9
        files.open_folder(place, FORMAT)
        write(place)
        assert listed(tmp_path) == ["f"]
