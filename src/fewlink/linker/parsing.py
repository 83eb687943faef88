"""Parse the names, pairs and triples that commands take in files and options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from fewlink.core.errors import FewlinkError, InputError, read_file
from fewlink.core.words import plural

ARROW = "=>"


class NameInFile(str):
    """A name that a user wrote in a file, and where: `where` is the file and the line."""

    where: str

    @classmethod
    def of(cls, name: str, path: Path, line: int) -> Self:
        found = cls(name)
        found.where = f"{path}:{line}"
        return found


def read_names(path: Path) -> list[str]:
    """Read the names in a file, one per line, as `NameInFile`; empty lines and spaces around names are ignored."""
    names: list[str] = [NameInFile.of(text, path, number) for number, line in _lines(path) if (text := line.strip())]
    if not names:
        raise InputError(path, "has no names: write one name per line")
    return names


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Read the pairs in a file, `head<TAB>tail` per line, as pairs of `NameInFile`; empty lines are ignored."""
    pairs: list[tuple[str, str]] = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise InputError(path, f"has {plural(len(parts), 'column')} instead of two: write head<TAB>tail", number)
        head, tail = (NameInFile.of(part, path, number) for part in parts)
        pairs.append((head, tail))
    if not pairs:
        raise InputError(path, "has no pairs: write head<TAB>tail on each line")
    return pairs


def parse_pair(text: str) -> tuple[str, str]:
    """Parse `head => tail`; a tab may replace the arrow, for names that contain one."""
    parts = [part.strip() for part in text.split("\t" if "\t" in text else ARROW)]
    if len(parts) != 2 or not all(parts):
        raise FewlinkError(
            f"'{text}' is not a pair: write 'HEAD => TAIL', or HEAD<TAB>TAIL if a name contains an arrow"
        )
    return parts[0], parts[1]


def parse_triple(text: str) -> tuple[str, str, str]:
    """Parse `head => relation => tail`; tabs may replace the arrows, for names that contain one."""
    parts = [part.strip() for part in text.split("\t" if "\t" in text else ARROW)]
    if len(parts) != 3 or not all(parts):
        raise FewlinkError(f"'{text}' is not a triple: write 'HEAD => RELATION => TAIL', or tabs instead of the arrows")
    return parts[0], parts[1], parts[2]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    yield from enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
