"""The process of a server: its socket, the limits it runs under, and its end within seconds of a signal."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import random
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import uvicorn

from fewlink.core.errors import FewlinkError
from fewlink.server.connections import ConnectionLimits
from fewlink.server.logs import limit_repeats
from fewlink.server.protocol import UNFINISHED, GuardedProtocol

LIMITS = ConnectionLimits()
OPTIONS: dict[str, Any] = {  # of uvicorn
    "http": GuardedProtocol,
    "ws": "none",
    "lifespan": "on",
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "backlog": 16,  # connections that are accepted in one turn of the event loop
    "h11_max_incomplete_event_size": LIMITS.header,
    "timeout_keep_alive": int(LIMITS.idle_seconds),
    "timeout_graceful_shutdown": 6,  # seconds for pending requests when the server stops
}
READY, SLOW = 32, 8  # sockets that are read in one turn of the event loop: others, and those of unfinished requests
T = TypeVar("T")
BACKLOG = 1024  # connections that wait to be accepted
LAST = 9.0  # seconds after which a stopping process ends whatever it does
SWITCH = 0.001  # seconds after which a thread that computes in Python lets the event loop have a turn
ARENA_MAX, TRIM_THRESHOLD = -8, -1  # as numbered in malloc.h
ARENAS, MOST_FREE = 2, 64 << 20  # heaps of the C library, and bytes that may stay free: a server runs for months
ENDED = 143  # the exit code of a process that SIGTERM ended


class ShortTurns(selectors.DefaultSelector):
    """Gives the event loop a few of the ready sockets at a time, by chance if there are more.

    An answer takes several turns of the loop, and each would wait for all sockets that sent something. Few of those at
    a time have sent a part of a request before: who sends it in one piece need not wait for them.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        if len(ready) <= READY:
            return ready
        slow = [one for one in ready if one[0].fd in UNFINISHED]
        others = [one for one in ready if one[0].fd not in UNFINISHED]
        return [*_some(others, READY), *_some(slow, SLOW)]


def _some(items: list[T], most: int) -> list[T]:
    return items if len(items) <= most else random.sample(items, most)


class Server(uvicorn.Server):
    """Turns of its event loop are short, and more connections may wait to be accepted than are in one turn."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(ShortTurns())) as runner:
            runner.run(self.serve(sockets=sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        for one in sockets or ():
            one.listen(BACKLOG)


def prepare() -> None:
    """Settings of a process that serves, once its model is loaded: threads have short turns and share their freed
    memory, what exists already is not searched for garbage, and repeated log messages are limited."""
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # a full collection would hold all threads for tenths of a second
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(ARENA_MAX, ARENAS)
        library.mallopt(TRIM_THRESHOLD, MOST_FREE)
    limit_repeats("uvicorn.error", "asyncio")


def end_soon(seconds: float = LAST, end: Callable[[int], Any] = os._exit) -> None:
    """End this process after some seconds, even if a thread still computes."""
    timer = threading.Timer(seconds, end, (ENDED,))
    timer.daemon = True
    timer.start()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FewlinkError(
            f"cannot listen on {host}, port {port} ({reason}): choose others with --host, --port"
        ) from None
    return listener
