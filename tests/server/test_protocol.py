"""Connections of slow and of many clients, over real sockets."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.server.servers import on_a_port

from fewlink.server.connections import ConnectionLimits, Connections
from fewlink.server.protocol import ON_STOP, STATE, UNFINISHED

HEADER = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def served(**limits: Any) -> Iterator[tuple[int, Connections, list[str]]]:
    """The port of a server that answers with the size of the body, its connections, and what it was told."""
    guard, told = Connections(ConnectionLimits(**limits)), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"].update({STATE: guard, ON_STOP: lambda: told.append("stop")})
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                told.append("gone")
                return
            size, more = size + len(message["body"]), message["more_body"]
        body = b"x" * 30_000_000 if scope["path"] == "/large" else str(size).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with on_a_port(app) as (address, _):
        yield int(address.rpartition(":")[2]), guard, told


def connect(port: int, sent: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), 20)
    one.sendall(sent)
    return one


def everything(one: socket.socket) -> bytes:
    """What is sent until the connection is closed."""
    parts = []
    try:
        while part := one.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def until(true: Any) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within five seconds")


def test_a_slow_header_or_body_ends_with_408_and_a_byte_now_and_then_does_not_help() -> None:
    with served(header_seconds=0.5, body_seconds=0.5) as (port, guard, told):
        body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"
        for begin in (b"", HEADER, body):
            start = time.monotonic()
            with connect(port, begin) as one:
                one.settimeout(0.1)
                answer = b""
                while not answer and time.monotonic() - start < 10:
                    try:
                        one.sendall(b"1" if begin else b"")
                        answer = one.recv(1_000)
                    except TimeoutError:
                        continue
                    except OSError:
                        break
                assert answer.startswith(b"HTTP/1.1 408") and 0.3 < time.monotonic() - start < 5, begin
        until(lambda: not len(guard))
    assert told.count("gone") == 1


def test_header_and_body_have_their_own_times() -> None:
    with served(header_seconds=0.3, body_seconds=30) as (port, _, _told):
        with connect(port, HEADER) as one:
            assert everything(one).startswith(b"HTTP/1.1 408")
        with connect(port, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n") as one:
            time.sleep(0.5)
            one.sendall(b"123")
            assert b" 200 " in one.recv(1_000)


def test_requests_one_after_another_have_their_own_time_and_an_idle_connection_stays() -> None:
    with served(header_seconds=0.5, body_seconds=0.5) as (port, _, _told), connect(port) as one:
        for _ in range(4):
            one.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
            time.sleep(0.2)
            one.sendall(b"123")
            answer = b""
            while not answer.endswith(b"\r\n\r\n3"):
                answer += one.recv(1_000)
            assert b" 200 " in answer
            time.sleep(0.6)  # longer than the time for a header: it starts with the first byte


def test_at_the_limit_slow_connections_give_way_to_new_ones() -> None:
    with served(connections=20, per_client=20) as (port, guard, _):
        slow = [connect(port, HEADER) for _ in range(20)]
        until(lambda: len(guard) == 20)
        connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(5)]
        for connection in connections:
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"0"
        assert guard.dropped >= 5 and len(guard) <= 20
        assert everything(slow[0]) == b""
        for one in (*slow, *connections):
            one.close()


def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    with (
        served(write_seconds=0.3) as (port, guard, _),
        connect(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ):
        until(lambda: len(guard) == 1)
        until(lambda: len(guard) == 0)


def test_a_long_header_is_refused() -> None:
    with served() as (port, _, _told), connect(port, HEADER + b"X-Long: " + b"a" * 20_000) as one:
        time.sleep(0.1)
        one.sendall(b"a" * 20_000)
        assert b" 400 " in everything(one)


def test_a_stopping_server_is_told_and_drops_unfinished_requests() -> None:
    body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"
    with served() as (port, guard, told):
        slow = [connect(port, body), connect(port, HEADER)]
        until(lambda: len(guard) == 2)
        start = time.monotonic()
    assert time.monotonic() - start < 4 and told[0] == "stop"
    for one in slow:
        one.close()


def test_a_request_is_the_same_however_it_is_cut() -> None:
    requests = [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n" + b"x" * 12,
        b"POST / HTTP/1.1\nHost: localhost\nContent-Length: 12\n\n" + b"x" * 12,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nabcde\r\n7\r\n1234567\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    sizes = [b"12", b"12", b"12", b"0"]
    with served() as (port, _, _told):
        for cut in (1, 7, 1_000):
            with connect(port) as one:
                for sent, size in zip(requests, sizes, strict=True):
                    for begin in range(0, len(sent), cut):
                        one.sendall(sent[begin : begin + cut])
                        time.sleep(0.001)
                    answer = b""
                    while not answer.endswith(b"\r\n\r\n" + size):
                        part = one.recv(1_000)
                        assert part, (cut, sent, answer)
                        answer += part
        with connect(port, b"".join(requests)) as one:  # all at once
            answer = b""
            while answer.count(b"HTTP/1.1 200") < 4:
                answer += one.recv(1_000)
        large = b"y" * 100_000
        with connect(port, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + large) as one:
            answer = b""
            while not answer.endswith(b"\r\n\r\n100000"):
                answer += one.recv(1_000)
        with connect(port, b"\x16\x03\x01\x02\x00\x01") as one:  # TLS to a port without it
            assert b" 400 " in everything(one)


def test_sockets_of_unfinished_requests_are_known_until_the_rest_comes_or_they_go() -> None:
    with served() as (port, _, _):
        with connect(port, HEADER) as first, connect(port, HEADER) as second:
            until(lambda: len(UNFINISHED) == 2)
            first.sendall(b"\r\n")
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            until(lambda: len(UNFINISHED) == 1)
            second.close()
            until(lambda: not UNFINISHED)
        assert not UNFINISHED
