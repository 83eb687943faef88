"""HTTP connections of uvicorn with limits: how many there are, and how long a client may take to send or to read."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fewlink.server.connections import Connections

STATE = "connections"  # in the state of the app's lifespan: the Connections of this process
ON_STOP = "on_stop"  # there too: what is called when the server begins to stop
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


END = re.compile(rb"\n\r?\n")  # of a header
METHOD = re.compile(rb"[!-~]")  # the first byte of a request
SPREAD = 0.25  # of the time for a header or a body
UNFINISHED: set[int] = set()  # numbers of the sockets that have sent a part of a header or of a piece of a body
PIECE = 16 << 10  # bytes of a body that are handed on together


class GuardedProtocol(H11Protocol):
    """One connection. Its client has a limited time for the header, for the body, and to read the answer.

    A header is handed on when it is complete, and a body in pieces, so that bytes sent one by one cost little.
    """

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.guard: Connections = app_state[STATE] if STATE in app_state else Connections()
        self.on_stop: Callable[[], None] = app_state.get(ON_STOP) or (lambda: None)
        self._held = bytearray()  # what was received and not handed on
        self._body_left = 0  # bytes of the body that were not received, if the header says how many there are
        self._phase = ""  # what the client is to send: "header", "body", or nothing at the moment
        self._socket: int | None = None  # its number, if it is in UNFINISHED
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # What `Connections` asks

    def client_address(self) -> str:
        return self.client[0] if self.client else ""

    def is_waiting(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def is_unfinished(self) -> bool:
        return self._phase != ""

    def drop(self) -> None:
        self.transport.abort()

    # What uvicorn and asyncio call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.guard.add(self):
            self._enter("header")
        else:
            transport.write(TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish_part()
        self.guard.remove(self)
        self._enter("")
        self._cancel_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._held += data
        header, end = self.conn.their_state is h11.IDLE, None
        if header:
            end = END.search(self._held)
            partial = end is None and len(self._held) < self.guard.limits.header and bool(METHOD.match(self._held))
        else:
            partial = self.conn.their_state is h11.SEND_BODY and len(self._held) < min(self._body_left, PIECE)
        if partial:
            self._unset_keepalive_if_required()
            if self._socket is None and (own := self.transport.get_extra_info("socket")) is not None:
                self._socket = own.fileno()
                UNFINISHED.add(self._socket)
        else:
            self._finish_part()
            received, self._held = bytes(self._held), bytearray()
            super().data_received(received)
            if end is not None:
                self._body_left = self._length() + end.end()
            self._body_left -= len(received)
        self._update()

    def _finish_part(self) -> None:
        if self._socket is not None:
            UNFINISHED.discard(self._socket)
            self._socket = None

    def _length(self) -> int:
        """The length of the body by the header; 0 if it is not said."""
        value = next((value for name, value in self.headers or () if name == b"content-length"), b"")
        return int(value) if value.isdigit() and len(value) < 20 else 0

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:
            self._enter("")  # until the first byte of the next request uvicorn counts the time
        else:
            self._update()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.guard.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_write_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        self.on_stop()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()
        else:
            super().shutdown()

    def _update(self) -> None:
        state = self.conn.their_state
        self._enter("header" if state is h11.IDLE else "body" if state is h11.SEND_BODY else "")

    def _enter(self, phase: str) -> None:
        """Count the time of a phase from its beginning."""
        if phase == self._phase:
            return
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if phase and not self.transport.is_closing():
            limits = self.guard.limits
            seconds = limits.header_seconds if phase == "header" else limits.body_seconds
            spread = 1 - SPREAD * random.random()  # many connections that were opened together do not end together
            self._timer = self.loop.call_later(spread * seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
