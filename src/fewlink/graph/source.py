"""Reading a file of triples: its lines and blocks, checks of rows, and a report of problems."""

from __future__ import annotations

import codecs
import functools
import io
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, cast

import numpy as np

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.words import plural
from fewlink.graph.columns import Columns, Layout
from fewlink.graph.compression import COMPRESSIONS, Budget, reading_source
from fewlink.graph.vocabulary import Block, is_text

BLOCK_BYTES = 32 << 20  # read at a time
PEEKED_BYTES = 1 << 16  # examined before a file is read
BLOCK_ROWS = 1 << 17  # triples of a block
MAX_LINE_BYTES = 16 << 20  # pyoxigraph has the same limit
MAX_NAME_BYTES = 1 << 17  # the csv module has the same limit
MAX_LISTED_PROBLEMS = 5
MAX_BAD_LINES = 1_000_000  # before the first triple
TRIPLE_BYTES = 64  # that a triple takes in memory, beside its names
NEWLINE = 10
FILLED = ~np.isin(np.arange(256), list(b" \n\r\v\f"))  # by byte: False for the white space of a blank line

LITERALS = ("drop", "keep")
ON_ERROR = ("stop", "skip")


@dataclass(frozen=True)
class GraphSource:
    """A graph to open, and how to read it if it is one or several files of triples.

    files     files of triples; or a compiled graph, a benchmark, a name of the catalogue or a trained model
    columns   which columns of a table are head, relation and tail, if its header does not tell
    types     a file of `entity<TAB>type`
    names     a file of `id<TAB>readable name`, for entities and relations
    literals  "drop" leaves out relations whose tails are numbers, dates or truth values, "keep" reads them
    on_error  "stop" raises at the first bad line, "skip" leaves bad lines out and counts them
    bench     the benchmark of a trained model, if it has moved
    """

    files: tuple[str, ...]
    columns: Columns | None = None
    types: Path | None = None
    names: Path | None = None
    literals: str = "drop"
    on_error: str = "stop"
    bench: Path | None = None

    @classmethod
    def of(
        cls,
        file: str | Path | Sequence[str | Path] | GraphSource,
        *,
        columns: str | Mapping[str, str | int] | None = None,
        types: str | Path | None = None,
        names: str | Path | None = None,
        literals: str = "drop",
        on_error: str = "stop",
        bench: str | Path | None = None,
    ) -> GraphSource:
        """Check the options of a command or function, and make one value of them; a GraphSource has its own."""
        if isinstance(file, GraphSource):
            return file
        if literals not in LITERALS:
            raise FewlinkError(f"literals is '{literals}': use {' or '.join(LITERALS)}")
        if on_error not in ON_ERROR:
            raise FewlinkError(f"on-error is '{on_error}': use {' or '.join(ON_ERROR)}")
        files = [file] if isinstance(file, str | Path) else file
        return cls(
            tuple(map(str, files)),
            Columns.of(columns),
            None if types is None else Path(types),
            None if names is None else Path(names),
            literals,
            on_error,
            None if bench is None else Path(bench),
        )

    @property
    def file(self) -> str:
        """The file, folder or name of a graph that is one."""
        return self.files[0]

    @property
    def paths(self) -> list[Path]:
        return [Path(file) for file in self.files]

    @property
    def skip(self) -> bool:
        return self.on_error == "skip"

    @property
    def keep_literals(self) -> bool:
        return self.literals == "keep"

    def given(self) -> list[str]:
        """The options for a file of triples that differ from the usual ones, as a user writes them."""
        usual = GraphSource(self.files, bench=self.bench)
        options = [each.name for each in fields(self) if getattr(self, each.name) != getattr(usual, each.name)]
        return [option.replace("_", "-") for option in options]


