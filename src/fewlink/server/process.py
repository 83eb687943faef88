"""The process of `fewlink serve`: it opens a socket, starts workers, and exits within seconds of a signal."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker, load
from fewlink.server.app import make_app
from fewlink.server.connections import UVICORN_OPTIONS
from fewlink.server.logs import AccessLog
from fewlink.server.schema import ServerSettings
from fewlink.server.security import loopback_hosts

TOKEN_VARIABLE = "FEWLINK_TOKEN"
WORKER_VARIABLE = "FEWLINK_SERVE"  # set by `serve` for its worker processes
BACKLOG = 1_024  # connections waiting to be accepted
SWITCH_SECONDS = 0.001  # a thread that runs Python code yields to the event loop after this time
RESPONSE_SECONDS = 2.0  # to send the last responses when the server stops, after `ServerSettings.drain`
EXIT_SECONDS = 4.0  # a stopping process exits so long after `ServerSettings.drain`, whatever its threads do
FIRST_PASSED_FILE = 3  # SD_LISTEN_FDS_START
EXIT_CODE = 143  # the shell's code for SIGTERM
M_TRIM_THRESHOLD = -1
M_ARENA_MAX = -8  # parameters of mallopt, from malloc.h
MAX_ARENAS = 2
TRIM_BYTES = 64 << 20
TRIM_SECONDS = 20.0  # after which freed memory goes back to the system again


@dataclass(frozen=True)
class ServeOptions:
    """The arguments of `fewlink.load`, and how to serve the linker that it returns."""

    source: str
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    bench: str | None = None
    types: str | None = None
    names: str | None = None
    read_names: bool = True
    columns: str | None = None
    on_error: str = "stop"
    literals: str = "drop"
    project: str | None = None
    extensions: tuple[str, ...] = ()
    graphs: str | None = None  # a folder for files that visitors open
    access_log: str | None = None
    allow_anyone: bool = False  # serve other machines without a token
    public_name: str | None = None  # the name that a proxy passes on in the Host header
    proxy: str | None = None  # the address of a proxy, whose X-Forwarded-For header names the client

    @property
    def project_file(self) -> Path:
        """The file for decisions: by default beside the graph or run, else in the working folder."""
        if self.project is not None:
            return Path(self.project)
        source = Path(self.source)
        return (source.parent if source.exists() else Path()) / f"{source.name.replace(':', '-')}.decisions"

    def load(self) -> Linker:
        linker = load(
            self.source,
            bench=self.bench,
            types=self.types,
            names=self.names,
            read_names=self.read_names,
            columns=self.columns,
            on_error=self.on_error,
            literals=self.literals,
            device=self.device,
        )
        linker.names.complete("a", 1)  # builds the search index before the first request
        return linker


def serve(options: ServeOptions, settings: ServerSettings) -> None:
    """Load a linker and answer requests until a signal stops the process."""
    listener = inherited_listener(os.environ)
    if listener is not None:
        if options.workers > 1:
            raise FewlinkError("a socket that is passed on serves one process: leave out --workers")
        options = replace(options, host=listener.getsockname()[0])
    hosts = loopback_hosts(options.host)
    if hosts is None and settings.token is None and not options.allow_anyone:
        raise FewlinkError(
            f"--host {options.host} serves other machines: set a token with --token or {TOKEN_VARIABLE}, or serve them "
            "without one with --allow-anyone"
        )
    if hosts is not None and options.public_name:
        hosts |= {options.public_name.lower()}
    settings = replace(settings, hosts=hosts)
    listener = listener or listen(options.host, options.port)
    port = listener.getsockname()[1]
    log = None if options.access_log is None else AccessLog(options.access_log)
    linker = options.load()
    host = f"[{options.host}]" if ":" in options.host else options.host
    title = f"{linker.scorer.name} on {linker.benchmark.name}: http://{host}:{port}/"
    uvicorn_options = {
        **UVICORN_OPTIONS,
        "backlog": BACKLOG,
        "proxy_headers": options.proxy is not None,
        "forwarded_allow_ips": options.proxy,
        "timeout_graceful_shutdown": math.ceil(settings.drain + RESPONSE_SECONDS),
    }
    if options.workers == 1:
        app = make_process_app(linker, options, settings, log)
        print(f"{title} (Ctrl-C stops)", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, **uvicorn_options)).run(sockets=[listener])
        return
    print(f"{title} (Ctrl-C stops; {options.workers} processes)", file=sys.stderr, flush=True)
    if log is not None:
        log.close()  # each worker opens its own
    del linker
    os.environ[WORKER_VARIABLE] = worker_config(options, settings)
    if settings.token is not None:
        os.environ[TOKEN_VARIABLE] = settings.token
    listener.close()  # uvicorn opens it again for the workers
    uvicorn.run(
        "fewlink.server.process:worker_app",
        host=options.host,
        port=port,
        factory=True,
        workers=options.workers,
        **uvicorn_options,
    )


def worker_config(options: ServeOptions, settings: ServerSettings) -> str:
    """The options and settings of a worker process as JSON, without the token."""
    limits = {**asdict(settings), "token": None, "hosts": settings.hosts and sorted(settings.hosts)}
    return json.dumps({"options": asdict(options), "settings": limits})


def read_worker_config(environment: Mapping[str, str]) -> tuple[ServeOptions, ServerSettings]:
    """The options and settings that `serve` put into the environment."""
    config = json.loads(environment[WORKER_VARIABLE])
    options = config["options"]
    limits = config["settings"]
    options["extensions"] = tuple(options["extensions"])
    limits["references"] = tuple(map(tuple, limits["references"]))
    limits["hosts"] = None if limits["hosts"] is None else frozenset(limits["hosts"])
    limits["token"] = environment.get(TOKEN_VARIABLE)
    return ServeOptions(**options), ServerSettings(**limits)


def worker_app() -> FastAPI:
    """The app of a worker process."""
    options, settings = read_worker_config(os.environ)
    log = None if options.access_log is None else AccessLog(options.access_log)
    return make_process_app(options.load(), options, settings, log)


def make_process_app(linker: Linker, options: ServeOptions, settings: ServerSettings, log: AccessLog | None) -> FastAPI:
    """An app for a process that runs nothing else."""
    app = make_app(
        linker,
        settings,
        options.project_file,
        extensions=options.extensions,
        graphs=None if options.graphs is None else Path(options.graphs),
        access_log=log,
        on_stop=lambda: exit_soon(settings.drain + EXIT_SECONDS),
    )
    tune_process()
    return app


def tune_process() -> None:
    """Keep the event loop responsive, and keep memory from growing over months.

    Threads yield often, the garbage collector skips the loaded graph and model, threads share freed memory, and it goes
    back to the system: else it would lie in ever more gaps between the arrays that are kept.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # else a full collection would stop all threads for tenths of a second
    with contextlib.suppress(OSError, AttributeError):  # the C library has no mallopt or malloc_trim
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, MAX_ARENAS)
        library.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        trim_every(TRIM_SECONDS, library.malloc_trim)


