"""Triples from Parquet, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fewlink.errors import InputError, MissingExtra
from fewlink.graph.source import BLOCK_ROWS, HEADERS, Block, Source, add_row
from fewlink.progress import Advance


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
            yield _without_blanks(source, names)
            source.line += batch.num_rows
            advance(source.line / total, f"{source.report.triples:,} triples")
    except pyarrow.ArrowException as error:
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None


def _columns(path: Path, found: list[str]) -> list[str]:
    named = [next((c for c in found if c.lower().encode() in known), None) for known in HEADERS]
    columns = [c for c in named if c is not None]
    if len(columns) == 3:
        return columns
    if len(found) == 3:
        return found
    raise InputError(path, f"has columns {', '.join(found)}; it needs head, relation, tail (or exactly three columns)")


def _without_blanks(source: Source, names: list[list[Any]]) -> Block:
    if all(map(all, names)):
        return Block.of([name for row in zip(*names, strict=True) for name in row])
    fields: list[bytes] = []
    for line, row in enumerate(zip(*names, strict=True), source.line + 1):
        add_row(source, fields, [n or b"" for n in row], line)
    return Block.of(fields)
