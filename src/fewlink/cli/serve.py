"""`fewlink serve`: predictions over HTTP, and a page for curators."""

from __future__ import annotations

from pathlib import Path

import typer

from fewlink.cli import common


def serve(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder, or a folder written by save_pretrained."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 accepts other machines."),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 chooses a free one."),
    token: str = typer.Option(
        None, envvar="FEWLINK_TOKEN", show_envvar=False, help="Token that clients must send; or set FEWLINK_TOKEN."
    ),
    bench: str = common.MOVED_BENCH,
    device: str = common.DEVICE,
    most_heads: int = typer.Option(5_000, min=1, max=100_000, help="Most heads in one request."),
    most_k: int = typer.Option(100, min=1, max=1_000, help="Most tails per head in one request."),
    workers: int = typer.Option(1, min=1, max=64, help="Number of processes, each with its own model."),
) -> None:
    """Serve predictions over HTTP, with a page to review them and an OpenAPI schema at /openapi.json.

    Concurrent requests are scored together. The server writes nothing and accepts no path from a request.

    Example: `fewlink serve runs/umls-trail`

    Example: `FEWLINK_TOKEN=secret fewlink serve runs/umls-trail --host 0.0.0.0 --port 80`
    """
    from fewlink.base.errors import FewlinkError, MissingExtra

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink serve", "serve") from None
    from fewlink.web import ServerSettings
    from fewlink.web.server import ServeOptions, serve

    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise FewlinkError("the token is empty, has spaces around it or is not printable ASCII: use letters or digits")
    options = ServeOptions(str(run), bench, common.resolve_device(device), host, port, workers)
    serve(options, ServerSettings(heads=most_heads, k=most_k, token=token))
