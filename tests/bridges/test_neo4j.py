"""Neo4j by its official driver, against a server that replays recorded answers over Bolt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.bolt import Refused, Reply, bolt_server, node, relationship
from tests.conftest import named
from typer.testing import CliRunner

from fewlink.bridges.neo4j_graph import connected, default_query, quoted, read_graph, write_links, write_query
from fewlink.cli import app
from fewlink.core.errors import FewlinkError, InputError
from fewlink.graph import Graph

pytest.importorskip("neo4j")

NODES = {
    "4:1": ("Ann", ["Person"]),
    "4:2": ("Oslo", ["City", "Capital"]),
    "4:3": (None, []),
    "4:4": ("Bob", ["Person"]),
}
EDGES = {("4:1", "LIVES_IN", "4:2"), ("4:4", "KNOWS", "4:1"), ("4:1", "LIKES", "4:3")}
KEYS = ["head", "relation", "tail", "head_name", "tail_name", "head_types", "tail_types"]
AS_NODES = "MATCH (a)-[b]->(c) RETURN a, b, c"
PERSONS = [node(1, ["Person"], name="Ann", uuid=71), node(2, ["City"], name="Oslo", uuid="u2")]


class Server:
    """A graph with the answers of Neo4j 5 to these queries."""

    def __init__(self) -> None:
        self.edges = set(EDGES)
        self.queries: list[str] = []

    def __call__(self, query: str, parameters: dict[str, Any]) -> Reply:
        self.queries.append(query)
        if query == default_query(None, "name"):
            rows = [[h, r, t, NODES[h][0], NODES[t][0], NODES[h][1], NODES[t][1]] for h, r, t in sorted(self.edges)]
            return Reply(KEYS, [list(row) for row in rows])
        if query == default_query("uuid", "title"):
            return Reply(KEYS, [["71", "LIVES_IN", "u2", None, None, ["Person"], []]])
        if query == AS_NODES:
            return Reply(["a", "b", "c"], [[PERSONS[0], relationship(5, "LIVES_IN", 1, 2), PERSONS[1]]])
        if query == "RETURN 1 AS one":
            return Reply(["one"], [[1]])
        if query == "gap":
            return Reply(["s", "p", "o"], [["a", "r", "b"], ["a", "r", None]])
        if query == "nothing":
            return Reply(["s", "p", "o"], [])
        if query in (write_query("LIKES", None), write_query("LIKES", "uuid")):
            found = [row for row in parameters["rows"] if row["head"] in NODES and row["tail"] in NODES]
            new = {(row["head"], "LIKES", row["tail"]) for row in found} - self.edges
            self.edges |= new
            return Reply(["place"], [[row["place"]] for row in found], len(new))
        raise Refused(f"Invalid input '{query}'")


@pytest.fixture(autouse=True)
def known_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_PASSWORD", "secret")


@pytest.fixture
def server() -> Iterator[tuple[str, Server]]:
    holder = Server()
    with bolt_server(holder) as address:
        yield address, holder


def read(address: str, *args: Any, **options: Any) -> Graph:
    with connected(address) as driver:
        return read_graph(driver, *args, **options)


def test_all_relationships_with_names_and_labels(server: tuple[str, Server]) -> None:
    assert named(read(server[0].replace("bolt", "neo4j"))) == named(read(server[0]))
    graph = read(server[0])
    assert set(named(graph)) == EDGES
    assert graph.name(graph.entities.id("4:1")) == "Ann" and graph.name(graph.entities.id("4:3")) == "4:3"
    assert graph.types is not None
    members = {kind: [graph.entities[e] for e in graph.types.groups[i]] for i, kind in enumerate(graph.types.names)}
    assert members == {"Person": ["4:1", "4:4"], "City": ["4:2"], "Capital": ["4:2"]}


def test_a_query_returns_texts_or_nodes_and_relationships(server: tuple[str, Server]) -> None:
    graph = read(server[0], AS_NODES)
    assert named(graph) == [("4:1", "LIVES_IN", "4:2")]
    assert graph.name(0) == "Ann" and graph.types is not None
    assert named(read(server[0], AS_NODES, id_="uuid")) == [("71", "LIVES_IN", "u2")]
    assert named(read(server[0], id_="uuid", name="title")) == [("71", "LIVES_IN", "u2")]


@pytest.mark.parametrize(
    ("query", "named"),
    [("RETURN 1 AS one", "AS head"), ("gap", "record 2 "), ("nothing", "triples"), ("MATSCH", "'MATSCH'")],
)
def test_queries_without_triples_raise(server: tuple[str, Server], query: str, named: str) -> None:
    with pytest.raises(FewlinkError, match=named):
        read(server[0], query)


def test_links_are_written_once_and_links_without_nodes_are_reported(server: tuple[str, Server]) -> None:
    address, holder = server
    links = [("4:4", "LIKES", "4:2"), ("4:1", "LIKES", "4:3"), ("4:9", "LIKES", "4:2")]
    with connected(address) as driver:
        written = write_links(driver, links)
        assert (written.created, written.present, written.missing) == (1, 1, [links[2]])
        assert "4:9 → 4:2" in written.remarks()[0]
        again = write_links(driver, links[:1], id_="uuid")
        assert (again.created, again.present, again.remarks()) == (0, 1, [])
    assert ("4:4", "LIKES", "4:2") in holder.edges


def test_names_cannot_break_out_of_a_query() -> None:
    assert quoted("lives in") == "`lives in`"
    for name in ("a`b", "a\\u0060b", ""):
        with pytest.raises(FewlinkError, match=re.escape(f"'{name}'")):
            quoted(name)


def test_a_wrong_password_or_address_raises(server: tuple[str, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_PASSWORD", "wrong")
    for address in (server[0], "bolt://127.0.0.1:1", "localhost"):
        with pytest.raises(FewlinkError, match=address), connected(address):
            pass


def test_the_commands_read_a_graph_and_write_links(server: tuple[str, Server], tmp_path: Path) -> None:
    address, holder = server
    out = tmp_path / "graph"
    done = CliRunner().invoke(app, ["data", "from-neo4j", address, "--out", str(out)])
    assert done.exit_code == 0 and "3 triples" in done.output
    assert set(named(Graph.open(out))) == EDGES
    again = CliRunner().invoke(app, ["data", "from-neo4j", address, "--out", str(out)])
    assert isinstance(again.exception, InputError) and str(out) in str(again.exception)
    (tmp_path / "accepted.tsv").write_text("4:4\tLIKES\t4:2\n4:9\tLIKES\t4:2\n")
    done = CliRunner().invoke(app, ["data", "to-neo4j", address, str(tmp_path / "accepted.tsv")])
    assert done.exit_code == 0 and "1 relationships written, 0 " in done.output
    assert ("4:4", "LIKES", "4:2") in holder.edges
