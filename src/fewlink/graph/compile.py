"""Compile files of triples into a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fewlink.base.progress import progress
from fewlink.graph.formats import read_triples
from fewlink.graph.graph import Graph, types_from_file, types_from_names
from fewlink.graph.reading import Block, CompileReport, check_on_error, read_pairs_table
from fewlink.graph.vocabulary import Interner, Vocabulary


def compile_graph(
    paths: Path | str | Sequence[Path | str],
    *,
    types: Path | None = None,
    names: Path | None = None,
    on_error: str = "stop",
    report: CompileReport | None = None,
) -> Graph:
    """Read a triple file, or several, into one graph in memory.

    `types` is a file of `entity<TAB>type`, `names` one of `id<TAB>readable name` for entities and relations. Bad lines
    raise an error with file and line, or with `on_error="skip"` are counted in `report`.
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    report = report or CompileReport()
    graph = read_graph(files, types, names, check_on_error(on_error), report)
    if not graph.triple_count:
        raise report.no_triples(files)
    return graph


def read_graph(
    paths: Sequence[Path], types: Path | None, names: Path | None, skip: bool, report: CompileReport
) -> Graph:
    """The graph of these files; it may have no triples."""
    entities, relations = Interner(), Interner()
    triples = read_ids(paths, entities, relations, skip, report)
    entity_names, relation_names = Vocabulary.of(entities), Vocabulary.of(relations)
    del entities, relations
    graph = Graph.of(
        entity_names,
        relation_names,
        triples,
        types=types_from_file(types, entity_names) if types else types_from_names(entity_names),
        labels=labels_from(entity_names, relation_names, [names] if names else []),
    )
    report.duplicates += len(triples) - graph.triple_count
    report.self_loops += int((graph.head_ids == graph.tail_ids).sum()) // 2
    return graph


def read_ids(
    paths: Sequence[Path], entities: Interner, relations: Interner, skip: bool, report: CompileReport
) -> np.ndarray:
    """The triples of these files (n, 3) as ids; new names get the next ids in order of appearance."""
    blocks = [np.zeros((3, 0), np.int32)]  # (3, n) ids each
    for path in paths:
        with progress(f"reading {path.name}", 1.0) as advance:
            for block in read_triples(path, skip=skip, report=report, advance=advance):
                ids = (_numbered(entities, block, 0, 2), _numbered(relations, block, 1))
                blocks.append(np.stack([ids[column % 2][block.codes[:, column]] for column in range(3)]))
    return np.concatenate(blocks, axis=1).T  # each column is contiguous


def _numbered(interner: Interner, block: Block, *columns: int) -> np.ndarray:
    """The ids of the names of a block in these columns, new ones in order of appearance: (names,) int32."""
    codes = block.codes[:, columns].ravel()
    first = np.full(len(block.names), -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first occurrence is written last
    present = np.flatnonzero(first >= 0)
    present = present[np.argsort(first[present], kind="stable")]
    ids = np.zeros(len(block.names), np.int32)
    ids[present] = interner.ids([block.names[i] for i in present.tolist()])
    return ids


def labels_from(entities: Vocabulary, relations: Vocabulary, paths: Sequence[Path]) -> Vocabulary | None:
    """Readable names from side files; None without files."""
    if not paths:
        return None
    texts = {row[0]: row[1] for path in paths for row in read_pairs_table(path)}
    return Vocabulary.of(texts.get(name, name) for vocabulary in (entities, relations) for name in vocabulary)
