"""The process of `fewlink serve`: it opens a socket, loads a linker and answers until a signal stops it."""

from __future__ import annotations

import gc
import logging
import logging.handlers
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from fewlink.core.errors import FewlinkError
from fewlink.graph.source import GraphSource
from fewlink.linker import Linker, load
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


@dataclass(frozen=True)
class ServeOptions:
    """The graph or model to serve, and where and how."""

    source: GraphSource
    read_names: bool = True  # whether the names of entities are evidence
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    project: Path | None = None
    extensions: tuple[Extension, ...] = ()
    access_log: str | None = None  # a file, or "-" for standard output
    allow_anyone: bool = False  # serve other machines without a token
    public_name: str | None = None  # the name that a proxy passes on in the Host header
    proxy: str | None = None  # the address of a proxy, whose X-Forwarded-For header names the client

    @property
    def project_file(self) -> Path:
        """The file for decisions: by default beside the graph or run, else in the working folder."""
        if self.project is not None:
            return self.project
        source = Path(self.source.file)
        return (source.parent if source.exists() else Path()) / f"{source.name.replace(':', '-')}.decisions"


def serve(options: ServeOptions, settings: ServerSettings) -> None:
    """Load a linker and answer requests until a signal stops the process."""
    hosts = loopback_hosts(options.host)
    if hosts is None and settings.token is None and not options.allow_anyone:
        raise FewlinkError(
            f"--host {options.host} serves other machines: set a token with --token or {TOKEN_VARIABLE}, or serve them "
            "without one with --allow-anyone"
        )
    if hosts is not None and options.public_name:
        hosts |= {options.public_name.lower()}
    settings = replace(settings, hosts=hosts)
    listener = listen(options.host, options.port)
    log = open_log(options.access_log)
    linker = load(options.source, read_names=options.read_names, device=options.device)
    linker.names.complete("a", 1)  # builds the search index before the first request
    host = f"[{options.host}]" if ":" in options.host else options.host
    title = f"{linker.scorer.name} on {linker.benchmark.name}: http://{host}:{listener.getsockname()[1]}/"
    own: dict[str, Any] = {
        **UVICORN_OPTIONS,
        "proxy_headers": options.proxy is not None,
        "forwarded_allow_ips": options.proxy,
    }
    print(f"{title} (Ctrl-C stops)", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(process_app(linker, options, settings, log), **own)).run(sockets=[listener])


def process_app(
    linker: Linker, options: ServeOptions, settings: ServerSettings, log: logging.Handler | None
) -> FastAPI:
    """The app of a process that runs nothing else. Its event loop stays responsive while threads compute."""
    app = make_app(
        linker,
        settings,
        options.project_file,
        extensions=options.extensions,
        access_log=log,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # else each full collection would look at the whole graph, and stop all threads for tenths of a second
    return app


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
