"""File formats of triples: tab- or comma-separated text, N-Triples and Parquet, plain or compressed.

A new format is a function `read(source, file)` that yields blocks of triples, and a line in `FORMATS`. The function
receives the decompressed file and can pass its rows through `blocks_of`, which checks them and reports bad ones.
"""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fewlink.base.errors import InputError, MissingExtra
from fewlink.base.progress import Advance, silent
from fewlink.base.threads import prefetch
from fewlink.graph.reading import (
    BLOCK_ROWS,
    COMPRESSIONS,
    LONGEST_NAME,
    Block,
    CompileReport,
    Source,
    blocks_of,
    decompressed,
    is_text,
    reading,
    whole_lines,
)
from fewlink.stix.bundle import is_bundle, read_bundle

HEADERS = (
    {b"head", b"subject", b"source", b"h", b"s", b"from"},
    {b"relation", b"predicate", b"edge", b"r", b"p", b"type"},
    {b"tail", b"object", b"target", b"t", b"o", b"to"},
)
NEWLINE = 10
PIECE_BYTES = 1 << 18
RETURN = "\udc0d"  # stands for a lone carriage return, which the csv module takes for the end of a row


class Format(NamedTuple):
    """A format is recognised by the suffixes of its files."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Source, IO[bytes]], Iterator[Block]]


def read_triples(path: Path, *, skip: bool, report: CompileReport, advance: Advance = silent) -> Iterator[Block]:
    """The blocks of one file in the format of its name. Bad lines raise, or with `skip` are counted."""
    path = Path(path)
    source = Source(path, skip, report)
    with reading(path):
        size = path.stat().st_size
        with path.open("rb") as raw, decompressed(path, raw) as file:
            for block in prefetch(format_of(path).read(source, file)):
                if len(block.codes):
                    report.triples += len(block.codes)
                    advance(raw.tell() / max(size, 1), f"{report.triples:,} triples")
                    yield block


def format_of(path: Path) -> Format:
    """The format of a file by its name without the compression; tab-separated text if the suffix is unknown."""
    if is_bundle(path):
        return STIX
    name = path.name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return next((format for format in FORMATS if Path(name).suffix in format.suffixes), FORMATS[0])


def read_delimited(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Tab- or comma-separated text, with or without a header row."""
    blocks = (block for block in _delimited_blocks(source, file, separator) if len(block.codes))
    for first in blocks:
        yield _without_header(source, first)
        yield from blocks


def _delimited_blocks(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Blocks are split at once; only one with a bad line is split line by line."""
    parts = whole_lines(source, file)
    for raw in parts:
        if separator == b"," and b'"' in raw:  # a quoted field may contain line ends: the csv module reads the rest
            yield from blocks_of(source, _quoted_rows(source, itertools.chain([raw], parts)))
            return
        if (block := _split_whole(raw, separator)) is not None:
            yield block
        else:
            yield from blocks_of(source, ((line, text.split(separator)) for line, text in source.lines(raw)))
        source.line += raw.count(b"\n")


def _split_whole(raw: bytes, separator: bytes) -> Block | None:
    """All lines at once; None if any of them is not three non-empty fields of text."""
    data = np.frombuffer(raw, np.uint8)
    ends = _field_ends(data, separator)
    if len(ends) % 3 or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, 3)
    if (kinds[:, :2] != separator[0]).any() or (kinds[:, 2] != NEWLINE).any():
        return None
    widths = np.diff(ends, prepend=-1)  # each with its separator
    if widths.min() == 1 or widths.max() > LONGEST_NAME + 1:
        return None
    return _encode(raw.replace(b"\n", separator), ends, separator)


def _field_ends(data: np.ndarray, separator: bytes) -> np.ndarray:
    """Where fields end, searched in pieces that fit into the processor's cache."""
    ends = []
    for begin in range(0, len(data), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES]
        ends.append(np.flatnonzero((piece == separator[0]) | (piece == NEWLINE)) + begin)
    return np.concatenate(ends)


def _encode(raw: bytes, ends: np.ndarray, separator: bytes) -> Block:
    """The fields that end at `ends`, encoded by pyarrow if it is installed, otherwise by a Python dict."""
    try:
        import pyarrow
    except ImportError:
        fields = raw.split(separator)
        del fields[-1]
        return Block.of(fields)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)  # each field keeps its separator, all the same byte
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(raw)]
    encoded = pyarrow.Array.from_buffers(pyarrow.binary(), len(ends), buffers).dictionary_encode()
    names = [name[:-1] for name in encoded.dictionary.to_pylist()]
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(ends))  # to_numpy would import pandas
    return Block(names, codes.reshape(-1, 3))


