"""A process that is lost or fails ends the others, whatever they wait for; one that ends normally does not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch.distributed as dist

from fewlink.core import distributed
from fewlink.core.distributed import FAREWELL, Watchdog
from fewlink.core.errors import FewlinkError, ProcessLost

PATIENCE = 60  # seconds until the test counts as hanging, even on a busy machine


class Exits:
    """Replaces `os._exit`: records the exit codes, and the test continues."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.exited = threading.Semaphore(0)

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.exited.release()


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Exits:
    exits = Exits()
    monkeypatch.setattr(distributed, "GRACE", 0.1)
    monkeypatch.setattr(os, "_exit", exits)
    return exits


def star(count: int) -> list[Watchdog]:
    pairs = [socket.socketpair() for _ in range(1, count)]
    first = Watchdog("process 0", {near: f"process {i}" for i, (near, _) in enumerate(pairs, 1)})
    return [first, *(Watchdog(f"process {i}", {far: "process 0"}) for i, (_, far) in enumerate(pairs, 1))]


def kill(watchdog: Watchdog) -> None:
    """Close the connections, as the kernel does for a killed process."""
    watchdog._closed.set()
    for connection in watchdog.others:
        connection.shutdown(socket.SHUT_RDWR)


def test_a_lost_process_ends_the_others(exits: Exits, capfd: pytest.CaptureFixture[str]) -> None:
    watchdogs = star(3)
    kill(watchdogs[2])
    assert all(exits.exited.acquire(timeout=PATIENCE) for _ in range(2))
    assert exits.codes == [2, 2]
    message = "error: process 2 was lost: start the same command again, it continues from what was saved\n"
    assert capfd.readouterr().err == 2 * message, "the first process tells the second which one was lost"
    for watchdog in watchdogs:
        watchdog.close()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FewlinkError("give a name"), "give a name"),
        (OSError("full"), "OSError('full')"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
    ],
)
@pytest.mark.parametrize("failed", [0, 1])
def test_a_process_that_fails_sends_the_reason(
    failed: int, error: BaseException, text: str, exits: Exits, capfd: pytest.CaptureFixture[str]
) -> None:
    watchdogs = star(3)
    watchdogs[failed].fail(error)
    watchdogs[failed].close()
    assert all(exits.exited.acquire(timeout=PATIENCE) for _ in range(2))
    assert capfd.readouterr().err == 2 * f"error: process {failed} has ended: {text}\n"
    for watchdog in watchdogs:
        watchdog.close()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_farewell_ends_no_process(order: tuple[int, ...], exits: Exits, capfd: pytest.CaptureFixture[str]) -> None:
    watchdogs = star(3)
    for i in order:
        watchdogs[i].send(FAREWELL)
        watchdogs[i].close()
    assert exits.codes == [] and capfd.readouterr().err == ""
    assert not any(watchdog.reason for watchdog in watchdogs)
    assert all(connection.fileno() == -1 for watchdog in watchdogs for connection in watchdog.others)


def test_a_process_that_ends_by_itself_is_not_killed(exits: Exits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "GRACE", 1000.0)
    watchdogs = star(2)
    kill(watchdogs[1])
    assert watchdogs[0]._lost.wait(PATIENCE)
    for watchdog in watchdogs:
        watchdog.close()
    assert exits.codes == []


@pytest.mark.parametrize("error", [RuntimeError("[gloo/pair.cc:537] Read error"), dist.DistBackendError("NCCL")])
def test_a_broken_exchange_means_a_lost_process(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "GRACE", 1000.0)
    watchdogs = star(2)
    kill(watchdogs[1])
    with pytest.raises(ProcessLost, match=r"^process 1 was lost: start the same command again"):
        watchdogs[0].fail(error)
    for watchdog in watchdogs:
        watchdog.close()


def test_without_connections_the_lost_process_is_not_named() -> None:
    watchdog = Watchdog()
    with pytest.raises(ProcessLost, match=r"^another process of this job was lost \(\[gloo\] Read error\): start"):
        watchdog.fail(RuntimeError("[gloo] Read error"))
    watchdog.close()


def test_a_device_that_is_none_is_an_error_before_processes_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(FewlinkError, match="device 'tpu' is not cpu, cuda or cuda:N"), distributed.processes("tpu"):
        pass


def test_other_programs_cannot_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    server = distributed._server()
    assert server is not None
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as other:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
    caller = distributed._call(port, b"token 1")
    assert caller is not None
    ((accepted, name),) = distributed._accept(server, {b"token 1": "process 1"}).items()
    assert all(end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for end in (accepted, caller))
    assert distributed._hello(b"one", 1) != distributed._hello(b"two", 1)
    assert name == "process 1" and accepted.getpeername()[1] == caller.getsockname()[1]
    assert distributed._call(port, b"token 2") is None, "the server is closed"
    accepted.close()
    caller.close()


