"""Triples from files, streamed: TSV, CSV, N-Triples and Parquet, plain or compressed, block by block."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fewlink.base.errors import FewlinkError, InputError, MissingExtra
from fewlink.base.progress import Advance, silent
from fewlink.base.threads import ahead
from fewlink.graph.delimited import read_delimited
from fewlink.graph.ntriples import read_ntriples
from fewlink.graph.parquet import read_parquet
from fewlink.graph.source import Block, ReadReport, Source, is_blank, is_text, whole_lines

COMPRESSIONS = (".gz", ".xz", ".zst")


def read_triples(path: Path, *, skip: bool, report: ReadReport, advance: Advance = silent) -> Iterator[Block]:
    """The blocks of one file, its format told by its name. Bad lines raise, or with `skip` are counted."""
    path = Path(path)
    kind = format_of(path)
    source = Source(path, skip, report)
    with _reading(path):
        if kind == "parquet":
            if path.suffix.lower() in COMPRESSIONS:
                raise InputError(path, "is Parquet compressed once more: unpack it first")
            yield from _counted(read_parquet(source, advance), report)
            return
        size = path.stat().st_size
        with path.open("rb") as raw, _decompressed(path, raw) as file:
            read = {"tsv": read_delimited(b"\t"), "csv": read_delimited(b","), "ntriples": read_ntriples}[kind]
            for block in _counted(ahead(read(source, file)), report):
                advance(raw.tell() / max(size, 1), f"{report.triples:,} triples")
                yield block


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
        if len(block.codes):
            report.triples += len(block.codes)
            yield block


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong with a file being read, as an error that names it."""
    try:
        yield
    except OSError as error:  # gzip and pyarrow raise OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


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


def check_on_error(on_error: str) -> bool:
    """Whether bad lines are skipped: `stop` or `skip`."""
    if on_error not in ("stop", "skip"):
        raise FewlinkError(f"on-error is 'stop' or 'skip', not '{on_error}'")
    return on_error == "skip"


def read_pairs_table(path: Path, least: int = 2) -> Iterator[list[str]]:
    """Rows of a small tab-separated side file (types, readable names), each with at least `least` columns."""
    path = Path(path)
    source = Source(path, skip=False, report=ReadReport())
    with _reading(path), path.open("rb") as raw, _decompressed(path, raw) as file:
        for block in whole_lines(source, file):
            for line, text in source.lines(block):
                if is_blank(row := text.split(b"\t")):
                    continue
                if not is_text(text):
                    raise InputError(path, "is not UTF-8 text", line)
                if len(row) < least or not all(row[:least]):
                    raise InputError(path, f"needs at least {least} columns separated by tabs", line)
                yield [name.decode() for name in row]
            source.line += block.count(b"\n")
