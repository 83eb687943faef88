"""The server process: a listening socket, a loaded model, and uvicorn."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import uvicorn

from fewlink.base.errors import FewlinkError
from fewlink.prediction import load
from fewlink.web.app import make_app
from fewlink.web.middleware import own_hosts
from fewlink.web.schema import ServerSettings

TOKEN, GIVEN = "FEWLINK_TOKEN", "FEWLINK_SERVE"  # environment variables: of the user, and for the workers
OPTIONS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "timeout_graceful_shutdown": 30,  # seconds for pending requests when the server stops
}


@dataclass(frozen=True)
class ServeOptions:
    """The run to serve, and the address to serve it at."""

    run: str
    bench: str | None = None
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1


def serve(options: ServeOptions, settings: ServerSettings) -> None:
    """Answer requests until the process is stopped; pending ones are finished."""
    settings = replace(settings, hosts=own_hosts(options.host))
    listener = listen(options.host, options.port)
    linker = load(options.run, bench=options.bench, device=options.device)
    linker.names.complete("a", 1)  # builds the search index before the first request
    host = f"[{options.host}]" if ":" in options.host else options.host
    title = f"{linker.scorer.name} on {linker.benchmark.name}: http://{host}:{listener.getsockname()[1]}/"
    print(f"{title} (Ctrl-C stops)", file=sys.stderr, flush=True)
    if settings.hosts is None and settings.token is None:
        print(
            "note: anyone who can reach this machine can send requests; set --token to restrict access", file=sys.stderr
        )
    if options.workers == 1:
        uvicorn.Server(uvicorn.Config(make_app(linker, settings), **OPTIONS)).run(sockets=[listener])
        return
    del linker  # each worker loads its own
    place = {"run": options.run, "bench": options.bench, "device": options.device}
    limits = {"heads": settings.heads, "k": settings.k, "hosts": settings.hosts and sorted(settings.hosts)}
    os.environ[GIVEN] = json.dumps({"place": place, "limits": limits})
    if settings.token is not None:
        os.environ[TOKEN] = settings.token
    port = listener.getsockname()[1]
    listener.close()  # uvicorn opens it again for the workers
    app = "fewlink.web.server:from_environment"
    uvicorn.run(app, host=options.host, port=port, factory=True, workers=options.workers, **OPTIONS)


def from_environment(environment: Mapping[str, str] = os.environ) -> Any:
    """The app of a worker process, from the environment that `serve` has set."""
    given = json.loads(environment[GIVEN])
    hosts = given["limits"].pop("hosts")
    settings = ServerSettings(**given["limits"], token=environment.get(TOKEN), hosts=hosts and frozenset(hosts))
    return make_app(load(**given["place"]), settings)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FewlinkError(
            f"cannot listen on {host}, port {port} ({reason}): choose others with --host, --port"
        ) from None
    return listener
