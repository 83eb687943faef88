"""Conversion of graphs from and to pandas, polars and networkx, and of predictions to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.graph import Graph, TypeTable, Vocabulary
from fewlink.graph.columns import usual_columns
from fewlink.graph.name_index import readable
from fewlink.graph.vocabulary import Interner, labels_of
from fewlink.linker import Linker, Predictions
from fewlink.linker.names import Names as EntityNames
from fewlink.linker.predictions import COLUMNS
from fewlink.tasks import Benchmark
from fewlink.tasks.benchmark import SPLITS

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars

ENDS = ("head", "relation", "tail")
RELATION_NAME = "relation_name"
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
    """A linker on the triples of a pandas data frame, with the built-in weights.

    `head`, `relation` and `tail` name the columns. By default, these are the columns with these names (or subject,
    predicate, object, …), or the only three columns. `names` maps ids of entities and relations to readable names; by
    default, these are the columns `head_name`, `relation_name` and `tail_name`, if the frame has them. `types` maps
    entity ids to a type or several.
    """
    by_name = {str(column): column for column in frame.columns}

    def values(column: str) -> list[Any]:
        series = frame[by_name[column]]
        return list(series.astype(object).where(series.notna(), None))

    columns = three_columns([str(column) for column in frame.columns], head, relation, tail)
    return _linker(_graph_of_columns(columns, by_name, values, names, types), "frame", device)


def from_polars(
    frame: polars.DataFrame | polars.LazyFrame,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    names: Names | None = None,
    types: Types | None = None,
    device: str = "cpu",
) -> Linker:
    """A linker on the triples of a polars data frame, lazy or not; see `from_pandas`."""
    present = frame.collect_schema().names()
    columns = three_columns(present, head, relation, tail)
    needed = {name for column in columns for name in (column, f"{column}_name")}
    table = frame.lazy().select([name for name in present if name in needed]).collect()

    def values(column: str) -> list[Any]:
        return list(table.get_column(column).to_list())

    return _linker(_graph_of_columns(columns, present, values, names, types), "frame", device)


def three_columns(
    names: Sequence[str], head: str | None = None, relation: str | None = None, tail: str | None = None
) -> list[str]:
    """The columns of head, relation and tail: the chosen ones, columns with usual names, or the only three."""
    chosen = [head, relation, tail]
    listed = ", ".join(names)
    for column in chosen:
        if column is not None and column not in names:
            raise FewlinkError(f"there is no column '{column}': the columns are {listed}")
    found = [choice or usual for choice, usual in zip(chosen, usual_columns(names), strict=True)]
    if None in found and len(names) == 3 and not any(chosen):
        found = list(names)
    for end, column in zip(ENDS, found, strict=True):
        if column is None:
            raise FewlinkError(f"the columns are {listed}: name the {end} with {end}='COLUMN', or AS {end} in a query")
        if names.count(column) > 1:
            raise FewlinkError(f"there are several columns '{column}': rename all but one of them")
    return [column for column in found if column is not None]


def _graph_of_columns(
    columns: Sequence[str],
    present: Collection[str],
    values: Callable[[str], list[Any]],
    names: Names | None,
    types: Types | None,
) -> Graph:
    """The graph of three columns, with the readable names that stand beside them unless others are given."""
    cells = [["" if value is None else str(value) for value in values(column)] for column in columns]
    for column, texts in zip(columns, cells, strict=True):
        if "" in texts:
            raise FewlinkError(f"row {texts.index(''):,} has an empty {column}: drop rows with empty cells")
    if names is None:
        told: dict[str, str] = {}
        for column, texts in zip(columns, cells, strict=True):
            if f"{column}_name" in present:
                shown = values(f"{column}_name")
                told |= {key: str(name) for key, name in zip(texts, shown, strict=True) if name is not None}
        names = _told(told)
    return graph_of(zip(*cells, strict=True), names, types)


def _told(names: Names) -> dict[str, str]:
    """The readable names that differ from what their ids already say."""
    return {key: name for key, name in names.items() if name and name != readable(key)}


def from_networkx(
    graph: networkx.DiGraph,
    *,
    relation: str = "relation",
    name: str = "name",
    type: str = "type",
    device: str = "cpu",
) -> Linker:
    """A linker on a directed networkx graph, with the built-in weights.

    The relation of an edge is its attribute `relation`, or else its key in a MultiDiGraph, if that is a string. The
    nodes' attributes `name` and `type` (one type or several; more of them in `type_2`, `type_3`, …) become readable
    names and types, and the edges' attributes `relation_name` the readable names of relations.
    """
    if not graph.is_directed():
        raise FewlinkError("the graph is undirected, so its edges have no heads: use a DiGraph or a MultiDiGraph")
    ids = [str(node) for node in graph.nodes]
    if len(set(ids)) < len(ids):
        raise FewlinkError("two nodes have the same name as strings, such as 1 and '1': relabel one of them")
    names = {str(node): str(data[name]) for node, data in graph.nodes(data=True) if data.get(name) is not None}
    all_types = {str(node): _types_in(data, type) for node, data in graph.nodes(data=True)}
    types = {node: found for node, found in all_types.items() if found}
    for _, _, data in graph.edges(data=True):
        if data.get(relation) is not None and data.get(RELATION_NAME) is not None:
            names[str(data[relation])] = str(data[RELATION_NAME])
    return _linker(graph_of(_edges(graph, relation), _told(names), types), "graph", device)


def _types_in(data: Mapping[str, Any], attribute: str) -> list[Any]:
    """The types of a node: the values of the attribute, and of the same with `_2`, `_3`, … appended."""
    types: list[Any] = []
    key = attribute
    number = 1
    while data.get(key) is not None:
        types += _several(data[key])
        number += 1
        key = f"{attribute}_{number}"
    return types


def _several(value: Any) -> Iterable[Any]:
    """The items of a collection; any other value, including a text, is the only item."""
    return [value] if isinstance(value, str) or not isinstance(value, Iterable) else value


def _edges(graph: networkx.DiGraph, relation: str) -> Iterator[Triple]:
    edges = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    for head, tail, *key, data in edges:
        label = data.get(relation)
        if relation not in data and key and isinstance(key[0], str):
            label = key[0]
        if label is None:
            raise FewlinkError(
                f"the edge {head} → {tail} has no attribute '{relation}': "
                "name the attribute that holds the relation with relation=…"
            )
        yield str(head), str(label), str(tail)


def to_pandas(source: Linker | Graph | Predictions) -> pandas.DataFrame:
    """Predictions, or the triples of a graph with their readable names, as a pandas data frame."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas", "pandas") from None
    if isinstance(source, Predictions):
        return source.to_pandas()
    return pandas.DataFrame(triples_of(source))


