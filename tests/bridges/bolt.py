"""A server that speaks enough Bolt 5.0 for Neo4j's official driver to run recorded queries."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

HELLO, GOODBYE, RESET, RUN, BEGIN, COMMIT, ROLLBACK, PULL, ROUTE = 0x01, 0x02, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x3F, 0x66
SUCCESS, RECORD, FAILURE = 0x70, 0x71, 0x7F
VERSION = b"\0\0\0\5"  # 5.0


class Structure(NamedTuple):
    tag: int
    fields: tuple[Any, ...]


class Reply(NamedTuple):
    """The answer to a query: its columns, its records, and the number of relationships that it created."""

    keys: list[str]
    records: list[list[Any]]
    created: int = 0


def node(number: int, labels: list[str], **properties: Any) -> Structure:
    return Structure(0x4E, (number, labels, properties, f"4:{number}"))


def relationship(number: int, kind: str, head: int, tail: int) -> Structure:
    return Structure(0x52, (number, head, tail, kind, {}, f"5:{number}", f"4:{head}", f"4:{tail}"))


class Refused(Exception):
    """A query that the server does not understand."""


@contextmanager
def bolt_server(answer: Callable[[str, dict[str, Any]], Reply], password: str = "secret") -> Iterator[str]:
    """Serve the replies of `answer`, which raises `Refused` for an unknown query; yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_serve, args=(connection, answer, password), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"bolt://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _serve(connection: socket.socket, answer: Callable[..., Reply], password: str) -> None:
    with connection, connection.makefile("rwb") as stream:
        assert stream.read(4) == b"\x60\x60\xb0\x17"
        stream.read(16)
        stream.write(VERSION)
        stream.flush()
        reply = Reply([], [])
        while (message := _receive(stream)) is not None:
            tag, fields = message
            sent: list[Structure] = [Structure(SUCCESS, ({},))]
            if tag == GOODBYE:
                return
            if tag == HELLO and fields[0].get("credentials") != password:
                sent = [_failure("Neo.ClientError.Security.Unauthorized", "The client is unauthorized.")]
            elif tag == HELLO:
                sent = [Structure(SUCCESS, ({"server": "Neo4j/5.0.0", "connection_id": "bolt-1"},))]
            elif tag == RUN:
                try:
                    reply = answer(fields[0], fields[1])
                    sent = [Structure(SUCCESS, ({"fields": reply.keys, "t_first": 0},))]
                except Refused as error:
                    sent = [_failure("Neo.ClientError.Statement.SyntaxError", str(error))]
            elif tag == PULL:
                facts: dict[str, Any] = {"type": "rw", "t_last": 0, "db": "neo4j", "bookmark": "b"}
                if reply.created:
                    facts["stats"] = {"relationships-created": reply.created}
                sent = [*(Structure(RECORD, (row,)) for row in reply.records), Structure(SUCCESS, (facts,))]
            elif tag == ROUTE:
                addresses = ["{}:{}".format(*connection.getsockname())]
                servers = [{"addresses": addresses, "role": role} for role in ("ROUTE", "READ", "WRITE")]
                sent = [Structure(SUCCESS, ({"rt": {"ttl": 300, "db": "neo4j", "servers": servers}},))]
            else:
                assert tag in (RESET, BEGIN, COMMIT, ROLLBACK), tag
            for each in sent:
                raw = packed(each)
                stream.write(b"".join(_chunks(raw)) + b"\0\0")
            stream.flush()


def _failure(code: str, message: str) -> Structure:
    return Structure(FAILURE, ({"code": code, "message": message},))


def _chunks(raw: bytes) -> Iterator[bytes]:
    for begin in range(0, len(raw), 0xFFFF):
        chunk = raw[begin : begin + 0xFFFF]
        yield struct.pack(">H", len(chunk)) + chunk


def _receive(stream: Any) -> Structure | None:
    raw = b""
    while header := stream.read(2):
        size = struct.unpack(">H", header)[0]
        if not size:
            if raw:
                return unpacked(raw)[0]  # type: ignore[no-any-return]
            continue
        raw += stream.read(size)
    return None


def packed(value: Any) -> bytes:
    """Encode a value in PackStream."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack(">b", value) if -16 <= value < 128 else b"\xcb" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xc1" + struct.pack(">d", value)
    if isinstance(value, str):
        raw = value.encode()
        return b"\xd2" + struct.pack(">I", len(raw)) + raw
    if isinstance(value, Structure):
        return bytes([0xB0 + len(value.fields), value.tag]) + b"".join(map(packed, value.fields))
    if isinstance(value, dict):
        items = b"".join(packed(name) + packed(each) for name, each in value.items())
        return b"\xda" + struct.pack(">I", len(value)) + items
    return b"\xd6" + struct.pack(">I", len(value)) + b"".join(map(packed, value))


SIZES = {0xD0: "B", 0xD1: "H", 0xD2: "I", 0xD4: "B", 0xD5: "H", 0xD6: "I", 0xD8: "B", 0xD9: "H", 0xDA: "I"}
NUMBERS = {0xC1: "d", 0xC8: "b", 0xC9: "h", 0xCA: "i", 0xCB: "q"}


def unpacked(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """Decode a value; return it and the position of the next one."""
    marker, at = raw[at], at + 1
    if marker in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[marker], at
    if marker in NUMBERS:
        size = struct.calcsize(NUMBERS[marker])
        return struct.unpack(">" + NUMBERS[marker], raw[at : at + size])[0], at + size
    if marker < 0x80 or marker >= 0xF0:
        return struct.unpack(">b", bytes([marker]))[0], at
    kind, count = marker & 0xF0, marker & 0x0F
    if marker in SIZES:
        size = struct.calcsize(SIZES[marker])
        count, at = struct.unpack(">" + SIZES[marker], raw[at : at + size])[0], at + size
        kind = {0xD0: 0x80, 0xD4: 0x90, 0xD8: 0xA0}[marker & 0xFC]
    if kind == 0x80:
        return raw[at : at + count].decode(), at + count
    tag = raw[at] if kind == 0xB0 else 0
    at += kind == 0xB0
    values = []
    for _ in range(2 * count if kind == 0xA0 else count):
        value, at = unpacked(raw, at)
        values.append(value)
    if kind == 0xA0:
        return dict(zip(values[::2], values[1::2], strict=True)), at
    return (Structure(tag, tuple(values)) if kind == 0xB0 else values), at
