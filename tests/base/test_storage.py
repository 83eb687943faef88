from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.base import storage
from fewlink.base.errors import FewlinkError, InputError

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
        with pytest.raises(FewlinkError, match=f"{name} exists and is not a other/1 folder"):
            write(tmp_path / name, format="other/1")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "irreplaceable"


def test_the_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for place in (Path("."), Path("..")):
        with pytest.raises(FewlinkError, match="is or contains the working folder"):
            write(place)


def test_an_unwritable_path_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FewlinkError, match="file"):
        write(tmp_path / "file" / "f")
    with pytest.raises(FewlinkError, match="file"):
        storage.write_json(tmp_path / "file" / "a.json", {})


def test_a_missing_a_truncated_and_a_foreign_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        storage.open_folder(tmp_path / "nothing", FORMAT)
    with pytest.raises(InputError, match=r"manifest.json: cannot be read"):
        storage.open_folder(tmp_path, FORMAT)
    with pytest.raises(InputError, match="has format 'test/1', this version of fewlink reads 'test/2'"):
        storage.open_folder(write(tmp_path / "f"), "test/2")
    (tmp_path / "f" / "a.txt").write_text("hell")
    with pytest.raises(InputError, match=r"a.txt: was changed or damaged"):
        storage.open_folder(tmp_path / "f", FORMAT, verify=False)
    (tmp_path / "f" / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a.txt: is missing"):
        storage.open_folder(tmp_path / "f", FORMAT, verify=False)


def test_large_folders_are_hashed_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "ALWAYS_VERIFIED_BYTES", 3)
    write(tmp_path / "f")
    (tmp_path / "f" / "a.txt").write_text("jello")
    storage.open_folder(tmp_path / "f", FORMAT)
    with pytest.raises(InputError, match=r"a.txt: was changed or damaged"):
        storage.open_folder(tmp_path / "f", FORMAT, verify=True)


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
    with pytest.raises(InputError, match=r"a.json:4: is not JSON"):
        storage.read_json(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"none.json: cannot be read \(No such file"):
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


DEAD = 2**22 + 1  # above the largest process id of Linux


def test_a_folder_moved_by_a_killed_process_is_restored(tmp_path: Path) -> None:
    with storage.new_folder(tmp_path / "kept", FORMAT, {"fact": 1}):
        pass
    (tmp_path / "kept").rename(tmp_path / f".kept.{DEAD}.old")
    assert storage.open_folder(tmp_path / "kept", FORMAT)["fact"] == 1


def test_drafts_of_killed_processes_are_removed_and_those_of_running_ones_stay(tmp_path: Path) -> None:
    dead, living = tmp_path / f".kept.{DEAD}.part", tmp_path / ".kept.1.part"
    for folder in (dead, living):
        folder.mkdir()
    with storage.new_folder(tmp_path / "kept", FORMAT, {}):
        pass
    assert not dead.exists() and living.exists()


def test_a_key_that_comes_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}')
    with pytest.raises(InputError, match=r"a.json: is JSON that cannot be read \(the key 'c' comes twice\)"):
        storage.read_json(tmp_path / "a.json")