def to_polars(source: Linker | Graph | Predictions) -> polars.DataFrame:
    """Predictions with their reasons as text, or the triples of a graph, as a polars data frame."""
    try:
        import polars
    except ImportError:
        raise MissingExtra("to_polars", "polars") from None
    if not isinstance(source, Predictions):
        return polars.DataFrame(triples_of(source))
    columns = [column for column in COLUMNS if column != "reasons"]
    values: dict[str, list[Any]] = {column: [getattr(row, column) for row in source] for column in columns}
    if any(row.reasons for row in source):
        values["reasons"] = ["; ".join(row.reasons.lines()) if row.reasons else None for row in source]
    kinds: dict[str, Any] = dict.fromkeys(values, polars.String)
    kinds |= dict.fromkeys(("rank", "score", "probability"), polars.Float64)
    kinds |= dict.fromkeys(("known", "in_set"), polars.Boolean)
    return polars.DataFrame(values, schema=kinds)


def to_networkx(source: Linker | Graph | Predictions, relation: str = "predicted") -> networkx.MultiDiGraph:
    """A graph as a networkx MultiDiGraph, or predictions as edges with rank, score and probability.

    Edges have their relation as key. Nodes have a `name` and, if the source is a graph, a `type`; further types of a
    node are `type_2`, `type_3`, … All values are plain, so that networkx can write the graph to a file, and
    `from_networkx` reads the same graph.
    """
    try:
        import networkx
    except ImportError:
        raise MissingExtra("to_networkx", "networkx") from None
    made = networkx.MultiDiGraph()
    if isinstance(source, Predictions):
        for row in source:
            made.add_node(row.head, name=row.head_name)
            made.add_node(row.tail, name=row.tail_name)
            chance = {} if row.probability is None else {"probability": row.probability}
            facts = {"relation": relation, "rank": row.rank, "score": row.score, **chance, "known": row.known}
            made.add_edge(row.head, row.tail, key=relation, **facts)
        return made
    graph = source.graph if isinstance(source, Linker) else source
    names = EntityNames(graph)
    for number, entity in enumerate(graph.entities):
        types = {f"type_{place}" if place > 1 else "type": kind for place, kind in enumerate(names.types_of(number), 1)}
        made.add_node(entity, name=graph.name(number), **types)
    ids = list(graph.entities)
    relations = list(graph.relations)
    readable_names = [graph.relation_name(number) for number in range(len(relations))]
    for head, number, tail in graph.triples().tolist():
        name = {} if graph.labels is None else {RELATION_NAME: readable_names[number]}
        made.add_edge(ids[head], ids[tail], key=relations[number], relation=relations[number], **name)
    return made


