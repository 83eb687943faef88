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
from tests.server.servers import eventually, on_a_port, small

from fewlink.server import ServerSettings, connections
from fewlink.server.app import make_app
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


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_body_in_very_many_small_chunks_is_refused() -> None:
    with served() as (port, opened, _):
        with connect(port, CHUNKED + b"1\r\nx\r\n" * 100) as one:
            assert b" 400 " in one.recv(1_000)
            one.sendall(b"1\r\nx\r\n" * 1_000)  # discarded
            everything(one)
        eventually(lambda: not opened)


def test_a_request_that_is_refused_twice_is_answered_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The token is missing, which the app sees a moment after the chunks have been refused."""
    with on_a_port(make_app(small(), ServerSettings(token="s3cret"))) as (address, server):
        request = CHUNKED.replace(b"/", b"/predict", 1) + b"1\r\nx\r\n" * 100
        with connect(int(address.rpartition(":")[2]), request) as one:
            assert everything(one).count(b"HTTP/1.1 400 ") == 1
        eventually(lambda: not server.server_state.connections)
    assert "Traceback" not in capsys.readouterr().err


def test_a_body_in_some_chunks_is_read() -> None:
    begin = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with served() as (port, _, _reports):
        for count, size in ((60, 1), (1_000, 600)):
            with connect(port, begin + (b"%x\r\n%s\r\n" % (size, b"x" * size)) * count + b"0\r\n\r\n") as one:
                assert everything(one).endswith(str(count * size).encode())


def test_two_statements_of_the_length_are_refused() -> None:
    both = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n")
    with served() as (port, _, _reports), connect(port, both + b"3\r\nabc\r\n0\r\n\r\n") as one:
        assert b" 400 " in everything(one)


def test_a_closed_connection_is_dropped_if_the_client_does_not_read() -> None:
    request = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with served(read_seconds=0.3) as (port, opened, _), connect(port, request):
        eventually(lambda: len(opened) == 1)
        eventually(lambda: not opened)


def test_slow_readers_give_way_to_new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 20)
    request = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with served() as (port, opened, _):
        slow = [connect(port, request) for _ in range(20)]
        eventually(lambda: len(opened) == 20)
        for _ in range(10):
            with connect(port, HEADER + b"\r\n") as one:
                assert b" 200 " in one.recv(1_000)
        assert len(opened) <= 21
        for one in slow:
            one.close()


def test_unread_responses_take_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", 60_000_000)
    request = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served() as (port, opened, _):
        slow = [connect(port, request) for _ in range(6)]
        eventually(lambda: 0 < len(opened) <= 3)
        for one in slow:
            one.close()


def test_the_rest_of_a_refused_request_is_not_parsed_and_the_client_reads_the_answer() -> None:
    app = make_app(small(), ServerSettings(token="s3cret", body=100_000))
    with on_a_port(app) as (address, server):
        port = int(address.rpartition(":")[2])
        for header, status in (("X-None: 1", b" 401 "), ("Authorization: Bearer s3cret", b" 413 ")):
            begin = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{header}\r\nContent-Length: 900000\r\n\r\n"
            with connect(port, begin.encode() + b"x" * 1_000) as one:
                answer = one.recv(10_000)
                assert status in answer and b"connection: close" in answer.lower()
                one.sendall(b"x" * 300_000)  # discarded
                assert everything(one).count(b"HTTP/1.1") == 0
        eventually(lambda: not server.server_state.connections)
