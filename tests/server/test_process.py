"""The process of a server: it ends in time, and neither threads nor garbage hold up others."""

from __future__ import annotations

import gc
import selectors
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from fewlink.server.process import ENDED, READY, SLOW, SWITCH, ShortTurns, end_soon, prepare


def test_a_stopping_process_is_ended() -> None:
    ended, codes = threading.Event(), list[int]()
    end_soon(0.05, lambda code: (codes.append(code), ended.set()))
    assert ended.wait(5) and codes == [ENDED]


def test_a_process_that_is_done_before_does_not_wait_for_its_end() -> None:
    before = set(threading.enumerate())
    end_soon(60, lambda code: None)
    (timer,) = set(threading.enumerate()) - before
    assert isinstance(timer, threading.Timer) and timer.daemon
    timer.cancel()


def test_threads_have_short_turns_and_what_exists_is_not_searched_for_garbage() -> None:
    before, kept = sys.getswitchinterval(), [[number] for number in range(1_000)]
    try:
        prepare()
        assert sys.getswitchinterval() == SWITCH
        assert gc.get_freeze_count() > len(kept)
        assert len(gc.get_objects()) < gc.get_freeze_count() / 10
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


@pytest.fixture
def ready_sockets() -> Iterator[list[socket.socket]]:
    """Many sockets with something to read."""
    pairs = [socket.socketpair() for _ in range(2 * READY + 1)]
    for _, theirs in pairs:
        theirs.send(b"a")
    yield [ours for ours, _ in pairs]
    for pair in pairs:
        for one in pair:
            one.close()


def test_some_of_many_ready_sockets_are_read_at_a_time_and_all_of_them_in_the_end(
    ready_sockets: list[socket.socket],
) -> None:
    seen: set[int] = set()
    with ShortTurns() as selector:
        for one in ready_sockets:
            selector.register(one, selectors.EVENT_READ)
        while len(seen) < len(ready_sockets):
            ready = selector.select(5)
            assert 0 < len(ready) <= READY
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                seen.add(key.fd)
                key.fileobj.recv(1)
        assert selector.select(0) == []


def test_sockets_of_unfinished_requests_come_a_few_at_a_time(
    ready_sockets: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = ready_sockets[0].fileno(), {one.fileno() for one in ready_sockets[1:]}
    monkeypatch.setattr("fewlink.server.process.UNFINISHED", slow)
    with ShortTurns() as selector:
        for one in ready_sockets:
            selector.register(one, selectors.EVENT_READ)
        for _ in range(5):
            ready = {key.fd for key, _ in selector.select(5)}
            assert quick in ready and len(ready) == 1 + SLOW
