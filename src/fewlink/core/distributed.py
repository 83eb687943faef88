"""Several processes as one job: torchrun starts them, each knows its rank, and they exchange values and gradients.

In a single process every function here does nothing or returns its argument.

A watchdog ends all processes when one is lost; without it, an exchange with a lost process blocks until torch's
timeout of half an hour. Each process holds a connection to the first, which forwards what it receives. On exit, each
process sends a farewell message. A connection that closes without one, or whose host is silent for two minutes, means
a lost process. The others have a few seconds to end by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing.connection
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fewlink.core.errors import FewlinkError, ProcessLost
from fewlink.core.settings import DEVICES, is_device

GRACE = 5.0  # seconds for a process to end by itself
CONNECT_TIMEOUT = 10.0  # seconds
FAREWELL = "goodbye"  # any other last message is the reason why all processes must end
RESTART = "start the same command again, it continues from what was saved"
PR_SET_PDEATHSIG = 1  # of Linux: a signal for when the parent has ended
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # seconds, seconds, probes

T = TypeVar("T")

_alone = False  # while the first process works and the others wait for it


def use_device(device: str) -> str:
    """Make this device the current one. Raises if it is not a device name or the machine has no such device."""
    if not is_device(device):
        raise FewlinkError(f"device '{device}' is not {DEVICES}")
    kind, _, index = device.partition(":")
    if kind == "cuda":
        if int(index or 0) >= torch.cuda.device_count():
            available = f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else "no GPU"
            raise FewlinkError(f"device '{device}' was given, but torch finds {available} on this machine: try cpu")
        torch.cuda.set_device(device if index else torch.cuda.current_device())
    return device


@contextlib.contextmanager
def processes(device: str = "cpu") -> Iterator[str]:
    """Join the processes that torchrun started, if any; yields this process's device. If one is lost, all end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield use_device(device)
        return
    device = use_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device.startswith("cuda") else device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    watchdog = Watchdog()
    try:
        watchdog = Watchdog.connect()
        yield device
        gathered(None)  # a process that left early could not hear of a lost one
        watchdog.send(FAREWELL)
    except BaseException as error:
        watchdog.fail(error)
        raise
    finally:
        dist.destroy_process_group()  # this may wait for the others too
        watchdog.close()


def count() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() and not _alone else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() and not _alone else 0


def end_with_parent(parent: int) -> None:
    """End this process as soon as its parent, the process with this id, has ended, in whichever way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)
    if (process := multiprocessing.parent_process()) is not None:  # on any system
        threading.Thread(target=_exit_after, args=(process.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Inside, this process counts as a single one: it works while the others wait."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def gathered(value: T) -> list[T]:
    """The values of all processes by rank, returned in each of them."""
    if count() == 1:
        return [value]
    values: list[T | None] = [None] * count()
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def from_first(make: Callable[[], T]) -> T:
    """Call `make` in the first process and return its value in all of them; an error is raised in all of them."""
    if count() == 1:
        return make()
    result: list[tuple[T | None, FewlinkError | None] | None] = [None]
    if rank() == 0:
        try:
            with alone():
                result = [(make(), None)]
        except FewlinkError as error:
            result = [(None, error)]
    dist.broadcast_object_list(result)
    assert result[0] is not None
    value, problem = result[0]
    if problem is not None:
        raise problem
    return value  # type: ignore[return-value]


def everywhere(make: Callable[[], T]) -> T:
    """Call `make` in each process and wait for all of them; an error in one is raised in all."""
    if count() == 1:
        return make()
    problem: FewlinkError | None = None
    try:
        value = make()
    except FewlinkError as error:
        problem = error
    for error_of_one in gathered(problem):
        if error_of_one is not None:
            raise error_of_one
    return value


def exchanged(rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
    """Send the first `sent[0]` rows to process 0, the next `sent[1]` to process 1, …; returns those received, by rank.

    Shapes: rows (Σ sent, …) to (Σ received, …); `received[p]` is the number of rows that process p sends here.
    """
    into = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(into, rows.contiguous(), list(received), list(sent))
    return into


def add_(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, in one exchange."""
    _reduce_(tensors, 1)


