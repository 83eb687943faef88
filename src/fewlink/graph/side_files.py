"""Small tab-separated files that describe a graph: types and readable names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fewlink.core.errors import InputError
from fewlink.graph.compression import decompressed, reading_source
from fewlink.graph.source import CompileReport, GraphSource, Source, is_blank, numbered_lines
from fewlink.graph.vocabulary import Vocabulary, is_text

SAMPLED_ROWS = 1000  # rows that are checked for being triples


def read_pairs_table(path: Path, min_columns: int = 2) -> Iterator[list[str]]:
    """Yield the rows of a small tab-separated file. Raise if a row has fewer than `min_columns` columns."""
    path = Path(path)
    source = Source(path, GraphSource.of(path), CompileReport())
    with reading_source(path), path.open("rb") as raw, decompressed(path, raw) as file:
        for line, text in numbered_lines(source, file):
            row = text.split(b"\t")
            if is_blank(row):
                continue
            if not is_text(text):
                raise InputError(path, "is not UTF-8 text", line)
            if len(row) < min_columns or not all(row[:min_columns]):
                raise InputError(path, f"needs at least {min_columns} columns separated by tabs", line)
            yield [name.decode() for name in row]


def check_side_files(entities: Vocabulary, relations: Vocabulary, source: GraphSource) -> None:
    """Raise if a file of types or readable names holds triples, or describes nothing in the graph."""
    if source.types is not None:
        check_describes(source.types, entities, relations, "an entity, a tab and a type")
    if source.names is not None:
        check_describes(source.names, entities, relations, "an id, a tab and a readable name", of_relations=True)


def check_describes(
    path: Path, entities: Vocabulary, relations: Vocabulary, line: str, *, of_relations: bool = False
) -> None:
    """Raise if a side file holds triples, or no row that describes an entity of the graph.

    `line` is the expected content of a line, in words. With `of_relations`, rows may describe relations too.
    """
    describes = False
    triples = rows = 0
    for row in read_pairs_table(path):
        describes = describes or row[0] in entities or (of_relations and row[0] in relations)
        triples += len(row) == 3 and row[0] in entities and row[1] in relations and row[2] in entities
        rows += 1
        if rows >= SAMPLED_ROWS and describes:
            break
    if triples > rows / 2:
        raise InputError(path, f"holds triples: each line must be {line}")
    if not describes and len(entities):
        raise InputError(
            path,
            f"names no entity of the graph, whose first is '{entities[0]}': give the file of this graph",
        )
