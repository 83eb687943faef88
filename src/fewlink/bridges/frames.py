"""Graphs from and to data frames of pandas and polars and graphs of networkx; predictions as any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.data import Benchmark
from fewlink.data.benchmark import SPLITS
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.graph.labels import labels_of
from fewlink.graph.source import HEADERS
from fewlink.graph.vocabulary import Interner
from fewlink.linker import Linker, Predictions
from fewlink.linker.names import Names as EntityNames
from fewlink.linker.predictions import COLUMNS

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

ENDS = ("head", "relation", "tail")
Triple = tuple[str, str, str]
Names = Mapping[str, str]
Types = Mapping[str, str | Iterable[str]]


def from_pandas(
    frame: pandas.DataFrame,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    names: Names | None = None,
    types: Types | None = None,
    device: str = "cpu",
) -> Linker:
    """A linker on the triples of a data frame, with the weights that come with fewlink, as `fewlink.load` of a file.

    The columns are those named head, relation and tail (or subject, predicate, object, …), or the only three, unless
    they are given. `names` are readable names and `types` the type or types of entities, both by id.
    """
    columns = _columns([str(column) for column in frame.columns], head, relation, tail)
    by_name = {str(column): column for column in frame.columns}
    values = [frame[by_name[column]].astype(object).where(frame[by_name[column]].notna(), None) for column in columns]
    return _linker(graph_of(_rows(columns, *(column.tolist() for column in values)), names, types), "frame", device)


def from_polars(
    frame: polars.DataFrame,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    names: Names | None = None,
    types: Types | None = None,
    device: str = "cpu",
) -> Linker:
    """A linker on the triples of a polars data frame; see `from_pandas`."""
    columns = _columns(frame.columns, head, relation, tail)
    rows = _rows(columns, *(frame.get_column(column).to_list() for column in columns))
    return _linker(graph_of(rows, names, types), "frame", device)


def from_networkx(
    graph: networkx.DiGraph,
    *,
    relation: str = "relation",
    name: str = "name",
    type: str = "type",
    device: str = "cpu",
) -> Linker:
    """A linker on a directed graph of networkx, with the weights that come with fewlink.

    The relation of an edge is its attribute `relation`, or the key of an edge of a MultiDiGraph if that is a text. The
    nodes' attributes `name` and `type`, a text or several, become readable names and types.
    """
    if not graph.is_directed():
        raise FewlinkError("the graph is undirected: which end is the head? Give a DiGraph or a MultiDiGraph")
    ids = [str(node) for node in graph.nodes]
    if len(set(ids)) < len(ids):
        raise FewlinkError("two nodes have the same text, such as 1 and '1': relabel one of them")
    names = {str(node): str(data[name]) for node, data in graph.nodes(data=True) if data.get(name) is not None}
    types = {str(node): data[type] for node, data in graph.nodes(data=True) if data.get(type) is not None}
    return _linker(graph_of(_edges(graph, relation), names, types), "graph", device)


def _edges(graph: networkx.DiGraph, relation: str) -> Iterator[Triple]:
    edges = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    for head, tail, *key, data in edges:
        found = data.get(relation, key[0] if key and isinstance(key[0], str) else None)
        if found is None:
            raise FewlinkError(
                f"the edge {head} → {tail} has no attribute '{relation}': "
                "name the attribute that holds the relation with relation=…"
            )
        yield str(head), str(found), str(tail)


def to_pandas(source: Linker | Graph | Predictions) -> pandas.DataFrame:
    """The triples of a graph as a data frame (head, relation, tail, and their readable names), or predictions."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("a data frame of pandas", "pandas") from None
    if isinstance(source, Predictions):
        return source.to_pandas()
    return pandas.DataFrame(triples_of(source))


