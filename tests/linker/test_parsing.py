"""Names and pairs in files and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import graph_of

from fewlink.core.errors import FewlinkError, InputError, UnknownName
from fewlink.linker import Names
from fewlink.linker.names import parse_pair, read_names, read_pairs
from fewlink.linker.query import find_heads, find_pairs


def test_names_and_pairs_from_files(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes("\ufeffnew york\r\n\n  oslo  \nx => y\n".encode())
    assert read_names(path) == ["new york", "oslo", "x => y"]
    path.write_bytes(b"new york\trome\r\n\na \t b\n")
    assert read_pairs(path) == [("new york", "rome"), ("a", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", ":2: has 1 column instead of two"),
        (b"a\tb\tc\n", ":1: has 3 columns instead of two"),
        (b"a\t\n", ":1:"),
        (b"", "pairs"),
        (b"\n", "pairs"),
    ],
)
def test_an_error_names_the_bad_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_pairs(tmp_path / "pairs")


def test_unreadable_files_raise(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xfe\n")
    (tmp_path / "empty").write_bytes(b"\n \n")
    for name in ("none", "bad", "empty", "."):
        with pytest.raises(InputError, match=(tmp_path / name).name):
            read_names(tmp_path / name)


def test_a_pair_in_one_argument() -> None:
    assert parse_pair("new york => oslo") == ("new york", "oslo") == parse_pair("new york=>oslo")
    assert parse_pair("x => y\tz") == ("x => y", "z")
    for text in ("a", "a =>", "=> b", "a => b => c", "a\tb\tc", ""):
        with pytest.raises(FewlinkError):
            parse_pair(text)


def test_unknown_names_of_files_are_reported_with_file_and_line(tmp_path: Path) -> None:
    graph = graph_of("aspirin treats pain", "linux runs windows")
    names = Names(graph)
    file = tmp_path / "refs.tsv"
    file.write_text("aspirin\tpain\n\nlinux\twindowz\n")
    with pytest.raises(
        UnknownName, match=r"^\S*refs\.tsv:3: unknown tail of a reference 'windowz'; did you mean 'windows'"
    ):
        find_pairs(names, read_pairs(file))
    heads = tmp_path / "heads.txt"
    heads.write_text("aspirin\naspirn\n")
    with pytest.raises(UnknownName, match=r"heads\.txt:2: unknown head 'aspirn'"):
        find_heads(names, read_names(heads), [])
    with pytest.raises(UnknownName, match=r"^unknown head 'aspirn'"):
        find_heads(names, ["aspirn"], [])
