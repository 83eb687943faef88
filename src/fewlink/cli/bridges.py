"""The commands `fewlink mcp`, `fewlink data from-neo4j` and `fewlink data to-neo4j`."""

from __future__ import annotations

from pathlib import Path

import typer

from fewlink.cli import common

URI = typer.Argument(..., metavar="URI", help="Address of the server: neo4j://HOST or bolt://HOST:7687.")
USER = typer.Option(None, envvar="NEO4J_USERNAME", show_envvar=False, help="User name; or set NEO4J_USERNAME.")
PASSWORD = typer.Option(None, envvar="NEO4J_PASSWORD", show_envvar=False, help="Password; better set NEO4J_PASSWORD.")
DATABASE = typer.Option(None, help="Database on the server; by default the user's home database.")
NODE_ID = typer.Option(
    None, "--id", metavar="PROPERTY", help="Property that identifies a node; by default the element id."
)


def mcp(
    source: str = typer.Argument(..., metavar="GRAPH|RUN", help="A graph or a run, as fewlink ask takes it."),
    columns: str = common.COLUMNS,
    literals: str = common.LITERALS,
    on_error: str = common.ON_ERROR,
    types: Path = common.TYPES,
    names: Path = common.NAMES,
    no_names: bool = common.NO_NAMES,
    bench: str = common.MOVED_BENCH,
    device: str = typer.Option("cpu", help="cpu, cuda or cuda:N."),
) -> None:
    """Give an assistant tools to ask a graph or a run, over the Model Context Protocol (MCP).

    The tools find entities, rank missing tails and explain them. MCP clients start this command themselves.

    Example: `fewlink mcp my-graph.tsv`
    """
    from fewlink.core.errors import FewlinkError, MissingExtra
    from fewlink.core.settings import DEVICES, is_device
    from fewlink.tasks.catalogue import check_source

    how = common.how_to_read(columns, on_error, literals)
    if not source.startswith("hub:"):
        check_source(source)
    common.check_files(types, names)
    if not is_device(device):
        raise FewlinkError(f"device '{device}' is not {DEVICES}")
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink mcp", "mcp") from None
    import anyio

    from fewlink.bridges.mcp_server import make_server, run_stdio
    from fewlink.linker import load

    linker = load(source, bench=bench, types=types, names=names, read_names=not no_names, device=device, **how)
    anyio.run(run_stdio, make_server(linker))


def from_neo4j(
    uri: str = URI,
    out: Path = typer.Option(..., help="New folder for the graph."),
    query: str = typer.Option(None, help="Cypher that returns head, relation and tail; by default all relationships."),
    node_id: str = NODE_ID,
    name: str = typer.Option("name", metavar="PROPERTY", help="Property of a node's readable name."),
    user: str = USER,
    password: str = PASSWORD,
    database: str = DATABASE,
) -> None:
    """Read a graph from Neo4j into a folder, with readable names, and with labels as types.

    Example: `fewlink data from-neo4j neo4j://localhost --out my-graph`, then `fewlink ask my-graph …`

    Example: `fewlink data from-neo4j bolt://localhost:7687 --id uuid --query 'MATCH (h:Drug)-[r]->(t) RETURN h, r, t'
    --out drugs`
    """
    from fewlink.bridges.neo4j_graph import connected, read_graph
    from fewlink.core.errors import InputError

    if out.exists():
        raise InputError(out, "exists already: choose another folder")
    with connected(uri, user, password) as driver:
        graph = read_graph(driver, query, id_=node_id, name=name, database=database)
    graph.save(out)
    counts = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, {graph.triple_count:,} triples"
    print(f"{out}: {counts}")


def to_neo4j(
    uri: str = URI,
    links: Path = typer.Argument(..., metavar="FILE", help="File of accepted triples, as the page exports them."),
    node_id: str = NODE_ID,
    user: str = USER,
    password: str = PASSWORD,
    database: str = DATABASE,
) -> None:
    """Write accepted triples to Neo4j as relationships between existing nodes. Existing relationships stay as they are.

    New relationships have the property source: "fewlink".

    Example: `fewlink data to-neo4j neo4j://localhost accepted.tsv`
    """
    from fewlink.bridges.neo4j_graph import connected, write_links
    from fewlink.core.progress import tell
    from fewlink.graph.compile import read_names_of

    triples = read_names_of(links)
    with connected(uri, user, password) as driver:
        written = write_links(driver, triples, id_=node_id, database=database)
    for remark in written.remarks():
        tell(f"note: {remark}")
    print(f"{written.created:,} relationships written, {written.present:,} existed already")