def to_polars(source: Linker | Graph | Predictions) -> polars.DataFrame:
    """The triples of a graph as a data frame of polars, or predictions, with the sentences of reasons."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("a data frame of polars", "polars") from None
    if not isinstance(source, Predictions):
        return polars.DataFrame(triples_of(source))
    kinds = {
        "rank": polars.Float64,
        "score": polars.Float64,
        "probability": polars.Float64,
        "known": polars.Boolean,
        "in_set": polars.Boolean,
    }
    columns = [column for column in COLUMNS if column != "reasons"]
    values: dict[str, list[Any]] = {column: [getattr(row, column) for row in source] for column in columns}
    if any(row.reasons for row in source):
        values["reasons"] = [" ".join(row.reasons.sentences()) if row.reasons else None for row in source]
    return polars.DataFrame(values, schema={column: kinds.get(column, polars.String) for column in values})


def to_networkx(source: Linker | Graph | Predictions, relation: str = "predicted") -> networkx.MultiDiGraph:
    """A MultiDiGraph of a graph, or of predictions with their relation, rank, score and probability.

    The key of an edge is its relation; nodes have a `name`, and those of a graph their `types`.
    """
    try:
        import networkx
    except ImportError:
        raise MissingExtra("a graph of networkx", "networkx") from None
    made = networkx.MultiDiGraph()
    if isinstance(source, Predictions):
        for row in source:
            made.add_node(row.head, name=row.head_name)
            made.add_node(row.tail, name=row.tail_name)
            facts = {"rank": row.rank, "score": row.score, "probability": row.probability, "known": row.known}
            made.add_edge(row.head, row.tail, key=relation, relation=relation, **facts)
        return made
    graph = source.graph if isinstance(source, Linker) else source
    names = EntityNames(graph)
    for number, entity in enumerate(graph.entities):
        made.add_node(entity, name=graph.name(number), types=names.types_of(number))
    ids, relations = list(graph.entities), list(graph.relations)
    for head, number, tail in graph.triples().tolist():
        made.add_edge(ids[head], ids[tail], key=relations[number], relation=relations[number])
    return made


def graph_of(triples: Iterable[Triple], names: Names | None = None, types: Types | None = None) -> Graph:
    """The graph of these triples; `names` are readable names and `types` the type or types of entities, by id."""
    entities, relations = Interner(), Interner()
    ids = [(entities[h.encode()], relations[r.encode()], entities[t.encode()]) for h, r, t in triples]
    if not ids:
        raise FewlinkError("there are no triples")
    vocabularies = Vocabulary.of(entities), Vocabulary.of(relations)
    table = _type_table(vocabularies[0], types) if types else None
    labels = labels_of(*vocabularies, names) if names else None
    return Graph.of(*vocabularies, np.array(ids, np.int32), types=table, labels=labels)


def _type_table(entities: Vocabulary, types: Types) -> TypeTable:
    """The types of those entities that the graph has; a value that is not a collection is one type."""
    kinds, owners, members = Interner(), list[int](), list[int]()
    for entity, given in types.items():
        if (number := entities.find(entity)) is None:
            continue
        for kind in [given] if isinstance(given, str) or not isinstance(given, Iterable) else given:
            owners.append(number)
            members.append(kinds[str(kind).encode()])
    return TypeTable.of(kinds, np.array(owners, np.int32), np.array(members, np.int32), len(entities))


def triples_of(source: Linker | Graph) -> dict[str, list[str]]:
    """The columns head, relation and tail in the order of the graph's file, and their readable names if it has some."""
    graph = source.graph if isinstance(source, Linker) else source
    heads, relations, tails = graph.triples().T.tolist()
    entities, names = list(graph.entities), list(graph.relations)
    columns = {"head": [entities[i] for i in heads], "relation": [names[i] for i in relations]}
    columns["tail"] = [entities[i] for i in tails]
    if graph.labels is not None:
        columns["head_name"] = [graph.name(i) for i in heads]
        columns["relation_name"] = [graph.relation_name(i) for i in relations]
        columns["tail_name"] = [graph.name(i) for i in tails]
    return columns


def _columns(names: Sequence[str], *given: str | None) -> list[str]:
    """The columns of head, relation and tail: those given, those with such a name, or the only three."""
    for column in given:
        if column is not None and column not in names:
            raise FewlinkError(f"the frame has no column '{column}': its columns are {', '.join(names)}")
    known = [next((c for c in names if c.lower().encode() in words), None) for words in HEADERS]
    columns = [own or other for own, other in zip(given, known, strict=True)]
    if None in columns and len(names) == 3 and not any(given):
        columns = list(names)
    if twice := next((column for column in columns if column is not None and names.count(column) > 1), None):
        raise FewlinkError(f"the frame has several columns '{twice}': rename all but one of them")
    missing = [end for end, column in zip(ENDS, columns, strict=True) if column is None]
    if missing:
        raise FewlinkError(
            f"the frame has columns {', '.join(names)}: say which is the {missing[0]}, with {missing[0]}='COLUMN'"
        )
    return [column for column in columns if column is not None]


def _rows(columns: Sequence[str], *values: Iterable[Any]) -> Iterator[Triple]:
    """Triples as texts; raises for an empty cell."""
    for number, row in enumerate(zip(*values, strict=True)):
        texts = ["" if value is None else str(value) for value in row]
        if "" in texts:
            raise FewlinkError(f"row {number:,} has an empty {columns[texts.index('')]}: leave such rows out")
        yield texts[0], texts[1], texts[2]


def _linker(graph: Graph, name: str, device: str) -> Linker:
    return Linker.shipped(Benchmark(name, graph, {split: [] for split in SPLITS}), device=device)
