"""The process of a server: it ends in time, and neither threads nor garbage hold up others."""

from __future__ import annotations

import gc
import socket
import sys
import threading

from fewlink.operations.process import ENDED, READY, SWITCH, ShortTurns, end_soon, prepare


def test_a_stopping_process_is_ended() -> None:
    ended, codes = threading.Event(), list[int]()
    end_soon(0.05, lambda code: (codes.append(code), ended.set()))
    assert ended.wait(5) and codes == [ENDED]


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


def test_some_of_many_ready_sockets_are_read_at_a_time_and_all_of_them_in_the_end() -> None:
    pairs = [socket.socketpair() for _ in range(2 * READY + 1)]
    seen: set[int] = set()
    with ShortTurns() as selector:
        for ours, theirs in pairs:
            selector.register(ours, 1)
            theirs.send(b"a")
        while len(seen) < len(pairs):
            ready = selector.select(5)
            assert 0 < len(ready) <= READY
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                seen.add(key.fd)
                key.fileobj.recv(1)
        assert selector.select(0) == []
    for pair in pairs:
        for one in pair:
            one.close()
