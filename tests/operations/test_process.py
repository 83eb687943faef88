"""The process of a server: it ends in time."""

from __future__ import annotations

import sys
import threading

from fewlink.operations.process import ENDED, SWITCH, end_soon, prepare


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


def test_threads_have_short_turns() -> None:
    before = sys.getswitchinterval()
    try:
        prepare()
        assert sys.getswitchinterval() == SWITCH
    finally:
        sys.setswitchinterval(before)
