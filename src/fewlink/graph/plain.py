"""Files as plain bytes: decompressed, and text in UTF-8 with the line ends and separators that DuckDB reads."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from fewlink.core import machine
from fewlink.core.errors import InputError, check_file

PEEKED_BYTES = 1 << 16  # of the beginning of a file, which tells its format and encoding
PIECE_BYTES = 1 << 20  # of a file that are read, decompressed or copied at once
LINE_BYTES = 4 << 20  # of a line that is read at once, more than DuckDB takes
WHOLE_FACTOR = 30  # bytes of memory for a byte of JSON that is read whole
MIN_ALLOWED_BYTES = 64 << 20  # a document of this size is read however little memory is free
MAX_NESTING = 1_000  # of lists, elements and triples; pyoxigraph crashes at some thousands
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")

WINDOWS_1252 = "Windows-1252 (Latin-1)"
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
OTHER_FILES = {
    b"PK\x03\x04": "is an Excel workbook or a zip archive: save the sheet as CSV, or unpack the archive",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook: save the sheet as CSV",
    b"\x1f\x8b": "is compressed: give it a name that ends in .gz",
    b"\xfd7zXZ": "is compressed: give it a name that ends in .xz",
    b"BZh91AY&SY": "is compressed: give it a name that ends in .bz2",
    b"(\xb5/\xfd": "is compressed: give it a name that ends in .zst",
    b"%PDF": "is a PDF: give a table of triples",
    b"PAR1": "is a Parquet file: give it a name that ends in .parquet",
    b"SQLite format 3\0": "is an SQLite database: export a table as CSV",
}

# the steps of depth in JSON, by byte: a bracket opens or closes a level
JSON_STEPS = np.zeros(256, np.int32)
JSON_STEPS[list(b"[{")] = 1
JSON_STEPS[list(b"]}")] = -1


@contextmanager
def reading_source(path: Path) -> Iterator[None]:
    """Turn system and decompression errors into errors that name the file."""
    check_file(path)
    try:
        yield
    except OSError as error:  # gzip raises OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


class Streams(io.RawIOBase):
    """The content of an .xz or .bz2 file of one or several streams, each of which must be complete.

    `make` returns a new decompressor; Python's own files take a damaged second stream for the end.
    """

    def __init__(self, raw: IO[bytes], make: Callable[[], Any]) -> None:
        self.raw = raw
        self.make = make
        self.stream = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        packed = b""
        while not content:
            if self.stream.eof:  # zeros may follow a stream
                packed = self.stream.unused_data.lstrip(b"\0")
                while not packed and (more := self.raw.read(PIECE_BYTES)):
                    packed = more.lstrip(b"\0")
                if not packed:
                    return 0
                self.stream = self.make()
            elif self.stream.needs_input and not (packed := self.raw.read(PIECE_BYTES)):
                raise EOFError("it ends in the middle of a stream")
            content = self.stream.decompress(packed, len(buffer))
            packed = b""
        buffer[: len(content)] = content
        return len(content)


def decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The content of an open file, decompressed according to its suffix."""
    suffix = path.suffix.lower()
    inner: Any = None
    if suffix == ".gz":
        inner = gzip.GzipFile(fileobj=raw)
    elif suffix == ".xz":
        inner = Streams(raw, lzma.LZMADecompressor)
    elif suffix == ".bz2":
        inner = Streams(raw, bz2.BZ2Decompressor)
    elif suffix == ".zst":
        raise InputError(
            path, "is compressed with Zstandard, of which only a table without bad rows is read: unpack it with zstd -d"
        )
    return raw if inner is None else cast("IO[bytes]", io.BufferedReader(inner, PIECE_BYTES))


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed content of a file."""
    with reading_source(path), path.open("rb") as raw, decompressed(path, raw) as file:
        yield file


class Watched(io.RawIOBase):
    """A file whose content a function sees as it is read, which raises for what must not go on; its end is empty."""

    def __init__(self, file: IO[bytes], watch: Callable[[bytes], None]) -> None:
        self.file = file
        self.watch = watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.file.read(len(buffer))
        self.watch(content)
        buffer[: len(content)] = content
        return len(content)


def bounded(file: IO[bytes], path: Path, factor: int = 1) -> Watched:
    """A file of one document: reading raises where it would fill the memory, of which each byte takes `factor`."""
    limit = max(MIN_ALLOWED_BYTES, (machine.free_bytes() or 1 << 62) // factor)
    count = 0

    def watch(content: bytes) -> None:
        nonlocal count
        count += len(content)
        if count > limit:
            problem = f"is a document of over {limit >> 20:,} MB, for which too little memory is free"
            raise InputError(path, f"{problem}: write it as a table or N-Triples, which are read in any size")

    return Watched(file, watch)


def shallow_json(file: IO[bytes], path: Path) -> Watched:
    """A file of JSON: reading raises where lists and objects are nested so deeply that a parser would crash."""
    depth = 0
    in_string = False
    escape = b""  # a backslash whose character has not been read

    def watch(content: bytes) -> None:
        nonlocal depth, in_string, escape
        text = re.sub(rb"\\[^\\]|\\\\", b"", escape + content)
        escape = b"\\" if text.endswith(b"\\") else b""
        parts = text.split(b'"')
        outside = np.frombuffer(b"".join(parts[in_string::2]), np.uint8)
        depths = depth + np.cumsum(JSON_STEPS[outside])
        if depths.max(initial=0) > MAX_NESTING:
            raise InputError(path, f"nests lists or objects over {MAX_NESTING:,} deep")
        depth = int(depths[-1]) if len(depths) else depth
        in_string ^= len(parts) % 2 == 0

    return Watched(file, watch)


def check_zstd(path: Path) -> None:
    """Raise if the last frame of a .zst file is cut off, which DuckDB does not notice: each block states its size."""
    with path.open("rb") as file:
        while magic := file.read(4):
            number = int.from_bytes(magic, "little")
            if number & ~0xF == 0x184D2A50:  # a frame to be skipped
                file.seek(int.from_bytes(file.read(4), "little"), io.SEEK_CUR)
                continue
            if number != 0xFD2FB528:
                raise EOFError("it is not Zstandard")
            descriptor = (file.read(1) or b"\0")[0]
            single = descriptor >> 5 & 1
            sizes = (0 if single else 1, (0, 1, 2, 4)[descriptor & 3], (single, 2, 4, 8)[descriptor >> 6])
            file.seek(sum(sizes), io.SEEK_CUR)
            last = 0
            while not last:
                header = file.read(3)
                if len(header) < 3:
                    raise EOFError("it ends in the middle of a frame")
                block = int.from_bytes(header, "little")
                last = block & 1
                file.seek(1 if block >> 1 & 3 == 1 else block >> 3, io.SEEK_CUR)  # type 1 repeats one byte
            file.seek(4 * (descriptor >> 2 & 1), io.SEEK_CUR)  # a checksum
        if file.tell() > path.stat().st_size:
            raise EOFError("it ends in the middle of a frame")


def check_text(path: Path, begin: bytes) -> None:
    """Raise if the beginning of a file shows that it is not text."""
    for magic, problem in OTHER_FILES.items():
        if begin.startswith(magic):
            raise InputError(path, problem)
    if begin.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        raise InputError(path, "is a web page: download the file that it shows")


def utf_16_of(begin: bytes) -> str | None:
    """The encoding of a file that begins as UTF-16 does, with a mark or with a zero in every other byte."""
    if begin[:2] in UTF_16:
        return UTF_16[begin[:2]]
    whole = len(begin) // 2
    for encoding, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros = begin[offset : 2 * whole : 2]
        others = begin[1 - offset : 2 * whole : 2]
        if whole >= 4 and zeros.count(0) > 0.8 * whole and not others.count(0):
            return encoding
    return None


def is_windows_1252(file: IO[bytes]) -> bool:
    """Whether the first piece of text beyond ASCII looks like Windows-1252: letters next to letters, or punctuation."""
    for raw in iter(lambda: file.read(PIECE_BYTES), b""):
        if raw.isascii():
            continue
        high = re.findall(rb"[\x80-\xff]+", raw)
        if any(map(_is_utf_8, high)):
            return False
        letter = rb"(?:[A-Za-z' -][\xc0-\xff]{1,3}|[\xc0-\xff]{1,3}[a-z]|[\x82-\x8c\x91-\x9c\xa0-\xbf])"
        inside = sum(byte > 127 for each in re.findall(letter, raw) for byte in each)
        return bool(sum(map(len, high)) <= inside)
    return False


def _is_utf_8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def rewrite(path: Path, to: Path, encoding: str | None = None, tabs: bool = False) -> None:
    """Write the content of a file as UTF-8 with line feeds; without an encoding only decompress it.

    With `tabs`, a tab replaces any white space between the fields of a line.
    """
    with opened(path) as file, to.open("wb") as out:
        if encoding is None:
            shutil.copyfileobj(file, out, PIECE_BYTES)
            return
        errors = {"utf-8": "surrogateescape", "cp1252": "replace"}.get(encoding, "strict")
        with io.TextIOWrapper(cast("Any", file), encoding, errors) as text:
            try:
                for piece in iter(lambda: text.readline(LINE_BYTES) if tabs else text.read(PIECE_BYTES), ""):
                    line = "\t".join(piece.split()) + "\n" if tabs else piece
                    out.write(line.encode("utf-8", errors if encoding == "utf-8" else "strict"))
            except UnicodeDecodeError as error:
                raise InputError(path, f"is not valid UTF-16 ({error.reason})") from None
