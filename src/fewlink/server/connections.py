"""HTTP connections with time limits, so that slow or silent clients cannot keep others out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ON_STOP = "on_stop"  # key in the lifespan state: a function to call when the server begins to stop
MAX_CONNECTIONS = 2_000
MAX_OPEN_FILES = 65_536
CLOSED_SHARE = 0.05  # of the closable connections, when there are too many
REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection with deadlines for sending the header and the body and for reading the response.

    When more than `max_connections()` are open, the server closes the oldest ones that have not finished sending a
    request, or else the oldest idle ones.
    """

    header_seconds = 10.0  # from the first byte, or from opening the connection, to the end of the header
    body_seconds = 30.0  # from the end of the header to the end of the body
    read_seconds = 60.0  # without the client reading any of the response

    _awaited = ""  # "header" or "body" while the client is sending one
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened = self.loop.time()
        if len(self.connections) > max_connections():
            self._close_others()
        self._await("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("")
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await({h11.IDLE: "header", h11.SEND_BODY: "body"}.get(self.conn.their_state, ""))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is not h11.SEND_BODY:
            self._await("")  # uvicorn times the pause before the next request

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_read_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        if ON_STOP in self.app_state:
            self.app_state[ON_STOP]()
        if self._awaited == "body":
            self.transport.abort()
        else:
            super().shutdown()

    def _await(self, sent: str) -> None:
        """Restart the clock when the client begins to send a header or a body, and stop it at the end."""
        if sent == self._awaited:
            return
        self._awaited = sent
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if sent and not self.transport.is_closing():
            seconds = self.header_seconds if sent == "header" else self.body_seconds
            self._timer = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(REQUEST_TIMEOUT)
        self.transport.close()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _close_others(self) -> None:
        """Close the oldest twentieth of the connections that are sending a request, or else of the idle ones."""
        others = [other for other in self.connections if isinstance(other, TimedProtocol) and other is not self]
        unfinished = [other for other in others if other._awaited]
        closable = unfinished or [other for other in others if other.conn.their_state is h11.IDLE]
        closable.sort(key=lambda other: other.opened)
        for oldest in closable[: max(1, int(CLOSED_SHARE * len(closable)))]:
            self.connections.discard(oldest)
            oldest.transport.abort()


@functools.cache
def max_connections() -> int:
    """The number of connections to keep open, well below the number of files that the process may open."""
    files = raise_open_files()
    return MAX_CONNECTIONS if files is None else max(16, min(MAX_CONNECTIONS, files * 3 // 4))


def raise_open_files() -> int | None:
    """Raise the limit on open files as far as the system allows, and return it; None if there is no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


UVICORN_OPTIONS: dict[str, Any] = {
    "http": TimedProtocol,
    "ws": "none",
    "lifespan": "on",
    "log_level": "error",
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "h11_max_incomplete_event_size": 32 << 10,  # bytes of the request line and header
    "timeout_keep_alive": 15,  # seconds between two requests of a connection
    "timeout_graceful_shutdown": 6,  # seconds for running requests when the server stops
}
