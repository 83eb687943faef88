"""Which connections of a server stay open: limits in all and for each client, and which one gives way to a new one."""

from __future__ import annotations

import contextlib
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

SPARE = 256  # open files left for other things and for connections that are being closed; 3/4 where they are few
MOST_FILES = 65_536  # open files that are asked for


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one process; times in seconds."""

    connections: int = 2_000
    per_client: int = 1_000  # of one address; clients behind a proxy share one
    header: int = 32 << 10  # bytes of the request line and the header
    header_seconds: float = 10.0  # from the first byte, or the opening of the connection, to the end of the header
    body_seconds: float = 30.0  # from the end of the header to the end of the body
    idle_seconds: float = 15.0  # between two requests of a connection
    write_seconds: float = 60.0  # that a client may take to read what was sent, before it sends more
    buffered: int = 32 << 20  # bytes of unfinished bodies in all


class Connection(Protocol):
    """What is asked of a connection."""

    def client_address(self) -> str: ...

    def is_waiting(self) -> bool:
        """Whether it waits for its client: for the rest of a request, or for the next one."""
        ...

    def is_unfinished(self) -> bool:
        """Whether it waits for the rest of a request, or for the first one."""
        ...

    def drop(self) -> None: ...


class Connections:
    """The open connections. At a limit one that waits for its client is dropped for a new one.

    It is the oldest with an unfinished request, or else the oldest between two requests. So sockets that send little or
    nothing cannot keep others out, not even from the same address.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.dropped = 0
        self.buffered = 0  # bytes of unfinished bodies
        self._open: dict[Connection, str] = {}  # in the order of opening, with the client
        self._clients: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """Whether a new connection may stay; another one may have been dropped for it."""
        client = connection.client_address()
        if self._clients[client] >= self.limits.per_client and not self._give_way(client):
            return False
        if len(self._open) >= self.limits.connections and not self._give_way(None):
            return False
        self._open[connection] = client
        self._clients[client] += 1
        return True

    def remove(self, connection: Connection) -> None:
        client = self._open.pop(connection, None)
        if client is not None:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def reserve(self, size: int) -> bool:
        """Whether so many more bytes of unfinished bodies can be kept; `release` gives them back.

        At the limit the oldest connection with an unfinished request is dropped for them.
        """
        if self.buffered + size > self.limits.buffered and not self._give_way(None):
            return False
        self.buffered += size
        return True

    def release(self, size: int) -> None:
        self.buffered -= size

    def _give_way(self, client: str | None) -> bool:
        """Drop a waiting connection, of this client if one is given; false if there is none."""
        waiting = next((one for one in self._of(client) if one.is_unfinished()), None)
        waiting = waiting or next((one for one in self._of(client) if one.is_waiting()), None)
        if waiting is None:
            return False
        self.dropped += 1
        self.remove(waiting)
        waiting.drop()
        return True

    def _of(self, client: str | None) -> Iterator[Connection]:
        """The connections of a client, or all, the oldest first."""
        return (connection for connection, owner in self._open.items() if client in (None, owner))


def raise_open_files() -> int | None:
    """Raise the limit of open files of this process as far as it may; the limit, None where there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MOST_FILES if hard == unlimited else min(hard, MOST_FILES)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == unlimited else soft


def within_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits, lowered where this process may not open so many files."""
    files = raise_open_files()
    most = limits.connections if files is None else max(16, min(limits.connections, files - min(SPARE, 3 * files // 4)))
    return replace(limits, connections=most, per_client=min(limits.per_client, most))
