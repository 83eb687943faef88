"""A process that is lost or fails ends the others, whatever they wait in; one that ends in order does not."""

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

from fewlink.base import watchdog
from fewlink.base.errors import FewlinkError, ProcessLost
from fewlink.base.watchdog import GOODBYE, Lifeline

pytestmark = pytest.mark.slow

PATIENCE = 60  # seconds until a busy machine counts as one that hangs


class Ends:
    """In the place of `os._exit`: counts how many ends there were, and lets the test go on."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.more = threading.Semaphore(0)

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.more.release()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    ends = Ends()
    monkeypatch.setattr(watchdog, "GRACE", 0.1)
    monkeypatch.setattr(os, "_exit", ends)
    return ends


def star(count: int) -> list[Lifeline]:
    pairs = [socket.socketpair() for _ in range(1, count)]
    first = Lifeline("process 0", {near: f"process {i}" for i, (near, _) in enumerate(pairs, 1)})
    return [first, *(Lifeline(f"process {i}", {far: "process 0"}) for i, (_, far) in enumerate(pairs, 1))]


def drop(line: Lifeline) -> None:
    """What the kernel does for a process that is killed: its connections close."""
    line._closed.set()
    for connection in line.others:
        connection.shutdown(socket.SHUT_RDWR)


def test_a_lost_process_ends_the_others(ends: Ends, capfd: pytest.CaptureFixture[str]) -> None:
    lines = star(3)
    drop(lines[2])
    assert all(ends.more.acquire(timeout=PATIENCE) for _ in range(2))
    assert ends.codes == [2, 2]
    told = "error: process 2 was lost: start the same command again, it continues from what was saved\n"
    assert capfd.readouterr().err == 2 * told, "the second is told by the first who it was"
    for line in lines:
        line.close()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FewlinkError("give a name"), "give a name"),
        (OSError("full"), "OSError('full')"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
    ],
)
@pytest.mark.parametrize("failed", [0, 1])
def test_a_process_that_fails_says_why(
    failed: int, error: BaseException, text: str, ends: Ends, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = star(3)
    lines[failed].fail(error)
    lines[failed].close()
    assert all(ends.more.acquire(timeout=PATIENCE) for _ in range(2))
    assert capfd.readouterr().err == 2 * f"error: process {failed} has ended: {text}\n"
    for line in lines:
        line.close()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_goodbye_ends_nobody(order: tuple[int, ...], ends: Ends, capfd: pytest.CaptureFixture[str]) -> None:
    lines = star(3)
    for i in order:
        lines[i].say(GOODBYE)
        lines[i].close()
    assert ends.codes == [] and capfd.readouterr().err == ""
    assert not any(line.reason for line in lines)
    assert all(connection.fileno() == -1 for line in lines for connection in line.others)


def test_who_ends_by_itself_is_not_ended(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 1000.0)
    lines = star(2)
    drop(lines[1])
    assert lines[0]._known.wait(PATIENCE)
    for line in lines:
        line.close()
    assert ends.codes == []


@pytest.mark.parametrize("error", [RuntimeError("[gloo/pair.cc:537] Read error"), dist.DistBackendError("NCCL")])
def test_an_exchange_that_breaks_is_a_lost_process(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE", 1000.0)
    lines = star(2)
    drop(lines[1])
    with pytest.raises(ProcessLost, match=r"^process 1 was lost: start the same command again"):
        lines[0].fail(error)
    for line in lines:
        line.close()


def test_without_a_lifeline_it_is_some_process() -> None:
    line = Lifeline()
    with pytest.raises(ProcessLost, match=r"^another process of this job was lost \(\[gloo\] Read error\): start"):
        line.fail(RuntimeError("[gloo] Read error"))
    line.close()


def test_a_stranger_is_not_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    listening = watchdog._listening(2)
    assert listening is not None
    port = listening.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    caller = watchdog._reached(port, b"token 1")
    assert caller is not None
    ((found, name),) = watchdog._answered(listening, {b"token 1": "process 1"}).items()
    assert all(end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for end in (found, caller))
    assert watchdog._hello(b"one", 1) != watchdog._hello(b"two", 1)
    assert name == "process 1" and found.getpeername()[1] == caller.getsockname()[1]
    assert watchdog._reached(port, b"token 2") is None, "nobody listens any more"
    found.close()
    caller.close()


# Three real processes a case, all forks of one that has loaded torch. Who waits, waits for ever.
SCRIPT = """
import json, os, signal, socket, sys, threading, time
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
from fewlink import lifeline, together
from fewlink.base.errors import FewlinkError

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
    together.exchanged = lambda *_: time.sleep(1000)
    together.exchanged()

def first_done(rank):  # and waits for the others, who depend on it
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
    together.gathered(rank)

def loses_one(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    together.gathered(rank)

def work(case, rank):
    watchdog.GRACE = {all_fail: 30.0, loses_one: 30.0, in_order: 0.1}.get(case, 2.0)  # in_order: who ends ends nobody
    if case is unreachable and rank == 1:
        def refuse(*_):
            raise ConnectionRefusedError
        watchdog.socket.create_connection = refuse
    if case is in_order and rank == 1:  # still there when the first is gone
        destroy = dist.destroy_process_group
        dist.destroy_process_group = lambda: (time.sleep(1), destroy())
    with together.processes():
        case(rank)

told = {}
for case in (killed, first_killed, first_done, fails, all_fail, in_order, unreachable, loses_one):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    begun, children = time.monotonic(), {}
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
    said = [(place / f"{case.__name__}-{rank}").read_text() for rank in range(3)]
    told[case.__name__] = [[codes[rank] for rank in range(3)], said, time.monotonic() - begun]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each case the exit codes and errors of its three processes, and its seconds."""
    place = tmp_path_factory.mktemp("lifeline")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", SCRIPT, str(place)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def lost(rank: int) -> str:
    again = "start the same command again, it continues from what was saved"
    return f"error: process {rank} on {socket.gethostname()} was lost: {again}\n"


def test_a_killed_process_ends_who_would_wait_for_ever(told: dict[str, Any]) -> None:
    codes, said, seconds = told["killed"]
    assert codes == [2, 2, -9] and said == [lost(2), lost(2), ""] and seconds < PATIENCE
    codes, said, seconds = told["first_killed"]
    assert codes == [-9, 2, 2] and said == ["", lost(0), lost(0)] and seconds < PATIENCE
    codes, said, seconds = told["first_done"]
    assert codes == [2, 2, -9] and said == [lost(2), lost(2), ""] and seconds < PATIENCE


def test_a_process_that_fails_alone_ends_the_others(told: dict[str, Any]) -> None:
    codes, said, _ = told["fails"]
    assert codes == [2, 1, 2] and said[1].endswith("OSError: the disk is full\n")
    assert said[0] == said[2] == f"error: process 1 on {socket.gethostname()} has ended: OSError('the disk is full')\n"


def test_an_error_of_all_is_told_once(told: dict[str, Any]) -> None:
    codes, said, _ = told["all_fail"]
    assert codes == [2, 2, 2] and said == ["error: the same in all\n", "", ""]


@pytest.mark.parametrize("case", ["in_order", "unreachable"])
def test_work_that_ends_in_order_ends_well(case: str, told: dict[str, Any]) -> None:
    assert told[case][:2] == [[0, 0, 0], ["", "", ""]]


def test_a_broken_exchange_is_one_line(told: dict[str, Any]) -> None:
    codes, said, _ = told["loses_one"]
    assert codes == [2, -9, 2] and said == [lost(1), "", lost(1)]
