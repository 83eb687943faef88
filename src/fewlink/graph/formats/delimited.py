"""Tables of text, whatever their separator, quotes, header and order of columns."""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, cast

import numpy as np

from fewlink.core.errors import InputError
from fewlink.core.words import plural
from fewlink.graph.columns import Layout
from fewlink.graph.formats.dialect import (
    MAX_SAMPLED_LINES,
    Dialect,
    LineFeeds,
    Utf8OfUtf16,
    as_utf_8,
    check_text,
    dialect_of,
    utf_16_of,
)
from fewlink.graph.formats.json_rows import JSON_LINE, read_json
from fewlink.graph.formats.rdf import read_rdf_lines
from fewlink.graph.formats.sparql_results import (
    RESULTS_HEADER,
    Numbered,
    csv_term,
    read_results,
    read_solutions,
    results_layout,
)
from fewlink.graph.source import MAX_NAME_BYTES, NEWLINE, Peeked, Source, blocks_of, is_blank, whole_lines
from fewlink.graph.vocabulary import Block, Interner, is_text

PIECE_BYTES = 1 << 18
MAX_ROW_LINES = 100  # a quoted field that spans more lines lacks its closing quote
MAX_ROWS_IN_FIELD = 3  # a quoted field with more lines that look like rows has a stray quote
N_TRIPLES_LINE = re.compile(rb"\s*(<[^<>\s]+>|_:\S+)[ \t]+<[^<>\s]+>[ \t]+[<_\"][^\n]*[>\w\"][ \t]*\.[ \t]*\r?(\n|$)")
RESULTS_CSV_HEADER = re.compile(rb"[A-Za-z_]\w*(,[A-Za-z_]\w*){2,}")
RETURN = "\udc0d"  # replaces a lone carriage return, at which the csv module would end the row


