"""Lists that people write: names, one on each line, and pairs of names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fewlink.base.errors import FewlinkError, InputError

ARROW = "=>"


def read_names(path: Path) -> list[str]:
    """The names in a file, one on each line; empty lines are passed over, spaces around a name are dropped."""
    names = [text for _, line in _lines(path) if (text := line.strip())]
    if not names:
        raise InputError(path, "names nothing: write one entity on each line")
    return names


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs in a file, `head<TAB>tail` on each line; empty lines are passed over."""
    pairs = []
    for number, line in _lines(path):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise InputError(path, f"needs two names separated by one tab, and has {len(parts)} columns", number)
        pairs.append((parts[0], parts[1]))
    if not pairs:
        raise InputError(path, "has no references: write head<TAB>tail on each line")
    return pairs


def parse_pair(text: str) -> tuple[str, str]:
    """`head => tail`, or head and tail with a tab between them, which is the way for names that hold an arrow."""
    mark = "\t" if "\t" in text else ARROW
    parts = [part.strip() for part in text.split(mark)]
    if len(parts) != 2 or not all(parts):
        raise FewlinkError(
            f"'{text}' is not a reference: write 'HEAD => TAIL', or HEAD<TAB>TAIL where a name has an arrow itself"
        )
    return parts[0], parts[1]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    yield from enumerate((line.rstrip("\r") for line in text.split("\n")), 1)