@dataclass
class FileFacts:
    """How a file was read, with notes on what is not obvious."""

    file: str
    format: str = ""
    encoding: str = ""
    separator: str = ""
    header: bool = False  # whether the first line names the columns
    names: list[str] = field(default_factory=list)  # of all columns
    columns: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, layout: Layout, blank: Collection[int] = ()) -> None:
        """Add the columns of a table; `blank` ones do not count."""
        self.names = list(layout.names)
        self.columns = layout.described()
        self.ignored = layout.ignored(blank)

    def remarks(self) -> list[str]:
        """What is not obvious, one line each."""
        lines = []
        if self.header:
            lines.append(f"the first line was read as a header: {', '.join(filter(None, self.names))}")
        if self.ignored:
            lines.append(f"columns not read: {', '.join(self.ignored)}")
        return lines + self.notes


@dataclass
class CompileReport:
    """The numbers of triples read, skipped and left out, and the problems found."""

    triples: int = 0
    skipped: int = 0
    literals: int = 0
    literal_relations: list[str] = field(default_factory=list)  # of literals in tables
    duplicates: int = 0
    self_loops: int = 0
    descriptions: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)  # name and type by id, from STIX
    problems: list[str] = field(default_factory=list)  # the first few skipped lines
    files: list[FileFacts] = field(default_factory=list)
    labels: dict[bytes, tuple[int, bytes]] | None = None  # rank and readable name by id; None if no RDF was read

    def remarks(self) -> list[str]:
        """Remarks for the user, one for each kind of problem."""
        several = len(self.files) > 1
        lines = [f"{each.file}: {remark}" if several else remark for each in self.files for remark in each.remarks()]
        if self.skipped:
            lines.append(f"{plural(self.skipped, 'bad line')} skipped, the first:")
            lines += [f"  {problem}" for problem in self.problems]
        if self.literals:
            lines.append(self.literals_remark())
        if self.duplicates:
            lines.append(f"{plural(self.duplicates, 'duplicate triple')} left out")
        if self.self_loops:
            lines.append(f"{plural(self.self_loops, 'self-loop')} (head = tail) kept")
        return lines

    def literals_remark(self) -> str:
        """What was left out because it is no entity, and how to keep it."""
        relations = f" of {some_names(self.literal_relations)}" if self.literal_relations else ""
        left_out = f"{plural(self.literals, 'triple')}{relations} left out"
        return f"{left_out}, because tails are numbers, dates or text: read them with --literals keep"

    def no_triples(self, paths: Sequence[Path]) -> FewlinkError:
        """The error for files without triples."""
        for path in paths:
            if _is_binary(path):
                return InputError(path, "is a binary file: give text with a head, a relation and a tail on each line")
        reason = (
            ": the file is empty or has only a header or comments; write a head, a relation and a tail on each line"
        )
        if self.skipped:
            reason = f" ({plural(self.skipped, 'bad line')}, the first: {self.problems[0]})"
        elif self.literals:
            reason = f" but {self.literals:,} with a literal as tail: keep them with --literals keep"
        return FewlinkError(f"no triples in {', '.join(map(str, paths)) or 'no files'}{reason}")


