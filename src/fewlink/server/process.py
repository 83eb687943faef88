"""The process of `fewlink serve`: it opens a socket, loads a linker and answers until a signal stops it."""

from __future__ import annotations

import gc
import logging
import logging.handlers
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker
from fewlink.server.app import Extension, make_app
from fewlink.server.schema import ServerSettings
from fewlink.server.security import loopback_hosts

TOKEN_VARIABLE = "FEWLINK_TOKEN"
UVICORN_OPTIONS: dict[str, Any] = {
    "http": "h11",
    "ws": "none",
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "h11_max_incomplete_event_size": 32 << 10,  # bytes of a request's header
    "timeout_keep_alive": 15,  # seconds between two requests of a connection
    "limit_concurrency": 1_000,  # connections, each with a body of at most 1 MiB; beyond them, requests get 503
    "backlog": 1_024,  # connections waiting to be accepted
    "timeout_graceful_shutdown": 5,  # seconds for running requests when the server stops
}
SWITCH_SECONDS = 0.001  # a thread that runs Python code yields to the event loop after this time


def project_file(graph: str) -> Path:
    """The file for decisions on a graph or run: beside it or, if it has no place, in the working folder."""
    source = Path(graph)
    return (source.parent if source.exists() else Path()) / f"{source.name.replace(':', '-')}.decisions"


def serve(
    open_linker: Callable[[], Linker],
    settings: ServerSettings,
    project: Path,
    *,
    host: str,
    port: int,
    extensions: Sequence[Extension] = (),
    access_log: str | None = None,
    allow_anyone: bool = False,
    public_name: str | None = None,
    proxy: str | None = None,
) -> None:
    """Listen, open a linker and answer requests until a signal stops the process.

    access_log    a file, or "-" for standard output
    allow_anyone  serve other machines without a token
    public_name   the name that a proxy passes on in the Host header
    proxy         the address of a proxy, whose X-Forwarded-For header names the client
    """
    hosts = loopback_hosts(host)
    if hosts is None and settings.token is None and not allow_anyone:
        raise FewlinkError(
            f"--host {host} serves other machines: set a token with --token or {TOKEN_VARIABLE}, or serve them "
            "without one with --allow-anyone"
        )
    if hosts is not None and public_name:
        hosts |= {public_name.lower()}
    listener = listen(host, port)
    log = open_log(access_log)
    linker = open_linker()
    linker.names.complete("a", 1)  # builds the search index before the first request
    app = make_app(linker, replace(settings, hosts=hosts), project, extensions=extensions, access_log=log)
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # else each full collection would look at the whole graph, and stop all threads for tenths of a second
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{listener.getsockname()[1]}/"
    print(f"{linker.scorer.name} on {linker.benchmark.name}: {address} (Ctrl-C stops)", file=sys.stderr, flush=True)
    proxied: dict[str, Any] = {"proxy_headers": proxy is not None, "forwarded_allow_ips": proxy}
    uvicorn.Server(uvicorn.Config(app, **UVICORN_OPTIONS, **proxied)).run(sockets=[listener])


def open_log(place: str | None) -> logging.Handler | None:
    """The access log, whose file may be renamed at any time; raise if it cannot be written."""
    if place is None:
        return None
    if place == "-":
        return logging.StreamHandler(sys.stdout)
    try:
        return logging.handlers.WatchedFileHandler(place, encoding="ascii")
    except OSError as error:
        raise FewlinkError(
            f"cannot write the access log to {place} ({error.strerror}): choose another file, or - for standard output"
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raise if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(UVICORN_OPTIONS["backlog"])
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FewlinkError(
            f"cannot listen on {host}, port {port} ({reason}): choose another address with --host or --port"
        ) from None
    return listener
