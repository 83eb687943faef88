"""Triples from Parquet, by pyarrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.base.errors import InputError, MissingExtra
from fewlink.base.progress import Advance
from fewlink.graph.source import BLOCK_ROWS, HEADERS, LONGEST_NAME, Block, Source, add_row, is_text


def read_parquet(source: Source, advance: Advance) -> Iterator[Block]:
    """The columns head, relation and tail (or subject, predicate, object), or the only three."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "scale") from None
    try:
        table = pyarrow.parquet.ParquetFile(source.path)
        columns = _columns(source.path, table.schema_arrow.names)
        total = max(table.metadata.num_rows, 1)
        for batch in table.iter_batches(batch_size=BLOCK_ROWS, columns=columns):
            names = [batch.column(c).cast(pyarrow.string()).cast(pyarrow.binary()).to_pylist() for c in columns]
            yield _block(source, names)
            source.line += batch.num_rows
            advance(source.line / total, f"{source.report.triples:,} triples")
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter for the name of a column
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None


def _columns(path: Path, found: list[str]) -> list[str]:
    named = [next((c for c in found if c.lower().encode() in known), None) for known in HEADERS]
    columns = [c for c in named if c is not None]
    columns = columns if len(columns) == 3 else found
    if len(columns) == 3:
        if twice := next((c for c in columns if found.count(c) > 1), None):
            raise InputError(path, f"has two columns '{twice}': name them head, relation, tail")
        return columns
    raise InputError(path, f"has columns {', '.join(found)}; it needs head, relation, tail (or exactly three columns)")


def _block(source: Source, names: list[list[Any]]) -> Block:
    """One batch; only one with something wrong in it is looked at row by row."""
    rows = [[n or b"" for n in row] for row in zip(*names, strict=True)]
    fields = list(itertools.chain.from_iterable(rows))
    if not all(fields) or not is_text(b"\n".join(fields)) or max(map(len, fields), default=0) > LONGEST_NAME:
        fields = []
        for line, row in enumerate(rows, source.line + 1):
            add_row(source, fields, row, line)
    return Block.of(fields)