# Three real processes for each case, forked from one that has imported torch. Those that wait do so for ever.
SCRIPT = """
import json, os, signal, socket, sys, threading, time
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
from fewlink.core import distributed
from fewlink.core.errors import FewlinkError

place = Path(sys.argv[1])

def blocked(rank):  # process 0 sends nothing
    dist.recv(torch.zeros(1), 0) if rank else time.sleep(1000)

def killed(rank):
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    blocked(rank)

def first_killed(rank):
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.exchanged = lambda *_: time.sleep(1000)
    distributed.exchanged()

def first_done(rank):  # and waits for the others, which depend on it
    if rank == 2:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        time.sleep(1000)

def fails(rank):
    if rank == 1:
        raise OSError("the disk is full")
    blocked(rank)

def all_fail(rank):
    time.sleep(0.2 * rank)
    raise FewlinkError("the same in all")

def in_order(rank):
    time.sleep(0.5 * (2 - rank))

def unreachable(rank):
    assert len(threading.enumerate()) == (1 if rank == 1 else 2)
    distributed.gathered(rank)

def loses_one(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.gathered(rank)

def work(case, rank):
    # in_order: a process that is done ends no other
    distributed.GRACE = {all_fail: 30.0, loses_one: 30.0, in_order: 0.1}.get(case, 2.0)
    if case is unreachable and rank == 1:
        def refuse(*_):
            raise ConnectionRefusedError
        distributed.socket.create_connection = refuse
    if case is in_order and rank == 1:  # still running when the first has ended
        destroy = dist.destroy_process_group
        dist.destroy_process_group = lambda: (time.sleep(1), destroy())
    with distributed.processes():
        case(rank)

results = {}
for case in (killed, first_killed, first_done, fails, all_fail, in_order, unreachable, loses_one):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    start, children = time.monotonic(), {}
    for rank in range(3):
        if child := os.fork():
            children[child] = rank
            continue
        os.dup2(os.open(place / f"{case.__name__}-{rank}", os.O_CREAT | os.O_WRONLY), 2)
        os.environ["RANK"] = str(rank)
        from fewlink import cli
        cli.app = lambda: work(case, rank)
        cli.main()
        os._exit(0)
    codes = {}
    while len(codes) < 3:
        child, status = os.wait()
        codes[children[child]] = os.waitstatus_to_exitcode(status)
    errors = [(place / f"{case.__name__}-{rank}").read_text() for rank in range(3)]
    results[case.__name__] = [[codes[rank] for rank in range(3)], errors, time.monotonic() - start]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exit codes and error output of the three processes of each case, and its seconds."""
    place = tmp_path_factory.mktemp("watchdog")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def lost(rank: int) -> str:
    again = "start the same command again, it continues from what was saved"
    return f"error: process {rank} on {socket.gethostname()} was lost: {again}\n"


def test_a_killed_process_ends_those_that_would_wait_for_ever(results: dict[str, Any]) -> None:
    codes, errors, seconds = results["killed"]
    assert codes == [2, 2, -9] and errors == [lost(2), lost(2), ""] and seconds < PATIENCE
    codes, errors, seconds = results["first_killed"]
    assert codes == [-9, 2, 2] and errors == ["", lost(0), lost(0)] and seconds < PATIENCE
    codes, errors, seconds = results["first_done"]
    assert codes == [2, 2, -9] and errors == [lost(2), lost(2), ""] and seconds < PATIENCE


def test_a_process_that_fails_alone_ends_the_others(results: dict[str, Any]) -> None:
    codes, errors, _ = results["fails"]
    assert codes == [2, 1, 2] and errors[1].endswith("OSError: the disk is full\n")
    assert (
        errors[0] == errors[2] == f"error: process 1 on {socket.gethostname()} has ended: OSError('the disk is full')\n"
    )


def test_an_error_in_all_processes_is_printed_once(results: dict[str, Any]) -> None:
    codes, errors, _ = results["all_fail"]
    assert codes == [2, 2, 2] and errors == ["error: the same in all\n", "", ""]


@pytest.mark.parametrize("case", ["in_order", "unreachable"])
def test_processes_that_end_normally_exit_with_zero(case: str, results: dict[str, Any]) -> None:
    assert results[case][:2] == [[0, 0, 0], ["", "", ""]]


def test_a_broken_exchange_is_reported_in_one_line(results: dict[str, Any]) -> None:
    codes, errors, _ = results["loses_one"]
    assert codes == [2, -9, 2] and errors == [lost(1), "", lost(1)]
