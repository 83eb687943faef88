"""Connections of slow and of many clients, over real sockets."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.server.servers import eventually, on_a_port

from fewlink.server import connections
from fewlink.server.connections import MAX_CONNECTIONS, ON_STOP, TimedProtocol, max_connections

HEADER = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"


@contextmanager
def served(**seconds: float) -> Iterator[tuple[int, Any, list[str]]]:
    """Serve the size of each body; yield the port, the open connections and the reported events."""
    reports: list[str] = []
    protocol = type("Protocol", (TimedProtocol,), seconds)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"][ON_STOP] = lambda: reports.append("stop")
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                reports.append("gone")
                return
            size, more = size + len(message["body"]), message["more_body"]
        body = b"x" * 30_000_000 if scope["path"] == "/large" else str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with on_a_port(app, http=protocol) as (address, server):
        yield int(address.rpartition(":")[2]), server.server_state.connections, reports


def connect(port: int, sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), 20)
    one.sendall(sent)
    return one


def everything(one: socket.socket) -> bytes:
    """All bytes until the connection is closed."""
    received = b""
    try:
        while data := one.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("begin", [b"", HEADER, BODY], ids=["silent", "header", "body"])
def test_a_slow_request_ends_with_408_even_if_bytes_trickle_in(begin: bytes) -> None:
    with served(header_seconds=0.5, body_seconds=0.5) as (port, opened, _):
        with connect(port, begin) as one:
            one.settimeout(0.1)
            answer = b""
            for _ in range(100):
                try:
                    one.sendall(b"1" if begin else b"")
                    answer = one.recv(1_000)
                    break
                except TimeoutError:
                    continue
            assert answer.startswith(b"HTTP/1.1 408")
        eventually(lambda: not opened)


def test_header_and_body_have_their_own_deadlines() -> None:
    with served(header_seconds=0.3, body_seconds=30) as (port, _, _reports):
        with connect(port, HEADER) as one:
            assert everything(one).startswith(b"HTTP/1.1 408")
        with connect(port, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n") as one:
            time.sleep(0.5)
            one.sendall(b"123")
            assert b" 200 " in one.recv(1_000)


def test_each_request_of_a_connection_has_a_deadline_and_pauses_do_not_count() -> None:
    with served(header_seconds=0.5, body_seconds=0.5) as (port, _, _reports), connect(port) as one:
        for _ in range(3):
            one.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
            time.sleep(0.2)
            one.sendall(b"123")
            answer = b""
            while not answer.endswith(b"\r\n\r\n3"):
                answer += one.recv(1_000)
            assert b" 200 " in answer
            time.sleep(0.6)


def test_at_the_limit_slow_connections_are_closed_before_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 20)
    with served() as (port, opened, _):
        idle = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        idle.request("GET", "/")
        assert idle.getresponse().read() == b"0"
        slow = [connect(port, HEADER) for _ in range(19)]
        eventually(lambda: len(opened) == 20)
        others = [http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(5)]
        for connection in (*others, idle):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"0"
        eventually(lambda: len(opened) <= 20)
        assert everything(slow[0]) == b""
        for one in (*slow, *others, idle):
            one.close()


def test_a_client_that_does_not_read_the_response_is_disconnected() -> None:
    request = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(read_seconds=0.3) as (port, opened, _), connect(port, request):
        eventually(lambda: len(opened) == 1)
        eventually(lambda: not opened)


def test_a_long_header_is_refused() -> None:
    with served() as (port, _, _reports), connect(port, HEADER + b"X-Long: " + b"a" * 40_000) as one:
        assert b" 400 " in everything(one)


def test_a_stopping_server_calls_the_hook_and_drops_unfinished_requests() -> None:
    with served() as (port, opened, reports):
        slow = [connect(port, BODY), connect(port, HEADER)]
        eventually(lambda: len(opened) == 2)
    assert reports[0] == "stop"
    for one in slow:
        one.close()


def test_the_limit_on_open_files_bounds_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"limit": (256, 1_024)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: now["limit"])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: now.update(limit=limit))
    assert max_connections.__wrapped__() == 768 and now["limit"] == (1_024, 1_024)
    now["limit"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert max_connections.__wrapped__() == MAX_CONNECTIONS
