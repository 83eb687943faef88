"""A file of triples as it is read: lines and blocks, checked rows, and a report of what was skipped."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import numpy as np

from fewlink.core.errors import (
    FewlinkError,
    InputError,
)
from fewlink.graph.compression import COMPRESSIONS, reading_source
from fewlink.graph.vocabulary import (
    Block,
    is_text,
)

BLOCK_BYTES = 32 << 20
BLOCK_ROWS = 1 << 17
LONGEST_LINE = 1 << 20
LONGEST_NAME = 1 << 17  # bytes; the csv module has the same limit
SHOWN_PROBLEMS = 5
MOST_BAD = 1_000_000  # bad lines before the first triple
NEWLINE = 10
FILLED = ~np.isin(np.arange(256), list(b" \n\r\v\f"))  # by byte: False for the white space of a blank line
HEADERS = (
    {b"head", b"subject", b"source", b"h", b"s", b"from"},
    {b"relation", b"predicate", b"edge", b"r", b"p", b"type"},
    {b"tail", b"object", b"target", b"t", b"o", b"to"},
)


@dataclass
class CompileReport:
    """What was read, skipped and left out."""

    triples: int = 0
    skipped: int = 0
    literals: int = 0
    duplicates: int = 0
    self_loops: int = 0
    descriptions: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)  # name and type by id, of STIX
    problems: list[str] = field(default_factory=list)  # the first few skipped lines
    headers: list[str] = field(default_factory=list)  # a remark for each file with a header row
    labels: dict[bytes, tuple[int, bytes]] | None = None  # rank and readable name, by id; None: no RDF was read

    def remarks(self) -> list[str]:
        """Remarks for the user, one for each kind of problem."""
        lines = [f"{self.skipped:,} bad lines skipped, the first:", *(f"  {p}" for p in self.problems)]
        return [
            *self.headers,
            *(lines if self.skipped else []),
            *([f"{self.literals:,} triples with a literal object left out"] if self.literals else []),
            *([f"{self.duplicates:,} duplicate triples left out"] if self.duplicates else []),
            *([f"{self.self_loops:,} self-loops (head = tail) kept"] if self.self_loops else []),
        ]

    def no_triples(self, paths: Sequence[Path]) -> FewlinkError:
        """The error for files without triples."""
        if binary := next((path for path in paths if _is_binary(path)), None):
            return InputError(binary, "is a binary file, not text with a head, a relation and a tail on each line")
        why = f" ({self.skipped:,} bad lines, the first: {self.problems[0]})" if self.skipped else ""
        return FewlinkError(f"no triples in {', '.join(map(str, paths)) or 'no files'}{why}")


class Source:
    """A file being read: the current position, and whether bad lines are skipped."""

    def __init__(self, path: Path, skip: bool, report: CompileReport) -> None:
        self.path, self.skip, self.report = path, skip, report
        self.line = 0  # lines before the current block
        self.good = False  # whether a triple was found

    def bad(self, problem: str, line: int | None) -> None:
        """Raise an error for a bad line, or count it."""
        if not self.skip:
            raise InputError(self.path, problem, line)
        self.report.skipped += 1
        if self.report.skipped > MOST_BAD and not (self.good or self.report.triples):
            first = self.report.problems[0]
            raise InputError(self.path, f"has over {MOST_BAD:,} bad lines and no triple; the first: {first}")
        if len(self.report.problems) < SHOWN_PROBLEMS:
            self.report.problems.append(str(InputError(self.path, problem, line)))

    def lines(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines of the current block that are not blank, with their numbers."""
        data = np.frombuffer(raw, np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        filled = np.cumsum(FILLED[data], dtype=np.int32)[ends]
        numbers = np.flatnonzero(np.diff(filled, prepend=0))
        begins = np.where(numbers > 0, ends[numbers - 1] + 1, 0)
        places = zip(numbers.tolist(), begins.tolist(), ends[numbers].tolist(), strict=True)
        return ((self.line + 1 + number, raw[begin:end]) for number, begin, end in places)


class Peeked(io.RawIOBase):
    """A file whose beginning can be looked at before it is read, without its byte order mark."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.begin = file, b""
        self.peeked = False

    def readable(self) -> bool:
        return True

    def peek(self) -> bytes:
        """The first bytes of the file."""
        if not self.peeked:
            self.begin, self.peeked = self.file.read(1 << 12).removeprefix(codecs.BOM_UTF8), True
        return self.begin

    def read(self, size: int = -1, /) -> bytes:
        begin = self.peek()
        if 0 <= size <= len(begin):
            self.begin = begin[size:]
            return begin[:size]
        self.begin = b""
        return begin + self.file.read(size if size < 0 else size - len(begin))

    def as_file(self) -> IO[bytes]:
        return cast("IO[bytes]", self)


def blocks_of(source: Source, rows: Iterable[tuple[int | None, list[bytes]]]) -> Iterator[Block]:
    """Blocks of triples from rows (line number if any, [head, relation, tail]); reports bad rows, skips blank ones."""
    fields: list[bytes] = []
    for line, row in rows:
        if not is_blank(row):
            _add_row(source, fields, row, line)
        if len(fields) >= 3 * BLOCK_ROWS:
            yield Block.of(fields)
            fields = []
    yield Block.of(fields)


def is_blank(row: list[bytes]) -> bool:
    """Whether a line is empty or white space; one with a separator is not."""
    return len(row) < 2 and not b"".join(row).strip()


def _add_row(source: Source, fields: list[bytes], row: list[bytes], line: int | None) -> None:
    if len(row) != 3:
        source.bad(f"has {len(row)} columns where head, relation and tail are expected", line)
    elif not all(row):
        source.bad(f"has an empty {('head', 'relation', 'tail')[row.index(b'')]}", line)
    elif not all(map(is_text, row)):
        source.bad("is not UTF-8 text", line)
    elif max(map(len, row)) > LONGEST_NAME:
        source.bad(f"has a name of over {LONGEST_NAME:,} bytes", line)
    else:
        source.good = True
        fields.extend(row)


def numbered_lines(source: Source, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers."""
    for raw in whole_lines(source, file):
        yield from source.lines(raw)
        source.line += raw.count(b"\n")


def whole_lines(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines, each of which ends with a line feed."""
    rest, first = b"", True
    while chunk := file.read(BLOCK_BYTES):
        if first:
            chunk, first = chunk.removeprefix(codecs.BOM_UTF8), False
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest += chunk
            if len(rest) > LONGEST_LINE + BLOCK_BYTES:
                raise InputError(source.path, f"has a line of over {LONGEST_LINE:,} bytes", source.line + 1)
            continue
        yield _unix(rest + chunk[:cut])
        rest = chunk[cut:]
    if rest:
        yield _unix(rest).removesuffix(b"\r") + b"\n"


def _unix(raw: bytes) -> bytes:
    return raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw


def _is_binary(path: Path) -> bool:
    """Whether a plain file has a zero byte near its beginning."""
    if path.suffix.lower() in COMPRESSIONS:
        return False
    with reading_source(path), path.open("rb") as file:
        return b"\0" in file.read(1 << 16)


def triple_columns(path: Path, names: list[str]) -> list[str]:
    named = [next((c for c in names if c.lower().encode() in known), None) for known in HEADERS]
    columns = [c for c in named if c is not None]
    columns = columns if len(columns) == 3 else names
    if len(columns) != 3:
        raise InputError(
            path, f"has columns {', '.join(names)}; it needs head, relation, tail (or exactly three columns)"
        )
    if twice := next((c for c in columns if names.count(c) > 1), None):
        raise InputError(path, f"has two columns '{twice}': name them head, relation, tail")
    return columns