class Source:
    """A file that is being read: its current line, how to read it, and the report."""

    def __init__(self, path: Path, reading: GraphSource, report: CompileReport) -> None:
        self.path = path
        self.reading = reading
        self.report = report
        self.facts = FileFacts(str(path))
        report.files.append(self.facts)
        self.line = 0  # number of lines before the current block
        self.triples = 0  # number of triples before the current block
        self.good = False  # whether the file has a triple so far

    def bad(self, problem: str, line: int | None) -> None:
        """Raise an error for a bad line or, when skipping, count it."""
        if not self.reading.skip:
            remedy = "" if line is None else ": correct the line, or leave bad lines out with --on-error skip"
            raise InputError(self.path, problem + remedy, line)
        self.report.skipped += 1
        if self.report.skipped > MAX_BAD_LINES and not (self.good or self.report.triples):
            first = self.report.problems[0]
            raise InputError(self.path, f"has over {MAX_BAD_LINES:,} bad lines and no triple; the first: {first}")
        if len(self.report.problems) < MAX_LISTED_PROBLEMS:
            self.report.problems.append(str(InputError(self.path, problem, line)))

    @functools.cached_property
    def budget(self) -> Budget:
        status = os.stat(self.path)
        return Budget(self.path, status.st_size if stat.S_ISREG(status.st_mode) else None)

    def spend(self, size: int) -> None:
        """Count bytes of names and literals that the file became; raise if they are too many for a file of its size."""
        self.budget.spend(size, f"takes in memory, up to triple {self.triples:,},")

    def counted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The blocks, after counting their triples and the memory that they take."""
        for block in blocks:
            self.triples += len(block.codes)
            self.spend(sum(map(len, block.names)) + TRIPLE_BYTES * len(block.codes))
            yield block

    def reject_columns(self) -> None:
        """Raise if the user chose columns, for a format that has none."""
        if self.reading.columns is not None:
            raise InputError(self.path, f"is {self.facts.format}, which has no columns: leave out --columns")

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
            self.begin = self.file.read(PEEKED_BYTES).removeprefix(codecs.BOM_UTF8)
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
    size = 0
    for line, row in rows:
        if is_blank(row):
            continue
        if problem := row_problem(row):
            source.bad(problem, line)
            continue
        source.good = True
        fields += row
        size += sum(map(len, row))
        if len(fields) >= 3 * BLOCK_ROWS or size > BLOCK_BYTES:
            yield Block.of(fields)
            fields = []
            size = 0
    yield Block.of(fields)


def is_blank(row: list[bytes]) -> bool:
    """Whether a line is empty or white space. A line with a separator is not blank."""
    return len(row) < 2 and not b"".join(row).strip()


def row_problem(row: Sequence[bytes]) -> str | None:
    """Why a row is no triple; None if it is one."""
    if len(row) != 3:
        return f"has {plural(len(row), 'column')} instead of head, relation and tail"
    if not all(row):
        return f"has an empty {('head', 'relation', 'tail')[row.index(b'')]}"
    if not all(map(is_text, row)):
        return "is not UTF-8 text"
    if max(map(len, row)) > MAX_NAME_BYTES:
        return f"has a name of over {MAX_NAME_BYTES:,} bytes"
    return None


def numbered_lines(source: Source, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their numbers."""
    for raw in whole_lines(source, file):
        yield from source.lines(raw)
        source.line += raw.count(b"\n")


def whole_lines(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines; every line ends with a line feed. A line that is too long is bad, and blank."""
    rest = b""
    first = True
    while chunk := file.read(BLOCK_BYTES):
        if first:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
            first = False
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest = (rest + chunk)[: MAX_LINE_BYTES + 1]
            continue
        yield _unix(_without_long_lines(source, rest + chunk[:cut]))
        rest = chunk[cut:]
    if rest:
        yield _unix(_without_long_lines(source, rest)).removesuffix(b"\r") + b"\n"


def _without_long_lines(source: Source, raw: bytes) -> bytes:
    """The lines, blank in place of those of over `MAX_LINE_BYTES`."""
    begin = kept = 0
    pieces: list[bytes] = []
    while len(raw) - begin > MAX_LINE_BYTES:
        end = raw.rfind(b"\n", begin, begin + MAX_LINE_BYTES + 1) + 1
        if not end:
            end = raw.find(b"\n", begin + MAX_LINE_BYTES) + 1 or len(raw)
            source.bad(f"has over {MAX_LINE_BYTES:,} bytes", source.line + 1 + raw.count(b"\n", 0, begin))
            pieces += raw[kept:begin], b"\n"
            kept = end
        begin = end
    return b"".join((*pieces, raw[kept:])) if pieces else raw


def _unix(raw: bytes) -> bytes:
    return raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw


def _is_binary(path: Path) -> bool:
    """Whether an uncompressed file has a zero byte near its beginning."""
    if path.suffix.lower() in COMPRESSIONS:
        return False
    with reading_source(path), path.open("rb") as file:
        return b"\0" in file.read(1 << 16)


def some_names(names: Sequence[str], count: int = 5) -> str:
    """The first names, quoted."""
    return ", ".join(map(repr, names[:count])) + (", …" if len(names) > count else "")
