"""Parquet files, read by pyarrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import IO

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph.columns import named_layout
from fewlink.graph.compression import COMPRESSIONS
from fewlink.graph.source import BLOCK_ROWS, MAX_NAME_BYTES, Source, blocks_of
from fewlink.graph.vocabulary import Block, is_text


def read_parquet(source: Source, file: IO[bytes]) -> Iterator[Block]:
    """Read the chosen columns, or those named head, relation and tail or alike, or else the only three columns."""
    if source.path.suffix.lower() in COMPRESSIONS:
        raise InputError(source.path, "is a compressed Parquet file: unpack it first")
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "scale") from None
    try:
        table = pyarrow.parquet.ParquetFile(file)
        layout = named_layout(source.path, table.schema_arrow.names, source.reading.columns)
        source.facts.add(layout)
        columns = [layout.names[place] for place in layout.places or range(layout.width)]
        for batch in table.iter_batches(batch_size=BLOCK_ROWS, columns=columns):
            names = [batch.column(c).cast(pyarrow.string()).cast(pyarrow.binary()).to_pylist() for c in columns]
            rows = [[name or b"" for name in row] for row in zip(*names, strict=True)]
            if layout.places is None:
                numbered = enumerate(rows, source.line + 1)
                yield from blocks_of(source, ((line, each) for line, row in numbered for each in layout.triples(row)))
                source.line += batch.num_rows
                continue
            fields = list(itertools.chain.from_iterable(rows))
            if all(fields) and is_text(b"\n".join(fields)) and max(map(len, fields), default=0) <= MAX_NAME_BYTES:
                yield Block.of(fields)
            else:
                yield from blocks_of(source, enumerate(rows, source.line + 1))
            source.line += batch.num_rows
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter from the name of a column
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None
