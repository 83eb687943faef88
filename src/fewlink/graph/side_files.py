"""Small tab-separated files beside a graph: types and readable names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fewlink.core.errors import (
    InputError,
)
from fewlink.graph.compression import decompressed, reading_source
from fewlink.graph.source import (
    CompileReport,
    Source,
    is_blank,
    numbered_lines,
)
from fewlink.graph.vocabulary import (
    Vocabulary,
    is_text,
)

SAMPLED_ROWS = 1000  # of a side file, to see whether they are triples


def read_pairs_table(path: Path, least: int = 2) -> Iterator[list[str]]:
    """Rows of a small tab-separated side file (types, readable names), each with at least `least` columns."""
    path = Path(path)
    source = Source(path, skip=False, report=CompileReport())
    with reading_source(path), path.open("rb") as raw, decompressed(path, raw) as file:
        for line, text in numbered_lines(source, file):
            if is_blank(row := text.split(b"\t")):
                continue
            if not is_text(text):
                raise InputError(path, "is not UTF-8 text", line)
            if len(row) < least or not all(row[:least]):
                raise InputError(path, f"needs at least {least} columns separated by tabs", line)
            yield [name.decode() for name in row]


def check_side_files(
    entities: Vocabulary, relations: Vocabulary, types: Path | None = None, names: Path | None = None
) -> None:
    """Raise if files of types or readable names hold triples, or nothing about the graph."""
    if types is not None:
        check_describes(types, entities, relations, "an entity, a tab and a type")
    if names is not None:
        check_describes(names, entities, relations, "an id, a tab and a readable name", of_relations=True)


def check_describes(
    path: Path, entities: Vocabulary, relations: Vocabulary, line: str, *, of_relations: bool = False
) -> None:
    """Raise if a side file of a graph (types, readable names) holds triples, or no row about the graph.

    `line` says in words what each line holds; `of_relations`, it may also describe a relation.
    """
    found, triples, rows = False, 0, 0
    for row in read_pairs_table(path):
        found = found or row[0] in entities or (of_relations and row[0] in relations)
        triples += len(row) == 3 and row[0] in entities and row[1] in relations and row[2] in entities
        rows += 1
        if rows >= SAMPLED_ROWS and found:
            break
    if triples > rows / 2:
        raise InputError(path, f"holds triples: each line must be {line}")
    if not found and len(entities):
        raise InputError(
            path,
            f"names no entity of the graph, whose first is '{entities[0]}': does the file belong to another graph?",
        )