def read_delimited(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Read a table of text, whose separator, quotes, header and columns are found from its beginning.

    `separator` is what the suffix promises. SPARQL results, JSON lines and RDF with a suffix of text are read as such.
    """
    peeked = Peeked(file)
    check_text(source, peeked.peek())
    source.facts.encoding = "UTF-8"
    if encoding := utf_16_of(peeked.peek()):
        source.facts.encoding = encoding.upper()
        peeked = Peeked(cast("IO[bytes]", Utf8OfUtf16(source, peeked.as_file(), encoding)))
    if b"\r" in peeked.peek() and b"\n" not in peeked.peek():
        peeked = Peeked(cast("IO[bytes]", LineFeeds(peeked.as_file())))
    begin = peeked.peek()
    text = peeked.as_file()
    if RESULTS_HEADER.match(begin):
        return read_results(source, text, "TSV")
    if JSON_LINE.match(begin):
        return read_json(source, text)
    if N_TRIPLES_LINE.match(begin):
        source.facts.format = "N-Triples"
        return read_rdf_lines(source, text, "N-Triples")
    if separator == b"," and (variables := _variables(source, begin)):
        source.facts.format = "SPARQL results in CSV"
        return read_solutions(source, variables, _solutions(source, text, variables))
    return _blocks(source, text, dialect_of(source, begin, separator))


def _variables(source: Source, begin: bytes) -> list[str] | None:
    """The variables of SPARQL results in CSV, or None: each head and relation is an IRI below a header of variables."""
    lines = begin.replace(b"\r\n", b"\n").split(b"\n")
    if not RESULTS_CSV_HEADER.fullmatch(lines[0]):
        return None
    try:
        rows = list(itertools.islice(csv.reader(line.decode() + "\n" for line in lines[:MAX_SAMPLED_LINES]), 1, None))
        names = lines[0].decode().split(",")
        places = results_layout(source, names).places
    except (csv.Error, UnicodeDecodeError, InputError):
        return None
    if len(lines) <= MAX_SAMPLED_LINES:
        rows = rows[:-1]  # it may be cut off, or empty
    rows = [row for row in rows if len(row) == len(names)]
    ends = [csv_term(row[place]) for row in rows for place in (places or ())[:2]]
    is_results = bool(ends) and all(end is not None and end.kind != "literal" for end in ends)
    return names if is_results else None


def _solutions(source: Source, file: IO[bytes], variables: list[str]) -> Iterator[Numbered]:
    """The solutions of SPARQL results in CSV."""
    layout = Layout(len(variables), 0, 0, len(variables) - 1, tuple(variables))
    chunks = _after(source, as_utf_8(source, whole_lines(source, file)), 1)
    first = next(chunks, b"")  # before it, the line of the header is not counted
    for line, row in _quoted_rows(source, itertools.chain([first], chunks), Dialect(b",", True, False, 1, layout)):
        if is_blank(row):
            continue
        if len(row) != len(variables):
            source.bad(f"has {plural(len(row), 'column')} instead of {len(variables)}", line)
        elif not all(map(is_text, row)):
            source.bad("is not UTF-8 text", line)
        else:
            terms = ((name, csv_term(cell.decode())) for name, cell in zip(variables, row, strict=True))
            yield line, {name: term for name, term in terms if term is not None}


def _blocks(source: Source, file: IO[bytes], dialect: Dialect) -> Iterator[Block]:
    """Split each block of lines at once; split a block with a bad line line by line."""
    chunks = _after(source, as_utf_8(source, whole_lines(source, file)), dialect.begin)
    for raw in chunks:
        if dialect.quoted and b'"' in raw:  # the csv module reads the rest: a quoted field may contain line ends
            rows = _quoted_rows(source, itertools.chain([raw], chunks), dialect)
            yield from blocks_of(source, _triples(source, rows, dialect.layout))
            return
        block = _split_whole(_without_empty_lines(raw), dialect) if dialect.is_plain else None
        if block is not None:
            yield block
        else:
            lines = ((line, dialect.split(text)) for line, text in source.lines(raw))
            yield from blocks_of(source, _triples(source, lines, dialect.layout))
        source.line += raw.count(b"\n")


def _after(source: Source, chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Blocks of lines without the first lines of the file."""
    for raw in chunks:
        while count and raw:
            raw = raw[raw.index(b"\n") + 1 :]
            source.line += 1
            count -= 1
        if raw:
            yield raw


def _triples(
    source: Source, rows: Iterable[tuple[int, list[bytes]]], layout: Layout
) -> Iterator[tuple[int, list[bytes]]]:
    """The triples of rows with their line numbers; a row without its columns is a bad line."""
    if layout.width == 3 and layout.places == (0, 1, 2):
        yield from rows
        return
    for line, row in rows:
        if is_blank(row):
            continue
        if not layout.shortest <= len(row) <= layout.width:
            source.bad(f"has {plural(len(row), 'column')} instead of {layout.width}", line)
        else:
            for triple in layout.triples(row):
                yield line, triple


def _without_empty_lines(raw: bytes) -> bytes:
    if b"\n\n" not in raw and not raw.startswith(b"\n"):
        return raw
    is_end = np.frombuffer(b"\n" + raw, np.uint8) == NEWLINE
    return bytes(np.frombuffer(raw, np.uint8)[~(is_end[1:] & is_end[:-1])].data)


def _split_whole(raw: bytes, dialect: Dialect) -> Block | None:
    """Split all lines at once; None if a line has other columns, or a field of its triple is empty or not UTF-8."""
    data = np.frombuffer(raw, np.uint8)
    separator = dialect.separator
    width = dialect.layout.width
    places = list(dialect.layout.places or ())
    ends = _field_ends(data, separator)
    if not len(ends):
        return Block([], np.zeros((0, 3), np.int32))
    if len(ends) % width or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, width)
    if (kinds[:, :-1] != separator[0]).any() or (kinds[:, -1] != NEWLINE).any():
        return None
    sizes = np.diff(ends, prepend=-1)  # of each field with its separator
    if places != [0, 1, 2] or width > 3:
        sizes = sizes.reshape(-1, width)[:, places]
    if sizes.min() == 1 or sizes.max() > MAX_NAME_BYTES + 1:
        return None
    block = _encode(raw.replace(b"\n", separator), ends, separator, width)
    return block if places == [0, 1, 2] and width == 3 else Block(block.names, block.codes[:, places])