def graph_of(triples: Iterable[Triple], names: Names | None = None, types: Types | None = None) -> Graph:
    """The graph of these triples, with readable names and types (one or several) by entity id."""
    entities = Interner()
    relations = Interner()
    ids = [
        (entities[head.encode()], relations[relation.encode()], entities[tail.encode()])
        for head, relation, tail in triples
    ]
    if not ids:
        raise FewlinkError("the source has no triples: add at least one")
    entity_names = Vocabulary.of(entities)
    relation_names = Vocabulary.of(relations)
    table = _type_table(entity_names, types) if types else None
    labels = labels_of(entity_names, relation_names, names) if names else None
    return Graph.of(entity_names, relation_names, np.array(ids, np.int32), types=table, labels=labels)


def _type_table(entities: Vocabulary, types: Types) -> TypeTable:
    """The types of the graph's entities; other entities are ignored. A value that is no collection is one type."""
    type_names = Interner()
    owners: list[int] = []
    members: list[int] = []
    for entity, value in types.items():
        number = entities.find(entity)
        if number is None:
            continue
        for type_name in _several(value):
            owners.append(number)
            members.append(type_names[str(type_name).encode()])
    return TypeTable.of(type_names, np.array(owners, np.int32), np.array(members, np.int32), len(entities))


def triples_of(source: Linker | Graph) -> dict[str, list[str]]:
    """The columns head, relation and tail, in the order of the graph's file, and readable names if it has any."""
    graph = source.graph if isinstance(source, Linker) else source
    heads, relations, tails = graph.triples().T.tolist()
    entities = list(graph.entities)
    names = list(graph.relations)
    columns = {
        "head": [entities[i] for i in heads],
        "relation": [names[i] for i in relations],
        "tail": [entities[i] for i in tails],
    }
    if graph.labels is not None:
        columns["head_name"] = [graph.name(i) for i in heads]
        columns["relation_name"] = [graph.relation_name(i) for i in relations]
        columns["tail_name"] = [graph.name(i) for i in tails]
    return columns


def _linker(graph: Graph, name: str, device: str) -> Linker:
    return Linker.shipped(Benchmark(name, graph, {split: [] for split in SPLITS}), device=device)
