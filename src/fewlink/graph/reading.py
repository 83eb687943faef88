"""Triples from files, streamed: TSV, CSV, N-Triples and Parquet, plain or compressed, as blocks of three columns.

A block is read, checked and split as a whole; only a block with something wrong in it is looked at line by line.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from fewlink.errors import FewlinkError, InputError, MissingExtra
from fewlink.graph.ntriples import read_ntriples
from fewlink.graph.parquet import read_parquet
from fewlink.graph.source import BLOCK_ROWS, HEADERS, Block, ReadReport, Source, add_row, is_text, whole_lines
from fewlink.progress import Advance, silent

COMPRESSIONS = (".gz", ".xz", ".zst")
NEWLINE = 10


def read_triples(path: Path, *, skip: bool, report: ReadReport, advance: Advance = silent) -> Iterator[Block]:
    """The blocks of one file, its format told by its name. Bad lines raise, or with `skip` are counted."""
    path = Path(path)
    kind = format_of(path)
    source = Source(path, skip, report)
    try:
        if kind == "parquet":
            yield from _counted(read_parquet(source, advance), report)
            return
        size = path.stat().st_size
        with path.open("rb") as raw, _decompressed(path, raw) as file:
            read = {"tsv": _delimited(b"\t"), "csv": _delimited(b","), "ntriples": read_ntriples}[kind]
            for block in _counted(read(source, file), report):
                advance(raw.tell() / max(size, 1), f"{report.triples:,} triples")
                yield block
    except OSError as error:  # gzip and pyarrow raise OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


def format_of(path: Path) -> str:
    """`tsv`, `csv`, `ntriples` or `parquet`, by the file's name without its compression."""
    name = path.name.lower()
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    ending = Path(name).suffix
    if ending == ".csv":
        return "csv"
    if ending in (".nt", ".ntriples"):
        return "ntriples"
    if ending in (".parquet", ".pq"):
        return "parquet"
    return "tsv"


def _counted(blocks: Iterator[Block], report: ReadReport) -> Iterator[Block]:
    for block in blocks:
        if block.heads:
            report.triples += len(block.heads)
            yield block


def _decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    ending = path.suffix.lower()
    if ending == ".gz":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if ending == ".xz":
        return lzma.LZMAFile(raw)  # type: ignore[return-value]
    if ending == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtra("reading a .zst file", "scale") from None
        return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")  # type: ignore[no-any-return]
    return raw


def _delimited(separator: bytes) -> Callable[[Source, IO[bytes]], Iterator[Block]]:
    def read(source: Source, file: IO[bytes]) -> Iterator[Block]:
        blocks = whole_lines(source, file)
        for raw in blocks:
            if separator == b"," and b'"' in raw:  # a quoted field may hold line ends: the rest goes through csv
                yield from _quoted_csv(source, raw, blocks)
                return
            block = _split_whole(raw, separator) or _split_lines(source, raw, separator)
            if source.line == 0:
                block = _without_header(block)
            yield block
            source.line += raw.count(b"\n")

    return read


def _split_whole(raw: bytes, separator: bytes) -> Block | None:
    """All lines at once, or None when any of them is not three non-empty fields."""
    data = np.frombuffer(raw, np.uint8)
    ends = np.flatnonzero((data == separator[0]) | (data == NEWLINE))
    if len(ends) % 3 or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, 3)
    if (kinds[:, :2] != separator[0]).any() or (kinds[:, 2] != NEWLINE).any():
        return None
    if (np.diff(ends, prepend=-1) == 1).any():
        return None
    names = raw.replace(b"\n", separator).split(separator)
    del names[-1]
    return Block(names[0::3], names[1::3], names[2::3])


def _split_lines(source: Source, raw: bytes, separator: bytes) -> Block:
    block = Block([], [], [])
    for line, text in enumerate(raw.split(b"\n")[:-1], source.line + 1):
        if not text.strip():
            continue
        add_row(source, block, text.split(separator), line)
    return block


def _without_header(block: Block) -> Block:
    first = [column[0].lower() for column in block if column]
    if len(first) == 3 and all(name in known for name, known in zip(first, HEADERS, strict=True)):
        return Block(*(column[1:] for column in block))
    return block


def _quoted_csv(source: Source, raw: bytes, blocks: Iterator[bytes]) -> Iterator[Block]:
    """The rest of a CSV file from its first quoted field on, by the csv module."""

    def lines() -> Iterator[str]:
        for part in itertools.chain([raw], blocks):
            for text in part.decode("utf-8", "surrogateescape").split("\n")[:-1]:
                yield text + "\n"

    first, block = source.line == 0, Block([], [], [])
    reader = csv.reader(lines(), strict=True)
    while True:
        line = source.line + reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            source.bad(f"is not valid CSV ({error})", line)
            continue
        if row:
            add_row(source, block, [f.encode("utf-8", "surrogateescape") for f in row], line)
        if len(block.heads) >= BLOCK_ROWS:
            yield _without_header(block) if first else block
            first, block = False, Block([], [], [])
    yield _without_header(block) if first else block


def check_on_error(on_error: str) -> bool:
    """Whether bad lines are skipped: `stop` or `skip`."""
    if on_error not in ("stop", "skip"):
        raise FewlinkError(f"on-error is 'stop' or 'skip', not '{on_error}'")
    return on_error == "skip"


def read_pairs_table(path: Path, least: int = 2) -> Iterator[list[str]]:
    """Rows of a small tab-separated side file (types, readable names), each with at least `least` columns."""
    path = Path(path)
    try:
        with path.open("rb") as raw, io.TextIOWrapper(_decompressed(path, raw), "utf-8", newline="\n") as file:
            for line, text in enumerate(file, 1):
                row = text.rstrip("\r\n").split("\t")
                if row == [""]:
                    continue
                if len(row) < least or not all(row[:least]):
                    raise InputError(path, f"needs at least {least} columns separated by tabs", line)
                yield row
    except UnicodeDecodeError:
        raise InputError(path, "is not UTF-8 text") from None
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise InputError(path, f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
