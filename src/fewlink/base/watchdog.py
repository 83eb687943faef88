"""A lifeline between processes that work together: when one is lost, the others end, and say which it was.

Left alone, an exchange may wait for a lost process until torch's limit, half an hour. So each process holds a
connection to the first, which passes on what it hears. Who ends sends a last word; a connection that closes without
one, or whose host is silent for two minutes, is a lost process. The others have a few seconds to end by themselves.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading

import torch.distributed as dist

from fewlink.base.errors import FewlinkError, ProcessLost

GRACE = 5.0  # seconds for a process to end by itself
REACH = 10.0  # seconds for a connection to be made
GOODBYE = "goodbye"  # the last word at the end of the work; any other is the reason why all have to end
AGAIN = "start the same command again, it continues from what was saved"
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, seconds, times


class Lifeline:
    """The connections of one process, each with the name of who is at its other end and a thread that listens to it."""

    def __init__(self, name: str = "", others: dict[socket.socket, str] | None = None) -> None:
        self.name, self.others = name, others or {}
        self.reason = ""  # why this process has to end
        self._lock, self._known, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=end, daemon=True) for end in self.others.items()]
        for thread in self._threads:
            thread.start()

    def say(self, word: str) -> None:
        """Send the others a last word; no second one is sent."""
        with self._lock:
            for connection in self.others:
                with contextlib.suppress(OSError):  # gone, or it has had its word
                    connection.sendall(word.encode())
                    connection.shutdown(socket.SHUT_WR)

    def fail(self, error: BaseException) -> None:
        """Tell the others of the error that ends this process; where it is an exchange that broke, raise the loss."""
        broken = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
        if broken:
            self._known.wait(GRACE if self.others else 0)
            self.reason = self.reason or f"another process of this job was lost ({error}): {AGAIN}"
        told = str(error) if isinstance(error, FewlinkError) else repr(error)
        self.reason = self.reason or f"{self.name} has ended: {told}"
        self.say(self.reason)
        if broken:
            raise ProcessLost(self.reason) from error

    def close(self) -> None:
        """Let go: from here on nobody ends this process."""
        self._closed.set()
        for connection in self.others:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes
        for thread in self._threads:
            thread.join()
        for connection in self.others:
            connection.close()

    def _watch(self, connection: socket.socket, name: str) -> None:
        word = b""
        with contextlib.suppress(OSError):  # reset, or silent for too long
            while part := connection.recv(4096):
                word += part
        with self._lock:
            if word == GOODBYE.encode() or self._closed.is_set() or self._known.is_set():
                return
            self.reason = self.reason or word.decode(errors="replace") or f"{name} was lost: {AGAIN}"
            self._known.set()
        self.say(self.reason)
        if not self._closed.wait(GRACE):
            os.write(2, f"error: {self.reason}\n".encode())
            os._exit(2)


def tie() -> Lifeline:
    """Tie the processes of the group together; one that cannot reach the first goes on without a lifeline."""
    rank, count = dist.get_rank(), dist.get_world_size()
    listening = _listening(count) if rank == 0 else None
    meet = [(listening.getsockname()[1] if listening else 0, secrets.token_bytes(16))]
    dist.broadcast_object_list(meet)
    port, token = meet[0]  # strangers do not know the token
    reached = _reached(port, _hello(token, rank)) if rank > 0 else None
    hosts: list[str | None] = [None] * count
    dist.all_gather_object(hosts, socket.gethostname() if reached or listening else None)
    names = [f"process {i} on {host}" for i, host in enumerate(hosts)]
    if listening:
        callers = {_hello(token, i): names[i] for i in range(1, count) if hosts[i] is not None}
        return Lifeline(names[0], _answered(listening, callers))
    return Lifeline(names[rank], {reached: names[0]} if reached else None)


def _hello(token: bytes, rank: int) -> bytes:
    return token + rank.to_bytes(4, "big")


def _listening(count: int) -> socket.socket | None:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with contextlib.suppress(OSError):
        return socket.create_server(("", 0), family=family, backlog=2 * count, dualstack_ipv6=both)
    return None


def _reached(port: int, hello: bytes) -> socket.socket | None:
    with contextlib.suppress(OSError):
        connection = socket.create_connection((os.environ["MASTER_ADDR"], port), REACH)
        connection.sendall(hello)
        return _kept(connection)
    return None


def _answered(listening: socket.socket, callers: dict[bytes, str]) -> dict[socket.socket, str]:
    """The callers' connections, which are all made and wait, with their names."""
    found: dict[socket.socket, str] = {}
    listening.settimeout(REACH)
    with listening, contextlib.suppress(OSError):  # nobody comes any more
        while len(found) < len(callers):
            connection = listening.accept()[0]
            connection.settimeout(REACH)
            try:
                found[connection] = callers[connection.recv(len(next(iter(callers))))]
                _kept(connection)
            except (OSError, KeyError):  # a stranger
                connection.close()
    return found


def _kept(connection: socket.socket) -> socket.socket:
    """The connection, for as long as it lasts; a host at its other end that falls silent closes it."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