def _without_header(source: Source, block: Block) -> Block:
    first = [block.names[code] for code in block.codes[0]]
    if all(name.lower() in known for name, known in zip(first, HEADERS, strict=True)):
        header = b" ".join(first).decode()
        source.report.headers.append(f"the first line of {source.path} was taken as a header: {header}")
        return Block(block.names, block.codes[1:])
    return block


def _quoted_rows(source: Source, parts: Iterator[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The rows of a CSV file from its first block with a quote on, by the csv module."""

    def lines() -> Iterator[str]:
        for part in parts:
            for text in part.decode("utf-8", "surrogateescape").replace("\r", RETURN).split("\n")[:-1]:
                yield text + "\n"

    reader = csv.reader(lines(), strict=True)
    while True:
        line = source.line + reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            source.bad(f"is not valid CSV ({error})", line)
        else:
            yield line, [f.replace(RETURN, "\r").encode("utf-8", "surrogateescape") for f in row]


def read_ntriples(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """N-Triples, by pyoxigraph; triples with a literal object are counted and left out.

    A block that does not parse as a whole is parsed line by line.
    """
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtra("reading N-Triples", "rdf") from None

    def parse(raw: bytes) -> tuple[list[bytes], int]:
        fields, literals = [], 0
        for quad in pyoxigraph.parse(input=raw, format=pyoxigraph.RdfFormat.N_TRIPLES):
            if isinstance(quad.object, pyoxigraph.Literal):
                literals += 1
            else:
                terms = (quad.subject, quad.predicate, quad.object)
                fields += [(getattr(term, "value", None) or str(term)).encode() for term in terms]
        if max(map(len, fields), default=0) > LONGEST_NAME:
            raise ValueError(f"a name of over {LONGEST_NAME:,} bytes")
        return fields, literals

    for raw in whole_lines(source, file):
        try:
            fields, literals = parse(raw)
        except (SyntaxError, ValueError):
            fields, literals = [], 0
            for line, text in source.lines(raw):
                try:
                    more_fields, more_literals = parse(text + b"\n")
                except (SyntaxError, ValueError) as error:
                    source.bad(f"is not an N-Triples line ({getattr(error, 'msg', None) or error})", line)
                    continue
                fields += more_fields
                literals += more_literals
        source.report.literals += literals
        source.line += raw.count(b"\n")
        yield Block.of(fields)


def read_stix(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """A STIX bundle; names and types of its entities are kept in the report."""
    report = source.report
    bundle = read_bundle(source.path, lambda problem: source.bad(problem, None))
    report.headers += bundle.remarks()
    for name, text in bundle.names.items():
        report.descriptions[_utf8(name)] = _utf8(text), _utf8(bundle.kinds[name])
    yield from blocks_of(source, enumerate([_utf8(name) for name in triple] for triple in bundle.triples))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # JSON may hold half a character


STIX = Format("stix", (), read_stix)


def read_parquet(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """Parquet, by pyarrow: the columns head, relation and tail (or subject, predicate, object), or the only three."""
    if source.path.suffix.lower() in COMPRESSIONS:
        raise InputError(source.path, "is Parquet compressed once more: unpack it first")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "scale") from None
    try:
        table = pyarrow.parquet.ParquetFile(file)
        columns = _parquet_columns(source.path, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=BLOCK_ROWS, columns=columns):
            names = [batch.column(c).cast(pyarrow.string()).cast(pyarrow.binary()).to_pylist() for c in columns]
            rows = [[name or b"" for name in row] for row in zip(*names, strict=True)]
            fields = list(itertools.chain.from_iterable(rows))
            if all(fields) and is_text(b"\n".join(fields)) and max(map(len, fields), default=0) <= LONGEST_NAME:
                yield Block.of(fields)
            else:
                yield from blocks_of(source, enumerate(rows, source.line + 1))
            source.line += batch.num_rows
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter for the name of a column
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None


def _parquet_columns(path: Path, names: list[str]) -> list[str]:
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


FORMATS = [
    Format("tsv", (".tsv", ".txt"), functools.partial(read_delimited, separator=b"\t")),
    Format("csv", (".csv",), functools.partial(read_delimited, separator=b",")),
    Format("ntriples", (".nt", ".ntriples"), read_ntriples),
    Format("parquet", (".parquet", ".pq"), read_parquet),
]
