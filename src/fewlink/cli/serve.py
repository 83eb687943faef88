"""`fewlink serve`: predictions over HTTP, and a page for curators."""

from __future__ import annotations

from pathlib import Path

import typer


def serve(
    run: Path = typer.Argument(..., metavar="RUN", help="A run of fewlink train, or a folder of save_pretrained."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 lets other machines ask."),
    port: int = typer.Option(8000, min=0, max=65535, help="Port to listen on; 0 takes a free one."),
    token: str = typer.Option(
        None, envvar="FEWLINK_TOKEN", show_envvar=False, help="Who asks must send it; or set FEWLINK_TOKEN."
    ),
    bench: str = typer.Option(None, help="Where the run's benchmark is, if it is not where it was."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    most_heads: int = typer.Option(5_000, min=1, max=100_000, help="Heads that one request may ask about."),
    most_k: int = typer.Option(100, min=1, max=1_000, help="Tails of each head that one request may ask for."),
    workers: int = typer.Option(1, min=1, max=64, help="Processes, each with a model of its own."),
) -> None:
    """Serve predictions over HTTP, with a page to go through them and an OpenAPI schema at /openapi.json.

    Requests that come at the same time are scored together. Nothing is written, and no path is taken from a request.

    Example: `fewlink serve runs/umls-trail`

    Example: `FEWLINK_TOKEN=secret fewlink serve runs/umls-trail --host 0.0.0.0 --port 80`
    """
    from fewlink.base.errors import FewlinkError, MissingExtra

    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra("fewlink serve", "serve") from None
    from fewlink.cli.training import working_device
    from fewlink.web import Settings
    from fewlink.web.server import ServeOptions, serve

    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise FewlinkError("the token is empty or has spaces around it or odd characters: take ASCII letters or digits")
    options = ServeOptions(str(run), bench, working_device(device), host, port, workers)
    serve(options, Settings(heads=most_heads, k=most_k, token=token))
