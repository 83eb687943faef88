"""Reading files block by block: decompression, lines, and what to do with a bad one."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import os
import re
import xml.parsers.expat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from fewlink.core import memory
from fewlink.core.errors import FewlinkError, InputError, MissingExtra, check_file
from fewlink.graph.vocabulary import Block, is_text, unquoted

BLOCK_BYTES = 32 << 20
BLOCK_ROWS = 1 << 17
LONGEST_LINE = 1 << 20
LONGEST_NAME = 1 << 17  # bytes; the csv module has the same limit
SHOWN_PROBLEMS = 5
MOST_BAD = 1_000_000  # bad lines before the first triple
NEWLINE = 10
FILLED = ~np.isin(np.arange(256), list(b" \n\r\v\f"))  # by byte: False for the white space of a blank line
PIECE_BYTES = 1 << 20  # read at once from a compressed file
SMALL_UNPACKED = 256 << 20  # bytes that any compressed file may unpack to
MOST_RATIO = 200  # of unpacked to packed bytes, if there are more; text of triples has less than 50
LONGEST_ENTITY, LONGEST_PROLOG, DEEPEST = 2_000, 1 << 20, 10_000  # bytes of XML; elements in one another
LEAST_LIMIT, TIMES_MEMORY = 4 << 30, 16  # text may be larger than the free memory: its names are stored once
COMPRESSIONS = (".gz", ".xz", ".zst")
LABELS = frozenset({"http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel"})
UNNAMED = re.compile(r"[0-9a-f]{20,32}")  # what the parser calls a blank node without a name, at random


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


class RdfTerms:
    """Turns statements of RDF into names; labels are kept in the report, other literals are counted.

    A blank node without a name of its own gets one from its file and its place there.
    """

    def __init__(self, source: Source) -> None:
        import pyoxigraph

        if source.report.labels is None:
            source.report.labels = {}
        self.report, self.labels, self.file = source.report, source.report.labels, source.path.name
        self.literal, self.blank_node = pyoxigraph.Literal, pyoxigraph.BlankNode
        self.unnamed: dict[str, bytes] = {}
        self.fields: list[bytes] = []
        self.literals = 0

    def read(self, quads: Iterable[Any], most: int = 1 << 62) -> bool:
        """Add head, relation, tail, head, … of statements to `fields` until it has `most`; False at their end."""
        fields, literal, name = self.fields, self.literal, self.name
        for quad in quads:
            if isinstance(quad.object, literal):
                self.literals += not self.add_label(quad)
                continue
            triple = (name(quad.subject), name(quad.predicate), name(quad.object))
            if max(map(len, triple)) > LONGEST_NAME:
                raise ValueError(f"a name of over {LONGEST_NAME:,} bytes")
            fields += triple
            if len(fields) >= most:
                return True
        return False

    def name(self, term: Any) -> bytes:
        value: str = getattr(term, "value", None) or str(term)
        if type(term) is self.blank_node and UNNAMED.fullmatch(value):
            return self.unnamed.setdefault(value, f"_:{self.file}-{len(self.unnamed) + 1}".encode())
        return unquoted(value).encode()

    def take(self) -> Block:
        """What was read since the last call; its literals are counted in the report."""
        block = Block.of(self.fields)
        self.report.literals += self.literals
        self.fields, self.literals = [], 0
        return block

    def add_label(self, quad: Any) -> bool:
        """Whether the statement is a label; of several, English comes first, then one without a language."""
        if quad.predicate.value not in LABELS:
            return False
        language = quad.object.language or ""
        rank = 0 if language.lower().partition("-")[0] == "en" else 1 if not language else 2
        text = " ".join(quad.object.value.split()).encode()
        subject = self.name(quad.subject)
        if text and len(text) <= LONGEST_NAME and rank < self.labels.get(subject, (3, b""))[0]:
            self.labels[subject] = rank, text
        return True


class CheckedXml(Peeked):
    """XML that is read up to its first error, which is on `error_line`. Raises if elements are nested deeply, which
    would take hours, or if an entity is declared that stands for much text, of which a few would fill the memory."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(file)
        self.path, self.declared, self.error_line = path, dict[str, str](), 0
        self.count, self.begun, self.ended = 0, 0, list[str]()  # bytes, and elements
        self.parser = xml.parsers.expat.ParserCreate()
        self.parser.ordered_attributes = True
        self.parser.EntityDeclHandler = lambda name, of_dtd, text, *_: self.declared.setdefault(name, text or "")
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._element, self.ended.append

    def read(self, size: int = -1, /) -> bytes:
        content = b"" if self.error_line else super().read(size)
        self.count += len(content)
        try:
            self.parser.Parse(content, not content)
        except xml.parsers.expat.ExpatError as error:
            self.error_line = self.error_line or error.lineno
            if not self.begun:
                raise InputError(self.path, f"is not valid XML ({error})", error.lineno) from None
        if not self.begun and self.count > LONGEST_PROLOG:
            raise InputError(self.path, f"has no element in its first {LONGEST_PROLOG:,} bytes")
        self.begun -= max(0, len(self.ended) - 1)
        del self.ended[1:]
        return content

    def _element(self, name: str, attributes: object) -> None:
        self.begun += 1
        if self.begun - len(self.ended) > DEEPEST:
            problem = f"has elements that are nested over {DEEPEST:,} deep: write it as N-Triples or Turtle"
            raise InputError(self.path, problem, self.parser.CurrentLineNumber)
        if self.begun == 1:
            self._check_entities()

    def _check_entities(self) -> None:
        sizes: dict[str, int] = {}
        for name, text in self.declared.items():  # an entity can only refer to those before it
            inside = re.findall("&([^;#]+);", text)
            sizes[name] = len(text) + sum(sizes.get(other, 0) for other in inside)
            if sizes[name] > LONGEST_ENTITY or any(other in self.declared and other not in sizes for other in inside):
                problem = f"declares an entity '{name}' that stands for over {LONGEST_ENTITY:,} bytes"
                raise InputError(self.path, problem)


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


