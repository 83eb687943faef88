"""Reading a file of triples: its lines and blocks, checks of rows, and a report of problems."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import numpy as np

from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph.compression import COMPRESSIONS, reading_source
from fewlink.graph.vocabulary import Block, is_text

BLOCK_BYTES = 32 << 20  # read at a time
BLOCK_ROWS = 1 << 17  # triples of a block
MAX_LINE_BYTES = 1 << 20
MAX_NAME_BYTES = 1 << 17  # the csv module has the same limit
MAX_LISTED_PROBLEMS = 5
MAX_BAD_LINES = 1_000_000  # before the first triple
NEWLINE = 10
FILLED = ~np.isin(np.arange(256), list(b" \n\r\v\f"))  # by byte: False for the white space of a blank line
HEADERS = (
    {b"head", b"subject", b"source", b"h", b"s", b"from"},
    {b"relation", b"predicate", b"edge", b"r", b"p", b"type"},
    {b"tail", b"object", b"target", b"t", b"o", b"to"},
)


@dataclass
class CompileReport:
    """The numbers of triples read, skipped and left out, and the problems found."""

    triples: int = 0
    skipped: int = 0
    literals: int = 0
    duplicates: int = 0
    self_loops: int = 0
    descriptions: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)  # name and type by id, from STIX
    problems: list[str] = field(default_factory=list)  # the first few skipped lines
    headers: list[str] = field(default_factory=list)  # a remark for each file with a header row
    labels: dict[bytes, tuple[int, bytes]] | None = None  # rank and readable name by id; None if no RDF was read

    def remarks(self) -> list[str]:
        """Remarks for the user, one for each kind of problem."""
        lines = list(self.headers)
        if self.skipped:
            lines.append(f"{self.skipped:,} bad lines skipped, the first:")
            lines += [f"  {problem}" for problem in self.problems]
        if self.literals:
            lines.append(f"{self.literals:,} triples with a literal object left out")
        if self.duplicates:
            lines.append(f"{self.duplicates:,} duplicate triples left out")
        if self.self_loops:
            lines.append(f"{self.self_loops:,} self-loops (head = tail) kept")
        return lines

    def no_triples(self, paths: Sequence[Path]) -> FewlinkError:
        """The error for files without triples."""
        for path in paths:
            if _is_binary(path):
                return InputError(path, "is a binary file: give text with a head, a relation and a tail on each line")
        reason = f" ({self.skipped:,} bad lines, the first: {self.problems[0]})" if self.skipped else ""
        return FewlinkError(f"no triples in {', '.join(map(str, paths)) or 'no files'}{reason}")


class Source:
    """A file that is being read: its current line, whether to skip bad lines, and the report."""

    def __init__(self, path: Path, skip: bool, report: CompileReport) -> None:
        self.path = path
        self.skip = skip
        self.report = report
        self.line = 0  # number of lines before the current block
        self.good = False  # whether the file has a triple so far

    def bad(self, problem: str, line: int | None) -> None:
        """Raise an error for a bad line or, when skipping, count it."""
        if not self.skip:
            raise InputError(self.path, problem, line)
        self.report.skipped += 1
        if self.report.skipped > MAX_BAD_LINES and not (self.good or self.report.triples):
            first = self.report.problems[0]
            raise InputError(self.path, f"has over {MAX_BAD_LINES:,} bad lines and no triple; the first: {first}")
        if len(self.report.problems) < MAX_LISTED_PROBLEMS:
            self.report.problems.append(str(InputError(self.path, problem, line)))

    def lines(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """The non-blank lines of the current block, with their numbers."""
        data = np.frombuffer(raw, np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        filled = np.cumsum(FILLED[data], dtype=np.int32)[ends]
        numbers = np.flatnonzero(np.diff(filled, prepend=0))
        begins = np.where(numbers > 0, ends[numbers - 1] + 1, 0)
        places = zip(numbers.tolist(), begins.tolist(), ends[numbers].tolist(), strict=True)
        return ((self.line + 1 + number, raw[begin:end]) for number, begin, end in places)


class Peeked(io.RawIOBase):
    """A file whose beginning can be examined before it is read. Its byte order mark is removed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.begin = b""
        self.peeked = False

    def readable(self) -> bool:
        return True

    def peek(self) -> bytes:
        """The first bytes of the file."""
        if not self.peeked:
            self.begin = self.file.read(1 << 12).removeprefix(codecs.BOM_UTF8)
            self.peeked = True
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
    """Yield blocks of triples from rows (line number or None, [head, relation, tail]). Blank rows are skipped."""
    fields: list[bytes] = []
    for line, row in rows:
        if not is_blank(row):
            _add_row(source, fields, row, line)
        if len(fields) >= 3 * BLOCK_ROWS:
            yield Block.of(fields)
            fields = []
    yield Block.of(fields)


def is_blank(row: list[bytes]) -> bool:
    """Whether a line is empty or white space. A line with a separator is not blank."""
    return len(row) < 2 and not b"".join(row).strip()


def _add_row(source: Source, fields: list[bytes], row: list[bytes], line: int | None) -> None:
    if len(row) != 3:
        source.bad(f"has {len(row)} columns instead of head, relation and tail", line)
    elif not all(row):
        source.bad(f"has an empty {('head', 'relation', 'tail')[row.index(b'')]}", line)
    elif not all(map(is_text, row)):
        source.bad("is not UTF-8 text", line)
    elif max(map(len, row)) > MAX_NAME_BYTES:
        source.bad(f"has a name of over {MAX_NAME_BYTES:,} bytes", line)
    else:
        source.good = True
        fields.extend(row)


def numbered_lines(source: Source, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their numbers."""
    for raw in whole_lines(source, file):
        yield from source.lines(raw)
        source.line += raw.count(b"\n")


def whole_lines(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines; every line ends with a line feed."""
    rest = b""
    first = True
    while chunk := file.read(BLOCK_BYTES):
        if first:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
            first = False
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest += chunk
            if len(rest) > MAX_LINE_BYTES + BLOCK_BYTES:
                raise InputError(source.path, f"has a line of over {MAX_LINE_BYTES:,} bytes", source.line + 1)
            continue
        yield _unix(rest + chunk[:cut])
        rest = chunk[cut:]
    if rest:
        yield _unix(rest).removesuffix(b"\r") + b"\n"


def _unix(raw: bytes) -> bytes:
    return raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw


def _is_binary(path: Path) -> bool:
    """Whether an uncompressed file has a zero byte near its beginning."""
    if path.suffix.lower() in COMPRESSIONS:
        return False
    with reading_source(path), path.open("rb") as file:
        return b"\0" in file.read(1 << 16)


def triple_columns(path: Path, names: list[str]) -> list[str]:
    """The columns of head, relation and tail: by their names, or else the only three. Raise if there are others."""
    named = [next((c for c in names if c.lower().encode() in known), None) for known in HEADERS]
    columns = [c for c in named if c is not None]
    columns = columns if len(columns) == 3 else names
    if len(columns) != 3:
        raise InputError(
            path, f"has columns {', '.join(names)}: name three of them head, relation and tail, or leave only three"
        )
    for column in columns:
        if names.count(column) > 1:
            raise InputError(path, f"has two columns '{column}': name the columns head, relation and tail")
    return columns