def _field_ends(data: np.ndarray, separator: bytes) -> np.ndarray:
    """The positions at which fields end, searched in pieces that fit into the processor's cache."""
    ends = [np.zeros(0, np.int64)]
    for begin in range(0, len(data), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES]
        ends.append(np.flatnonzero((piece == separator[0]) | (piece == NEWLINE)) + begin)
    return np.concatenate(ends)


def _encode(raw: bytes, ends: np.ndarray, separator: bytes, width: int) -> Block:
    """Encode rows of fields that end at `ends`, with pyarrow if it is installed, otherwise with a Python dict."""
    try:
        import pyarrow
    except ImportError:
        fields = raw.split(separator)
        del fields[-1]
        interner = Interner()
        codes = interner.ids(fields).reshape(-1, width)
        return Block(list(interner), codes)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)  # each field keeps its separator, always the same byte
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(raw)]
    encoded = pyarrow.Array.from_buffers(pyarrow.binary(), len(ends), buffers).dictionary_encode()
    names = [name[:-1] for name in encoded.dictionary.to_pylist()]
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(ends))  # to_numpy would import pandas
    return Block(names, codes.reshape(-1, width))


def _quoted_rows(source: Source, chunks: Iterator[bytes], dialect: Dialect) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the rows of a table from its first block with a quote, with their line numbers.

    A row may span `MAX_ROW_LINES` lines. A longer or invalid row is reported as one bad line, and reading continues
    with the next line, so that a stray quote costs one line.
    """
    lines = (text for raw in chunks for text in raw.decode("utf-8", "surrogateescape").split("\n")[:-1])
    ahead: deque[str] = deque()  # lines that were read for a row that turned out shorter
    number = source.line + 1
    mark = dialect.separator.decode()
    width = dialect.layout.width
    while (first := ahead.popleft() if ahead else next(lines, None)) is not None:
        if '"' not in first:
            yield number, dialect.split(first.encode("utf-8", "surrogateescape"))
            number += 1
            continue
        taken = [first]
        try:
            spans = _row_lines(taken, ahead, lines)
            row = next(csv.reader(spans, strict=True, delimiter=mark, skipinitialspace=dialect.padded))
            if not dialect.layout.shortest <= len(row) <= width and len(taken) > 1:
                raise csv.Error(f"{len(row)} columns on {len(taken)} lines")
            if len(taken) > MAX_ROWS_IN_FIELD + 1 and all(line.count(mark) == width - 1 for line in taken[1:-1]):
                raise csv.Error(f"a quoted field of {len(taken)} lines that are rows themselves")
        except csv.Error as error:
            ahead.extendleft(reversed(taken[1:]))
            problem = "has no closing quote" if len(taken) >= MAX_ROW_LINES else f"is not valid CSV ({error})"
            source.bad(problem, number)
            number += 1
        else:
            fields = [field.replace(RETURN, "\r").encode("utf-8", "surrogateescape") for field in row]
            yield number, [field.strip() for field in fields] if dialect.padded else fields
            number += len(taken)


def _row_lines(taken: list[str], ahead: deque[str], lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines that a row may span to the csv module, and add those after the first to `taken`."""
    yield taken[0].replace("\r", RETURN) + "\n"
    while len(taken) < MAX_ROW_LINES and (text := ahead.popleft() if ahead else next(lines, None)) is not None:
        taken.append(text)
        yield text.replace("\r", RETURN) + "\n"