@contextmanager
def reading_source(path: Path) -> Iterator[None]:
    """Turn errors of the system and of decompression into errors that name the file."""
    check_file(path)
    try:
        yield
    except OSError as error:  # gzip and pyarrow raise OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


def decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The content of an open file, decompressed as its suffix says."""
    suffix, inner = path.suffix.lower(), cast(Any, None)
    if suffix == ".gz":
        inner = gzip.GzipFile(fileobj=raw)
    elif suffix == ".xz":
        inner = Parts(raw, lzma.LZMADecompressor)
    elif suffix == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtra("reading a .zst file", "scale") from None
        inner = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")
    return raw if inner is None else cast("IO[bytes]", Unpacked(path, raw, inner))


class Unpacked(io.RawIOBase):
    """The content of a compressed file. Raises if a part is damaged or cut off, or if there is more than `most` bytes.

    Without $FEWLINK_MAX_UNPACKED, a file that unpacks to `MOST_RATIO` times its size is refused too.
    """

    def __init__(self, path: Path, raw: IO[bytes], inner: Any, most: int | None = None) -> None:
        self.path, self.inner, self.count = path, inner, 0
        self.given = memory.most_unpacked()
        self.most = self.given or most or max(LEAST_LIMIT, TIMES_MEMORY * (memory.free_bytes("cpu") or 0))
        self.packed = os.fstat(raw.fileno()).st_size if hasattr(raw, "fileno") else 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        content = bytearray()
        try:
            while len(content) < size and (piece := self.inner.read(min(size - len(content), PIECE_BYTES))):
                content += piece
                self._count(len(piece))
        except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            place = f"after {self.count:,} unpacked bytes ({error})"
            raise InputError(self.path, f"is cut off or not a valid {self.path.suffix} file {place}") from None
        return bytes(content)

    def _count(self, more: int) -> None:
        self.count += more
        if self.count > self.most:
            room = f"set {memory.UNPACKED}, such as {memory.UNPACKED}=100G, if there is room for more"
            raise InputError(self.path, f"unpacks to over {self.most:,} bytes: {room}")
        if not self.given and self.count > max(SMALL_UNPACKED, MOST_RATIO * self.packed):
            way = f"if it is in order, set {memory.UNPACKED}, such as {memory.UNPACKED}=10G"
            raise InputError(self.path, f"unpacks to over {MOST_RATIO} times its size, which data rarely does: {way}")

    def close(self) -> None:
        self.inner.close()
        super().close()


class Parts:
    """The content of an .xz or .bz2 file of one or several parts, all of which must be whole. The file stays open."""

    def __init__(self, raw: IO[bytes], make: Callable[[], Any]) -> None:
        self.raw, self.make, self.part = raw, make, make()

    def read(self, size: int) -> bytes:
        content, packed = b"", b""
        while not content:
            if self.part.eof:  # zeros may follow a part
                packed = self.part.unused_data.lstrip(b"\0")
                while not packed and (more := self.raw.read(PIECE_BYTES)):
                    packed = more.lstrip(b"\0")
                if not packed:
                    return b""
                self.part = self.make()
            elif self.part.needs_input and not (packed := self.raw.read(PIECE_BYTES)):
                raise EOFError("it ends in the middle of a part")
            content, packed = self.part.decompress(packed, size), b""
        return content

    def close(self) -> None: ...


def _is_binary(path: Path) -> bool:
    """Whether a plain file has a zero byte near its beginning."""
    if path.suffix.lower() in COMPRESSIONS:
        return False
    with reading_source(path), path.open("rb") as file:
        return b"\0" in file.read(1 << 16)
