"""One file of triples being read: its blocks, its lines, and what to do with a bad one."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from fewlink.base.errors import InputError
from fewlink.graph.vocabulary import Interner

BLOCK_BYTES = 32 << 20
BLOCK_ROWS = 1 << 17
LONGEST_LINE = 1 << 20
LONGEST_NAME = 1 << 17  # bytes; the csv module's limit too
SHOWN_PROBLEMS = 5
HEADERS = (
    {b"head", b"subject", b"source", b"h", b"s", b"from"},
    {b"relation", b"predicate", b"edge", b"r", b"p", b"type"},
    {b"tail", b"object", b"target", b"t", b"o", b"to"},
)


class Block(NamedTuple):
    """Some triples. `names` holds each name once, in order of first appearance; `codes` (n, 3) says which."""

    names: list[bytes]
    codes: np.ndarray

    @classmethod
    def of(cls, fields: list[bytes]) -> Block:
        """From head, relation, tail, head, relation, …"""
        interner = Interner()
        codes = interner.ids(fields).reshape(-1, 3)
        return cls(list(interner), codes)


@dataclass
class ReadReport:
    """What reading met, for the user to see."""

    triples: int = 0
    skipped: int = 0
    literals: int = 0
    problems: list[str] = field(default_factory=list)  # the first few of the skipped
    headers: list[str] = field(default_factory=list)  # a line for each file whose first row was no triple


class Source:
    """One file being read: where we are in it and what to do with a bad line."""

    def __init__(self, path: Path, skip: bool, report: ReadReport) -> None:
        self.path, self.skip, self.report = path, skip, report
        self.line = 0  # lines before the block at hand

    def bad(self, problem: str, line: int) -> None:
        error = InputError(self.path, problem, line)
        if not self.skip:
            raise error
        self.report.skipped += 1
        if len(self.report.problems) < SHOWN_PROBLEMS:
            self.report.problems.append(str(error))

    def lines(self, raw: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines of the block at hand with their numbers."""
        return enumerate(raw.split(b"\n")[:-1], self.line + 1)


def is_blank(row: list[bytes]) -> bool:
    """Whether a line is nothing but white space; one with a separator in it is not."""
    return len(row) < 2 and not b"".join(row).strip()


def add_row(source: Source, fields: list[bytes], row: list[bytes], line: int) -> None:
    """Add the three names of one row to the fields, or report what is wrong with it."""
    if len(row) != 3:
        source.bad(f"has {len(row)} columns where head, relation and tail are expected", line)
    elif not all(row):
        source.bad(f"has an empty {('head', 'relation', 'tail')[row.index(b'')]}", line)
    elif not all(map(is_text, row)):
        source.bad("is not UTF-8 text", line)
    elif max(map(len, row)) > LONGEST_NAME:
        source.bad(f"has a name of over {LONGEST_NAME:,} bytes", line)
    else:
        fields.extend(row)


def whole_lines(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    """Blocks that end with a line's end; each is UTF-8 unless its bad lines were skipped."""
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


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if raw.isascii():
        return True
    try:
        codecs.utf_8_decode(raw, "strict", True)
    except UnicodeDecodeError:
        return False
    return True
