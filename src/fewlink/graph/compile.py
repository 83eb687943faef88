"""Compile files of triples into a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fewlink.core.progress import progress
from fewlink.graph.formats import read_triples
from fewlink.graph.graph import Graph
from fewlink.graph.labels import labels_from
from fewlink.graph.literals import literal_triples
from fewlink.graph.side_files import check_side_files
from fewlink.graph.source import CompileReport, GraphSource
from fewlink.graph.types import TypeTable, described_types, types_from_file, types_from_names, types_from_triples
from fewlink.graph.vocabulary import Block, Interner, Vocabulary


def compile_graph(
    file: Path | str | Sequence[Path | str] | GraphSource,
    *,
    types: Path | str | None = None,
    names: Path | str | None = None,
    columns: str | Mapping[str, str | int] | None = None,
    on_error: str = "stop",
    literals: str = "drop",
    report: CompileReport | None = None,
) -> Graph:
    """Read one or several files of triples into a graph in memory.

    types, names  files of `entity<TAB>type`, and of `id<TAB>readable name` for entities and relations
    columns       the columns of a table, such as `head=2,relation=1,tail=3` or `head=source,relation=type,tail=target`,
                  if its header does not tell them
    on_error      a bad line raises an error with its file and line number; with "skip", it is counted in `report`
    literals      relations whose tails are numbers, dates or truth values are left out; with "keep", they are read
    """
    source = GraphSource.of(file, types=types, names=names, columns=columns, on_error=on_error, literals=literals)
    report = report or CompileReport()
    graph = read_graph(source, report)
    if not graph.triple_count:
        raise report.no_triples(source.paths)
    return graph


def read_graph(source: GraphSource, report: CompileReport) -> Graph:
    """Read files into a graph, which may have no triples."""
    entities = Interner()
    relations = Interner()
    triples = read_ids(source, entities, relations, report)
    entity_names = Vocabulary.of(entities)
    relation_names = Vocabulary.of(relations)
    del entities, relations
    check_side_files(entity_names, relation_names, source)
    labels = labels_from(entity_names, relation_names, [source.names] if source.names else [], report.labels)
    if source.types is not None:
        table: TypeTable | None = types_from_file(source.types, entity_names)
    else:
        table = types_from_triples(entity_names, relation_names, triples, labels) or types_from_names(entity_names)
    graph = Graph.of(entity_names, relation_names, triples, types=table, labels=labels)
    report.duplicates += len(triples) - graph.triple_count
    report.self_loops += int((graph.head_ids == graph.tail_ids).sum()) // 2
    return _described(graph, report.descriptions)


def _described(graph: Graph, descriptions: Mapping[bytes, tuple[bytes, bytes]]) -> Graph:
    """The graph with names and types of entities by id, unless it has names or types already."""
    if not descriptions:
        return graph
    if graph.labels is None:
        ids = [name.encode() for name in graph.entities]
        labels = [descriptions.get(name, (b"", b""))[0] or name for name in ids]
        graph = dataclasses.replace(graph, labels=Vocabulary.of([*labels, *graph.relations]))
    if graph.types is None:
        graph = dataclasses.replace(graph, types=described_types(graph.entities, descriptions))
    return graph


def read_ids(source: GraphSource, entities: Interner, relations: Interner, report: CompileReport) -> np.ndarray:
    """Read the triples of files as ids (n, 3). New names get the next ids, in order of appearance.

    Triples with literals are left out, and new names that occur in no other triple, unless `source` keeps them.
    """
    known = len(entities), len(relations)
    blocks = [np.zeros((3, 0), np.int32)]  # ids (3, n)
    for path in source.paths:
        with progress(f"reading {path.name}", 1.0) as advance:
            for block in read_triples(path, reading=source, report=report, advance=advance):
                entity_ids = _ids_by_code(entities, block, 0, 2)
                relation_ids = _ids_by_code(relations, block, 1)
                heads, middles, tails = block.codes.T
                blocks.append(np.stack([entity_ids[heads], relation_ids[middles], entity_ids[tails]]))
    triples = np.concatenate(blocks, axis=1).T  # each column is contiguous
    if source.keep_literals:
        return triples
    literal = literal_triples(list(entities), len(relations), triples)
    if not literal.any():
        return triples
    report.literals += int(literal.sum())
    report.triples -= int(literal.sum())
    names = list(relations)
    report.literal_relations += [names[number].decode() for number in np.unique(triples[literal, 1]).tolist()]
    kept = triples[~literal]
    new_entities = _forget_unused(entities, known[0], kept[:, [0, 2]])
    new_relations = _forget_unused(relations, known[1], kept[:, 1])
    return np.stack([new_entities[kept[:, 0]], new_relations[kept[:, 1]], new_entities[kept[:, 2]]]).T


def _forget_unused(interner: Interner, known: int, used: np.ndarray) -> np.ndarray:
    """Remove the names after the first `known` that have none of the ids `used`, and return the new ids (names,)."""
    stays = np.zeros(len(interner), bool)
    stays[:known] = stays[used.ravel()] = True
    new = np.cumsum(stays, dtype=np.int32) - np.int32(1)
    names = list(interner)
    interner.clear()
    interner.update((names[old], int(new[old])) for old in np.flatnonzero(stays).tolist())
    return new


def read_names_of(path: Path) -> list[tuple[str, str, str]]:
    """Read the triples of a small file as names, in file order."""
    triples = []
    for block in read_triples(path, reading=GraphSource.of(path, literals="keep"), report=CompileReport()):
        names = [name.decode() for name in block.names]
        triples += [(names[head], names[relation], names[tail]) for head, relation, tail in block.codes.tolist()]
    return triples


def _ids_by_code(interner: Interner, block: Block, *columns: int) -> np.ndarray:
    """The id of each name of a block that occurs in these columns, new ids in order of appearance: (names,) int32."""
    present = in_order(block, *columns)
    ids = np.zeros(len(block.names), np.int32)
    ids[present] = interner.ids([block.names[i] for i in present.tolist()])
    return ids


def in_order(block: Block, *columns: int) -> np.ndarray:
    """The codes of the names of a block that occur in these columns, in order of appearance: (n,)."""
    codes = block.codes[:, columns].ravel()
    first = np.full(len(block.names), -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the first occurrence is written last
    present = np.flatnonzero(first >= 0)
    return np.asarray(present[np.argsort(first[present], kind="stable")])
