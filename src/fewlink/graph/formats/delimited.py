"""Tab- and comma-separated text, with or without a header row."""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterator
from typing import IO

import numpy as np

from fewlink.graph.source import HEADERS, MAX_NAME_BYTES, NEWLINE, Source, blocks_of, whole_lines
from fewlink.graph.vocabulary import Block, is_text

PIECE_BYTES = 1 << 18
MAX_ROW_LINES = 100  # a quoted field that spans more lines lacks its closing quote
MAX_ROWS_IN_FIELD = 3  # a quoted field with more lines that look like rows has a stray quote
IRI = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+")
RETURN = "\udc0d"  # replaces a lone carriage return, at which the csv module would end the row


def read_delimited(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Read separated text; a header row is recognised and left out."""
    blocks = (block for block in _delimited_blocks(source, file, separator) if len(block.codes))
    for first in blocks:
        yield _without_header(source, first)
        yield from blocks


def _delimited_blocks(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    """Split each block of lines at once; split a block with a bad line line by line."""
    chunks = whole_lines(source, file)
    for raw in chunks:
        if separator == b"," and b'"' in raw:  # the csv module reads the rest: a quoted field may contain line ends
            yield from blocks_of(source, _quoted_rows(source, itertools.chain([raw], chunks)))
            return
        block = _split_whole(_without_empty_lines(raw), separator)
        if block is not None:
            yield block
        else:
            yield from blocks_of(source, ((line, text.split(separator)) for line, text in source.lines(raw)))
        source.line += raw.count(b"\n")


def _without_empty_lines(raw: bytes) -> bytes:
    if b"\n\n" not in raw and not raw.startswith(b"\n"):
        return raw
    is_end = np.frombuffer(b"\n" + raw, np.uint8) == NEWLINE
    return bytes(np.frombuffer(raw, np.uint8)[~(is_end[1:] & is_end[:-1])].data)


def _split_whole(raw: bytes, separator: bytes) -> Block | None:
    """Split all lines at once; None if a line is not three non-empty fields of UTF-8 text."""
    data = np.frombuffer(raw, np.uint8)
    ends = _field_ends(data, separator)
    if not len(ends):
        return Block([], np.zeros((0, 3), np.int32))
    if len(ends) % 3 or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, 3)
    if (kinds[:, :2] != separator[0]).any() or (kinds[:, 2] != NEWLINE).any():
        return None
    widths = np.diff(ends, prepend=-1)  # of each field with its separator
    if widths.min() == 1 or widths.max() > MAX_NAME_BYTES + 1:
        return None
    return _encode(raw.replace(b"\n", separator), ends, separator)


def _field_ends(data: np.ndarray, separator: bytes) -> np.ndarray:
    """The positions at which fields end, searched in pieces that fit into the processor's cache."""
    ends = [np.zeros(0, np.int64)]
    for begin in range(0, len(data), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES]
        ends.append(np.flatnonzero((piece == separator[0]) | (piece == NEWLINE)) + begin)
    return np.concatenate(ends)


def _encode(raw: bytes, ends: np.ndarray, separator: bytes) -> Block:
    """Encode the fields that end at `ends`, with pyarrow if it is installed, otherwise with a Python dict."""
    try:
        import pyarrow
    except ImportError:
        fields = raw.split(separator)
        del fields[-1]
        return Block.of(fields)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)  # each field keeps its separator, always the same byte
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(raw)]
    encoded = pyarrow.Array.from_buffers(pyarrow.binary(), len(ends), buffers).dictionary_encode()
    names = [name[:-1] for name in encoded.dictionary.to_pylist()]
    codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(ends))  # to_numpy would import pandas
    return Block(names, codes.reshape(-1, 3))


def _without_header(source: Source, block: Block) -> Block:
    """The block without its first row if that names columns, or names variables of a query before rows of IRIs."""
    first = [block.names[code] for code in block.codes[0]]
    second = [block.names[code] for code in block.codes[min(1, len(block.codes) - 1)]]
    iris = [[IRI.fullmatch(name) is not None for name in row[:2]] for row in (first, second)]
    names_variables = not any(iris[0]) and all(iris[1]) and all(name.decode().isidentifier() for name in first)
    if names_variables or all(name.lower() in known for name, known in zip(first, HEADERS, strict=True)):
        header = b" ".join(first).decode()
        source.report.headers.append(f"the first line of {source.path} was read as a header: {header}")
        return Block(block.names, block.codes[1:])
    return block


def _quoted_rows(source: Source, chunks: Iterator[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the rows of a CSV file from its first block with a quote, with their line numbers.

    A row may span `MAX_ROW_LINES` lines. A longer or invalid row is reported as one bad line, and reading continues
    with the next line, so that a stray quote costs one line.
    """
    lines = (text for raw in chunks for text in raw.decode("utf-8", "surrogateescape").split("\n")[:-1])
    ahead: deque[str] = deque()  # lines that were read for a row that turned out shorter
    number = source.line + 1
    while (first := ahead.popleft() if ahead else next(lines, None)) is not None:
        if '"' not in first:
            yield number, [field.encode("utf-8", "surrogateescape") for field in first.split(",")]
            number += 1
            continue
        taken = [first]
        try:
            row = next(csv.reader(_row_lines(taken, ahead, lines), strict=True))
            if len(row) != 3 and len(taken) > 1:
                raise csv.Error(f"{len(row)} columns on {len(taken)} lines")
            if len(taken) > MAX_ROWS_IN_FIELD + 1 and all(line.count(",") == 2 for line in taken[1:-1]):
                raise csv.Error(f"a quoted field of {len(taken)} lines that are rows themselves")
        except csv.Error as error:
            ahead.extendleft(reversed(taken[1:]))
            problem = "has no closing quote" if len(taken) >= MAX_ROW_LINES else f"is not valid CSV ({error})"
            source.bad(problem, number)
            number += 1
        else:
            yield number, [field.replace(RETURN, "\r").encode("utf-8", "surrogateescape") for field in row]
            number += len(taken)


def _row_lines(taken: list[str], ahead: deque[str], lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines that a row may span to the csv module, and add those after the first to `taken`."""
    yield taken[0].replace("\r", RETURN) + "\n"
    while len(taken) < MAX_ROW_LINES and (text := ahead.popleft() if ahead else next(lines, None)) is not None:
        taken.append(text)
        yield text.replace("\r", RETURN) + "\n"
