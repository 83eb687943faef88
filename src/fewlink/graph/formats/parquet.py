"""Parquet files, read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from fewlink.core.errors import InputError, MissingExtra
from fewlink.graph.columns import named_layout
from fewlink.graph.compression import COMPRESSIONS
from fewlink.graph.source import BLOCK_BYTES, BLOCK_ROWS, TRIPLE_BYTES, Source, blocks_of, row_problem
from fewlink.graph.vocabulary import Block, Interner

READ_BYTES = 128 << 20  # at once, of a column whose values can be as long as all of its data
UNREADABLE = "Not yet implemented"  # in pyarrow's error for encodings that it cannot read as dictionaries


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
        schema = pyarrow.parquet.read_schema(file)
        layout = named_layout(source.path, schema.names, source.reading.columns)
        source.facts.add(layout)
        places = layout.places or range(layout.width)
        columns = [layout.names[place] for place in places]
        texts = [layout.names[place] for place in places if not pyarrow.types.is_nested(schema.field(place).type)]
        table = pyarrow.parquet.ParquetFile(file, read_dictionary=texts)  # which decodes a repeated name once
        _check_size(source, table.metadata)
        for batch in _batches(source, file, table, columns):
            names = Interner()
            codes = np.stack([_codes(batch.column(column), names) for column in columns], 1)
            in_order = list(names)
            if layout.places is None:
                rows = ((line, [in_order[code] for code in row]) for line, row in enumerate(codes, source.line + 1))
                yield from blocks_of(source, ((line, each) for line, row in rows for each in layout.triples(row)))
            else:
                yield _checked(source, in_order, codes)
            source.line += batch.num_rows
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # the latter from the name of a column
        raise InputError(source.path, f"cannot be read as Parquet ({error})") from None


def _check_size(source: Source, metadata: Any) -> None:
    """Raise if the table says that it takes more memory than a file of its size may."""
    stored = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    source.budget.check(max(stored, TRIPLE_BYTES * metadata.num_rows), f"has {metadata.num_rows:,} rows, which take")


def _batches(source: Source, file: IO[bytes], table: Any, columns: list[str]) -> Iterator[Any]:
    """The rows of a table in batches, of which `source.line` rows have been read."""
    try:
        yield from table.iter_batches(batch_size=BLOCK_ROWS, columns=columns)
    except OSError as error:
        if UNREADABLE not in str(error):
            raise
        for batch in _plain_batches(file, source.line, columns):
            source.spend(batch.nbytes)
            yield batch


def _plain_batches(file: IO[bytes], begin: int, columns: list[str]) -> Iterator[Any]:
    """The rows from `begin` on, not decoded as dictionaries, which pyarrow cannot do with DELTA encodings.

    With DELTA_BYTE_ARRAY, a value can repeat all of the one before, so that each may be as long as all data of its
    column: few rows are read at once, and joined while they take little memory.
    """
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    metadata = table.metadata
    longest = max(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    at_once = min(BLOCK_ROWS, max(1, READ_BYTES // max(1, longest)))
    parts: list[Any] = []
    row = size = 0
    for batch in table.iter_batches(batch_size=at_once, columns=columns, use_threads=False):
        parts.append(batch.slice(max(0, begin - row)))
        row += batch.num_rows
        size += parts[-1].nbytes
        if size > BLOCK_BYTES or at_once * len(parts) >= BLOCK_ROWS:
            yield from pyarrow.Table.from_batches(parts).combine_chunks().to_batches()
            parts = []
            size = 0
    if parts:
        yield from pyarrow.Table.from_batches(parts).combine_chunks().to_batches()


def _codes(column: Any, names: Interner) -> np.ndarray:
    """The indices (rows,) of the values of a column in `names`, to which new ones are added; a null is empty."""
    import pyarrow

    if not pyarrow.types.is_dictionary(column.type):
        column = column.cast(pyarrow.string()).dictionary_encode()
    values = column.dictionary
    if pyarrow.types.is_string(values.type):
        values = values.view(pyarrow.binary())  # which may be other bytes than UTF-8
    elif not pyarrow.types.is_binary(values.type):
        values = values.cast(pyarrow.string()).cast(pyarrow.binary())
    values.validate(full=True)
    indices = column.indices.cast(pyarrow.int32()).fill_null(len(values))
    offset = 4 * indices.offset
    used, codes = np.unique(np.frombuffer(indices.buffers()[1], np.int32, len(indices), offset), return_inverse=True)
    present = np.ascontiguousarray(used[used != len(values)], np.int32)
    at = pyarrow.Array.from_buffers(pyarrow.int32(), len(present), [None, pyarrow.py_buffer(present)])
    texts = values.take(at).to_pylist()  # pyarrow.array and to_numpy would import pandas
    ids = names.ids([text or b"" for text in texts] + [b""] * (len(used) - len(texts)))
    return ids[codes.reshape(-1)]


def _checked(source: Source, names: list[bytes], codes: np.ndarray) -> Block:
    """The block of these names and codes (rows, 3) without rows that are no triples, which are reported."""
    bad = np.array([row_problem((name, name, name)) is not None for name in names], bool)
    bad_rows = bad[codes].any(1)
    for row in np.flatnonzero(bad_rows).tolist():
        source.bad(str(row_problem([names[code] for code in codes[row]])), source.line + row + 1)
    return Block(names, codes[~bad_rows])
