"""The pace of long work, on a clock of the test."""

from __future__ import annotations

import pytest

from fewlink.core import progress
from fewlink.core.progress import PACE_REPORTS, Pace


@pytest.fixture()
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_pace_is_known_after_two_parts_and_the_first_is_not_counted(clock: list[float]) -> None:
    pace = Pace(1000, "heads")
    assert str(pace) == "0 of 1,000" and pace.seconds_left is None
    clock[0] = 60.0  # warming up
    pace.report(100)
    assert str(pace) == "100 of 1,000" and pace.seconds_left is None
    clock[0] += 20.0
    pace.report(200)
    assert str(pace) == "200 of 1,000, 5.0 heads/s, 2.7 min left" and pace.seconds_left == pytest.approx(160)


def test_the_pace_is_that_of_the_latest_parts(clock: list[float]) -> None:
    pace = Pace(100_000, "heads")
    done = 0
    for seconds, parts in ((1.0, 50), (10.0, PACE_REPORTS)):
        for _ in range(parts):
            clock[0] += seconds
            done += 32
            pace.report(done)
    assert str(pace) == f"{done:,} of 100,000, 3.2 heads/s, 8.5 h left"
