"""Reads a graph from Neo4j and writes accepted links back, with the official driver."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fewlink.bridges.frames import ENDS, graph_of, three_columns
from fewlink.core.errors import FewlinkError, MissingExtra
from fewlink.graph import Graph

SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
TRANSACTION_LINKS = 1_000  # large enough that transactions cost little, small enough for the memory of any server
MAX_LISTED_LINKS = 5  # in a remark
QUOTABLE = re.compile(r"[^`\\]+")


@contextmanager
def connected(uri: str) -> Iterator[Any]:
    """A driver that is connected to the server; its errors become one-line errors.

    The environment variables NEO4J_USERNAME, by default neo4j, and NEO4J_PASSWORD are used if there is a password.
    """
    if uri.partition("://")[0] not in SCHEMES:
        raise FewlinkError(
            f"'{uri}' is not the address of a Neo4j server: write it as neo4j://HOST or bolt://HOST:7687"
        )
    try:
        import neo4j
        from neo4j.exceptions import DriverError, Neo4jError
    except ImportError:
        raise MissingExtra("reading and writing Neo4j", "neo4j") from None
    password = os.environ.get("NEO4J_PASSWORD")
    user = os.environ.get("NEO4J_USERNAME", "neo4j")
    try:
        with neo4j.GraphDatabase.driver(uri, auth=(user, password) if password else None) as driver:
            driver.verify_connectivity()
            yield driver
    except (DriverError, Neo4jError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise FewlinkError(f"Neo4j at {uri}: {reason.splitlines()[0]}") from None


def read_graph(
    driver: Any, query: str | None = None, *, id_: str | None = None, name: str = "name", database: str | None = None
) -> Graph:
    """The graph that a query returns, by default all relationships; labels of nodes become types.

    The query returns the columns head, relation and tail (or subject, predicate, object), or three columns in this
    order, with nodes and relationships or strings as values. It may add head_name, tail_name, head_types and
    tail_types. `id_` is the property that identifies a node, by default Neo4j's element id; `name` is the property
    with its readable name.
    """
    reader = _Reader(id_, name)
    with driver.session(database=database, default_access_mode="READ") as session:
        result = session.run(query or default_query(id_, name))
        triples = reader.triples(result, list(result.keys()))
        try:
            return graph_of(triples, reader.names, reader.types)  # the reader fills both while it yields triples
        except FewlinkError as error:
            raise FewlinkError(f"Neo4j query: {error}") from None


def default_query(id_: str | None, name: str) -> str:
    """The query for all relationships, with the names and labels of their nodes."""
    columns = [
        f"{_identity('h', id_)} AS head",
        "type(r) AS relation",
        f"{_identity('t', id_)} AS tail",
        f"h.{quoted(name)} AS head_name",
        f"t.{quoted(name)} AS tail_name",
        "labels(h) AS head_types",
        "labels(t) AS tail_types",
    ]
    return f"MATCH (h)-[r]->(t) RETURN {', '.join(columns)}"


def _identity(node: str, id_: str | None) -> str:
    return f"elementId({node})" if id_ is None else f"toString({node}.{quoted(id_)})"


def quoted(name: str) -> str:
    """The name of a property or relationship, quoted for a query."""
    if not QUOTABLE.fullmatch(name):
        raise FewlinkError(f"'{name}' cannot be quoted in a Neo4j query: rename it without ` and \\")
    return f"`{name}`"


class _Reader:
    """Turns records into triples, and collects the names and types of nodes."""

    def __init__(self, id_: str | None, name: str) -> None:
        self.id = id_
        self.name = name
        self.names: dict[str, str] = {}
        self.types: dict[str, tuple[str, ...]] = {}

    def triples(self, records: Iterable[Any], keys: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        columns = three_columns(keys)
        for number, record in enumerate(records, 1):
            head, relation, tail = (record[column] for column in columns)
            texts = (self._node(head), str(getattr(relation, "type", relation) or ""), self._node(tail))
            if "" in texts:
                raise FewlinkError(
                    f"record {number:,} has no {ENDS[texts.index('')]}: add a condition, such as WHERE … IS NOT NULL"
                )
            for end, text in (("head", texts[0]), ("tail", texts[2])):
                if f"{end}_name" in keys and record[f"{end}_name"] is not None:
                    self.names[text] = str(record[f"{end}_name"])
                if f"{end}_types" in keys and record[f"{end}_types"]:
                    self.types[text] = tuple(record[f"{end}_types"])
            yield texts

    def _node(self, value: Any) -> str:
        """The id of a node; a string stays as it is."""
        if not hasattr(value, "element_id"):
            return "" if value is None else str(value)
        text = str(value.element_id if self.id is None else value.get(self.id) or "")
        name = value.get(self.name)
        if name is not None:
            self.names[text] = str(name)
        if value.labels:
            self.types[text] = tuple(sorted(value.labels))
        return text


@dataclass(frozen=True)
class Written:
    """The number of new links, the number of links that existed, and the links without nodes in Neo4j."""

    created: int
    present: int
    missing: list[tuple[str, str, str]]

    def remarks(self) -> list[str]:
        """A remark about links without nodes in Neo4j."""
        if not self.missing:
            return []
        some = "; ".join(f"{head} → {tail}" for head, _, tail in self.missing[:MAX_LISTED_LINKS])
        more = "; …" if len(self.missing) > MAX_LISTED_LINKS else ""
        return [f"{len(self.missing):,} links were not written, because Neo4j lacks the head or the tail: {some}{more}"]


def write_links(
    driver: Any, links: Sequence[tuple[str, str, str]], *, id_: str | None = None, database: str | None = None
) -> Written:
    """Write links (head, relation, tail) as relationships between existing nodes, 1,000 in a transaction.

    New relationships have the property `source: "fewlink"`. Existing relationships stay as they are.
    """
    created = 0
    missing: list[tuple[str, str, str]] = []
    queries = {relation: write_query(relation, id_) for _, relation, _ in links}  # checks every name before writing
    with driver.session(database=database) as session:
        for relation, query in queries.items():
            own = [link for link in links if link[1] == relation]
            for begin in range(0, len(own), TRANSACTION_LINKS):
                batch = own[begin : begin + TRANSACTION_LINKS]
                rows = [{"place": place, "head": head, "tail": tail} for place, (head, _, tail) in enumerate(batch)]
                found, new = session.execute_write(_write, query, rows)
                created += new
                missing += [link for place, link in enumerate(batch) if place not in found]
    return Written(created, len(links) - len(missing) - created, missing)


def write_query(relation: str, id_: str | None) -> str:
    """The query that writes the links `$rows` of a relation."""
    match = "elementId({0}) = row.{1}" if id_ is None else f"{{0}}.{quoted(id_)} IN [row.{{1}}, toInteger(row.{{1}})]"
    return (
        f"UNWIND $rows AS row MATCH (h) WHERE {match.format('h', 'head')} MATCH (t) WHERE {match.format('t', 'tail')} "
        f"MERGE (h)-[r:{quoted(relation)}]->(t) ON CREATE SET r.source = 'fewlink' RETURN DISTINCT row.place AS place"
    )


def _write(transaction: Any, query: str, rows: list[dict[str, Any]]) -> tuple[set[int], int]:
    """Write rows; return the places of those whose nodes exist, and the number of new relationships."""
    result = transaction.run(query, rows=rows)
    found = {record["place"] for record in result}
    return found, int(result.consume().counters.relationships_created)
