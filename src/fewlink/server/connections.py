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
MAX_HEADER_BYTES = 32 << 10  # of the request line and header
MAX_SMALL_CHUNKS = 64  # of a body; more must have `CHUNK_BYTES` each on average
CHUNK_BYTES = 256
MAX_DISCARDED_BYTES = 2 << 20  # of a refused request
MAX_UNREAD_BYTES = 256 << 20  # of all responses that wait to be read
READ_BYTES = 16 << 10  # a second, at least, for a client to read a large response
CLOSED_SHARE = 0.05  # of the closable connections, when there are too many
REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedConnection(h11.Connection):
    """HTTP/1.1 parsing that refuses bodies in very many small chunks, and two statements of a body's length."""

    _chunks = _bytes = 0  # of the current body

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > MAX_SMALL_CHUNKS + self._bytes // CHUNK_BYTES:
                raise h11.RemoteProtocolError("too many small chunks")
        return event


class LingeringTransport:
    """A transport that, when closed in the middle of a request, lets the client read the response first.

    It sends what is left and then the end of the stream, and discards what the client still sends for a short time.
    To close at once would make the client's system drop the response.
    """

    def __init__(self, transport: asyncio.Transport, protocol: TimedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if self._protocol.conn.their_state is h11.SEND_BODY and not self._transport.is_closing():
            self._protocol.discard_input()
        else:
            self._transport.close()


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection with deadlines for sending the header and the body and for reading the response.

    When more than `max_connections()` are open, the server closes the oldest ones whose response waits to be read, or
    else those that have not finished sending a request, or else idle ones.
    """

    header_seconds = 10.0  # from the first byte, or from opening the connection, to the end of the header
    body_seconds = 30.0  # from the end of the header to the end of the body
    read_seconds = 30.0  # in which the client reads the response, or `READ_BYTES` of it for each second
    linger_seconds = 2.0  # to discard the rest of a refused request
    arrival_seconds = 1.0  # in which the rest of a request must arrive when the server stops

    _awaited = ""  # "header" or "body" while the client is sending one
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _discarding = False
    _discarded = 0  # bytes

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = BoundedConnection(h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEADER_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        self.opened = self.loop.time()
        if len(self.connections) > max_connections():
            self._close_others()
        self._await("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("")
        if self._read_timer is not None:
            self._read_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED_BYTES:
                self.transport.abort()
            return
        super().data_received(data)
        if not self._discarding:
            self._await({h11.IDLE: "header", h11.SEND_BODY: "body"}.get(self.conn.their_state, ""))

    def send_400_response(self, msg: str) -> None:
        running = self.cycle is not None and not self.cycle.response_complete
        if running and self.cycle.response_started:
            self.transport.abort()
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if running:
            self.cycle.disconnected = True  # its own response would come after this one
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._time_reading()
        if self.conn.their_state is not h11.SEND_BODY:
            self._await("")  # uvicorn times the pause before the next request

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_reading()

    def shutdown(self) -> None:
        """Finish the current request. A request that is on its way has `arrival_seconds` to arrive."""
        if ON_STOP in self.app_state:
            self.app_state[ON_STOP]()
        if self.cycle is None or self.cycle.response_complete or self._awaited == "body":
            self.loop.call_later(self.arrival_seconds, self._close_unless_answering)
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _close_unless_answering(self) -> None:
        if self._awaited == "body":
            self.transport.abort()
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def discard_input(self) -> None:
        """Send the end of the stream after the response, and close the connection shortly."""
        self._discarding = True
        self._await("")
        self._timer = self.loop.call_later(self.linger_seconds, self.transport.abort)
        self.flow.resume_reading()
        self.transport.write_eof()

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

    def _time_reading(self) -> None:
        """Watch that the client reads the response, and keep the memory of unread responses within bounds."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = self.loop.call_later(self.read_seconds, self._check_reading, self._unread)
        others = sorted((other for other in self._others() if other._unread), key=lambda other: other.opened)
        excess = self._unread + sum(other._unread for other in others) - MAX_UNREAD_BYTES
        for other in others:
            if excess <= 0:
                break
            excess -= other._unread
            other.transport.abort()

    def _check_reading(self, unread_before: int) -> None:
        """Disconnect a client that reads too slowly."""
        if not self._unread:
            self._read_timer = None
        elif unread_before - self._unread < self.read_seconds * READ_BYTES:
            self.transport.abort()
        else:
            self._read_timer = self.loop.call_later(self.read_seconds, self._check_reading, self._unread)

    @property
    def _unread(self) -> int:
        """The bytes that wait until the client has read some."""
        return int(self.transport.get_write_buffer_size())

    def _others(self) -> list[TimedProtocol]:
        return [other for other in self.connections if isinstance(other, TimedProtocol) and other is not self]

    def _close_others(self) -> None:
        """Close the oldest twentieth of the connections of one kind that has any."""
        others = self._others()
        kinds = (
            [other for other in others if other._unread or other.transport.is_closing() or other._discarding],
            [other for other in others if other._awaited],
            [other for other in others if other.conn.their_state is h11.IDLE],
        )
        closable = sorted(next(filter(None, kinds), []), key=lambda other: other.opened)
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
    "h11_max_incomplete_event_size": MAX_HEADER_BYTES,
    "timeout_keep_alive": 15,  # seconds between two requests of a connection
    "timeout_graceful_shutdown": 7,  # seconds for running requests when the server stops
}
