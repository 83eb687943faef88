"""Names and pairs in files and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fewlink.core.errors import FewlinkError, InputError
from fewlink.linker.parsing import parse_pair, read_names, read_pairs


def test_names_and_pairs_from_files(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes("\ufeffnew york\r\n\n  oslo  \nx => y\n".encode())
    assert read_names(path) == ["new york", "oslo", "x => y"]
    path.write_bytes(b"new york\trome\r\n\na \t b\n")
    assert read_pairs(path) == [("new york", "rome"), ("a", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", ":2: needs two names"),
        (b"a\tb\tc\n", ":1: .*3 columns"),
        (b"a\t\n", ":1:"),
        (b"", "has no pairs"),
    ],
)
def test_an_error_names_the_bad_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_pairs(tmp_path / "pairs")


def test_unreadable_files_raise(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xfe\n")
    (tmp_path / "empty").write_bytes(b"\n \n")
    for name, message in (("none", "cannot be read"), ("bad", "UTF-8"), ("empty", "empty"), (".", "cannot")):
        with pytest.raises(InputError, match=message):
            read_names(tmp_path / name)


def test_a_pair_in_one_argument() -> None:
    assert parse_pair("new york => oslo") == ("new york", "oslo") == parse_pair("new york=>oslo")
    assert parse_pair("x => y\tz") == ("x => y", "z")
    for text in ("a", "a =>", "=> b", "a => b => c", "a\tb\tc", ""):
        with pytest.raises(FewlinkError, match="HEAD => TAIL"):
            parse_pair(text)
