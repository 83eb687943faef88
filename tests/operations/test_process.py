"""The process of a server: it ends in time, and neither threads nor garbage hold up others."""

from __future__ import annotations

import gc
import sys
import threading

from fewlink.operations.process import ENDED, SWITCH, end_soon, prepare


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