def average_(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all processes, in one exchange."""
    _reduce_(tensors, count())


def _reduce_(tensors: Sequence[Tensor], divisor: int) -> None:
    if count() == 1 or not tensors:
        return
    flat = torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat)
    if divisor > 1:  # here and not in each tensor: two of them may share their memory
        flat /= divisor
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


class Watchdog:
    """The connections of one process, each with the name of the process at its other end and a listening thread."""

    def __init__(self, name: str = "", others: dict[socket.socket, str] | None = None) -> None:
        self.name, self.others = name, others or {}
        self.reason = ""  # why this process must end
        self._lock, self._lost, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._listen, args=end, daemon=True) for end in self.others.items()]
        for thread in self._threads:
            thread.start()

    @classmethod
    def connect(cls) -> Watchdog:
        """Connect the processes of the group; one that cannot reach the first continues without a watchdog."""
        server = _server() if dist.get_rank() == 0 else None
        meeting = [(server.getsockname()[1] if server else 0, secrets.token_bytes(16))]
        dist.broadcast_object_list(meeting)
        port, token = meeting[0]  # other programs do not know the token
        connection = _call(port, _hello(token, dist.get_rank())) if dist.get_rank() else None
        hosts: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(hosts, socket.gethostname() if connection or server else None)
        names = [f"process {i} on {host}" for i, host in enumerate(hosts)]
        if server:
            callers = {_hello(token, i): names[i] for i in range(1, len(hosts)) if hosts[i] is not None}
            return cls(names[0], _accept(server, callers))
        return cls(names[dist.get_rank()], {connection: names[0]} if connection else None)

    def send(self, message: str) -> None:
        """Send the others a last message; later ones are not sent."""
        with self._lock:
            for connection in self.others:
                with contextlib.suppress(OSError):  # closed, or its last message was sent before
                    connection.sendall(message.encode())
                    connection.shutdown(socket.SHUT_WR)

    def fail(self, error: BaseException) -> None:
        """Send the others the error that ends this process; raises `ProcessLost` if the error is a broken exchange."""
        broken = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
        if broken:
            self._lost.wait(GRACE if self.others else 0)
            self.reason = self.reason or f"another process of this job was lost ({error}): {RESTART}"
        message = str(error) if isinstance(error, FewlinkError) else repr(error)
        self.reason = self.reason or f"{self.name} has ended: {message}"
        self.send(self.reason)
        if broken:
            raise ProcessLost(self.reason) from error

    def close(self) -> None:
        """Close the connections: from here on nothing ends this process."""
        self._closed.set()
        for connection in self.others:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes its thread
        for thread in self._threads:
            thread.join()
        for connection in self.others:
            connection.close()

    def _listen(self, connection: socket.socket, name: str) -> None:
        message = b""
        with contextlib.suppress(OSError):  # reset, or silent for too long
            while part := connection.recv(4096):
                message += part
        with self._lock:
            if message == FAREWELL.encode() or self._closed.is_set() or self._lost.is_set():
                return
            self.reason = self.reason or message.decode(errors="replace") or f"{name} was lost: {RESTART}"
            self._lost.set()
        self.send(self.reason)
        if not self._closed.wait(GRACE):
            os.write(2, f"error: {self.reason}\n".encode())
            os._exit(2)


def _hello(token: bytes, rank: int) -> bytes:
    return token + rank.to_bytes(4, "big")


def _server() -> socket.socket | None:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with contextlib.suppress(OSError):
        return socket.create_server(("", 0), family=family, backlog=2 * dist.get_world_size(), dualstack_ipv6=both)
    return None


def _call(port: int, hello: bytes) -> socket.socket | None:
    with contextlib.suppress(OSError):
        connection = socket.create_connection((os.environ["MASTER_ADDR"], port), CONNECT_TIMEOUT)
        connection.sendall(hello)
        return _keep_alive(connection)
    return None


def _accept(server: socket.socket, callers: dict[bytes, str]) -> dict[socket.socket, str]:
    """The connections of the callers, which have all called already, with their names."""
    accepted: dict[socket.socket, str] = {}
    server.settimeout(CONNECT_TIMEOUT)
    with server, contextlib.suppress(OSError):  # no further call
        while len(accepted) < len(callers):
            connection = server.accept()[0]
            connection.settimeout(CONNECT_TIMEOUT)
            try:
                accepted[connection] = callers[connection.recv(len(next(iter(callers))))]
                _keep_alive(connection)
            except (OSError, KeyError):  # another program
                connection.close()
    return accepted


def _keep_alive(connection: socket.socket) -> socket.socket:
    """The connection without a timeout; it closes when the host at its other end falls silent."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
