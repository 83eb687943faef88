"""Triples from tab- or comma-separated text, a block of lines at a time."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from fewlink.graph.source import (
    BLOCK_ROWS,
    HEADERS,
    LONGEST_NAME,
    Block,
    Source,
    add_row,
    is_blank,
    is_text,
    whole_lines,
)

NEWLINE = 10
PIECE_BYTES = 1 << 18
RETURN = "\udc0d"  # stands for a lone carriage return, which the csv module would take for the end of a row


def read_delimited(separator: bytes) -> Callable[[Source, IO[bytes]], Iterator[Block]]:
    """A reader for one separator. Only a block with something wrong in it is looked at line by line."""

    def read(source: Source, file: IO[bytes]) -> Iterator[Block]:
        blocks = (block for block in _blocks(source, file, separator) if len(block.codes))
        for first in blocks:
            yield _without_header(source, first)
            yield from blocks

    return read


def _blocks(source: Source, file: IO[bytes], separator: bytes) -> Iterator[Block]:
    parts = whole_lines(source, file)
    for raw in parts:
        if separator == b"," and b'"' in raw:  # a quoted field may hold line ends: the rest goes through csv
            yield from _quoted_csv(source, itertools.chain([raw], parts))
            return
        yield _split_whole(raw, separator) or _split_lines(source, raw, separator)
        source.line += raw.count(b"\n")


def _split_whole(raw: bytes, separator: bytes) -> Block | None:
    """All lines at once, or None when any of them is not three non-empty fields of text."""
    data = np.frombuffer(raw, np.uint8)
    ends = _ends(data, separator)
    if len(ends) % 3 or not is_text(raw):
        return None
    kinds = data[ends].reshape(-1, 3)
    if (kinds[:, :2] != separator[0]).any() or (kinds[:, 2] != NEWLINE).any():
        return None
    widths = np.diff(ends, prepend=-1)  # each with its separator
    if widths.min() == 1 or widths.max() > LONGEST_NAME + 1:
        return None
    return _encode(raw.replace(b"\n", separator), ends, separator)


def _ends(data: np.ndarray, separator: bytes) -> np.ndarray:
    """Where fields end, found in pieces that stay in the processor's cache."""
    found = []
    for begin in range(0, len(data), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES]
        found.append(np.flatnonzero((piece == separator[0]) | (piece == NEWLINE)) + begin)
    return np.concatenate(found)


def _encode(raw: bytes, ends: np.ndarray, separator: bytes) -> Block:
    """The fields that end at `ends`; pyarrow's dictionary encoding where it is installed, Python's dict elsewhere."""
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


def _split_lines(source: Source, raw: bytes, separator: bytes) -> Block:
    fields: list[bytes] = []
    for line, text in source.lines(raw):
        if not is_blank(row := text.split(separator)):
            add_row(source, fields, row, line)
    return Block.of(fields)


def _without_header(source: Source, block: Block) -> Block:
    first = [block.names[code] for code in block.codes[0]]
    if all(name.lower() in known for name, known in zip(first, HEADERS, strict=True)):
        shown = b" ".join(first).decode()
        source.report.headers.append(f"the first line of {source.path} was taken as a header: {shown}")
        return Block(block.names, block.codes[1:])
    return block


def _quoted_csv(source: Source, parts: Iterator[bytes]) -> Iterator[Block]:
    """The rest of a CSV file from its first block with a quote on, by the csv module."""

    def lines() -> Iterator[str]:
        for part in parts:
            for text in part.decode("utf-8", "surrogateescape").replace("\r", RETURN).split("\n")[:-1]:
                yield text + "\n"

    fields: list[bytes] = []
    reader = csv.reader(lines(), strict=True)
    while True:
        line = source.line + reader.line_num + 1
        try:
            row = [f.replace(RETURN, "\r").encode("utf-8", "surrogateescape") for f in next(reader)]
        except StopIteration:
            break
        except csv.Error as error:
            source.bad(f"is not valid CSV ({error})", line)
            continue
        if not is_blank(row):
            add_row(source, fields, row, line)
        if len(fields) >= 3 * BLOCK_ROWS:
            yield Block.of(fields)
            fields = []
    yield Block.of(fields)
