"""A server process: a socket, a model, and uvicorn between them."""

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
from fewlink.web.settings import Settings

TOKEN, GIVEN = "FEWLINK_TOKEN", "FEWLINK_SERVE"  # environment variables: what a user sets, what workers are told
OPTIONS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "timeout_graceful_shutdown": 30,  # seconds that requests under way have when the server stops
}


@dataclass(frozen=True)
class Place:
    """What to serve, and where."""

    run: str
    bench: str | None = None
    device: str = "cpu"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1


def serve(place: Place, settings: Settings) -> None:
    """Answer requests until the process is told to stop; those under way are finished."""
    settings = replace(settings, hosts=own_hosts(place.host))
    listener = listen(place.host, place.port)
    linker = load(place.run, bench=place.bench, device=place.device)
    linker.names.complete("a", 1)  # what names are searched by is made now, not by the first who asks
    shown = f"[{place.host}]" if ":" in place.host else place.host
    told = f"{linker.scorer.name} on {linker.benchmark.name}: http://{shown}:{listener.getsockname()[1]}/"
    print(f"{told} (Ctrl-C stops)", file=sys.stderr, flush=True)
    if settings.hosts is None and settings.token is None:
        print("note: whoever reaches this machine may ask; --token lets only those in who know it", file=sys.stderr)
    if place.workers == 1:
        uvicorn.Server(uvicorn.Config(make_app(linker, settings), **OPTIONS)).run(sockets=[listener])
        return
    del linker  # each worker loads its own
    given = {"run": place.run, "bench": place.bench, "device": place.device}
    limits = {"heads": settings.heads, "k": settings.k, "hosts": settings.hosts and sorted(settings.hosts)}
    os.environ[GIVEN] = json.dumps({"place": given, "limits": limits})
    if settings.token is not None:
        os.environ[TOKEN] = settings.token
    port = listener.getsockname()[1]
    listener.close()  # the workers' parent opens its own
    app = "fewlink.web.server:from_environment"
    uvicorn.run(app, host=place.host, port=port, factory=True, workers=place.workers, **OPTIONS)


def from_environment(environment: Mapping[str, str] = os.environ) -> Any:
    """The app of a worker process, as `serve` described it."""
    given = json.loads(environment[GIVEN])
    hosts = given["limits"].pop("hosts")
    settings = Settings(**given["limits"], token=environment.get(TOKEN), hosts=hosts and frozenset(hosts))
    return make_app(load(**given["place"]), settings)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a line that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(1024)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FewlinkError(f"cannot listen on {host}, port {port} ({why}): choose others with --host, --port") from None
    return made
