"""`fewlink serve` and `fewlink mcp`, through which curators, programs and assistants ask a graph."""

from __future__ import annotations

from pathlib import Path

import typer

from fewlink.cli.options import AskedGraph


def serve(
    graph: AskedGraph,
    host: str = typer.Option(
        "127.0.0.1", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 serves other machines, and needs a token."
    ),
    port: int = typer.Option(8000, metavar="NUMBER", help="Port to listen on; 0 chooses a free one."),
    token: str = typer.Option(
        None,
        metavar="TEXT",
        envvar="FEWLINK_TOKEN",
        show_envvar=False,
        help="Token that clients must send; better set FEWLINK_TOKEN.",
    ),
    allow_anyone: bool = typer.Option(
        False,
        "--allow-anyone",
        help="Serve other machines without a token: everyone who reaches the port can use the server.",
    ),
    project: Path = typer.Option(
        None, metavar="FILE", help="File to store decisions in; by default beside the graph or run."
    ),
    access_log: str = typer.Option(
        None, metavar="FILE", help="Append a line of JSON for each request to this file; - for standard output."
    ),
    proxy: str = typer.Option(
        None, metavar="ADDRESS", help="Address of a reverse proxy, whose X-Forwarded-For header names the client."
    ),
    public_name: str = typer.Option(
        None, metavar="NAME", help="Host name that a reverse proxy passes on; by default only local names are accepted."
    ),
) -> None:
    """Serve predictions over HTTP, with a page to review them at / and a description of the interface at /docs.

    OpenRefine reconciles names with the graph's entities at /reconcile, and adds columns of known and predicted tails.

    A graph needs no training: TRAIL answers with the built-in weights. The server stores the decisions of curators in
    a project file (see fewlink project) and writes nothing else. Costly questions do not hold up small ones. To serve
    other people, read docs/deployment.md; /metrics has figures for Prometheus.

    Example: `fewlink serve my-graph.tsv`, or `fewlink serve runs/umls-trail`

    Example: `FEWLINK_TOKEN=secret fewlink serve runs/umls-trail --host 0.0.0.0 --port 80`
    """
    from fewlink.core.errors import FewlinkError, MissingExtra

    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise FewlinkError("--token must be letters and digits")
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink serve", "serve") from None
    from fewlink.bridges import openrefine
    from fewlink.server import ServerSettings
    from fewlink.server.process import project_file
    from fewlink.server.process import serve as run

    run(
        graph.open,
        ServerSettings(token=token),
        project or project_file(graph.graph),
        host=host,
        port=port,
        extensions=(openrefine.install,),
        access_log=access_log,
        allow_anyone=allow_anyone,
        public_name=public_name,
        proxy=proxy,
    )


def mcp(graph: AskedGraph) -> None:
    """Give an assistant tools to ask a graph or a run, over the Model Context Protocol (MCP).

    The tools find entities, rank missing tails and explain them. MCP clients start this command themselves.

    Example: `fewlink mcp my-graph.tsv`
    """
    from fewlink.core.errors import MissingExtra

    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink mcp", "mcp") from None
    from fewlink.bridges.mcp_server import make_server

    make_server(graph.open()).run("stdio")