def trim_every(seconds: float, trim: Callable[[int], Any]) -> threading.Thread:
    """Give freed memory back to the system again and again, in a thread."""

    def run() -> None:
        while True:
            time.sleep(seconds)
            trim(0)

    thread = threading.Thread(target=run, name="fewlink-trim", daemon=True)
    thread.start()
    return thread


def exit_soon(seconds: float, exit: Callable[[int], Any] = os._exit) -> None:
    """Exit after some seconds, even if a thread is still computing."""
    timer = threading.Timer(seconds, exit, (EXIT_CODE,))
    timer.daemon = True
    timer.start()


def inherited_listener(environment: MutableMapping[str, str]) -> socket.socket | None:
    """The listening socket that the parent process passes on, as systemd's sd_listen_fds(3) defines it, or None.

    Such a socket outlives the process: connections wait in it until the next process accepts them.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = environment.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        environment.pop(name, None)  # they are not meant for processes that this one starts
    try:
        listener = socket.socket(fileno=FIRST_PASSED_FILE)
        if count != "1" or listener.family not in (socket.AF_INET, socket.AF_INET6):
            raise OSError
        if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError
    except OSError:
        raise FewlinkError("the parent process must pass on one TCP socket that listens (LISTEN_FDS=1)") from None
    return listener


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raise if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FewlinkError(
            f"cannot listen on {host}, port {port} ({reason}): choose another address with --host or --port"
        ) from None
    return listener
