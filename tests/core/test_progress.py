from __future__ import annotations

import pytest

from fewlink.core import progress


def test_long_work_tells_how_long_the_rest_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Work that continues at 500 of 1,000 does 10 a second."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with progress.progress("ranking", 1000) as advance:
        for done in range(500, 1000, 10):
            advance(done, "heads")
            clock[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 6
    assert "ranking" in lines[0] and "heads" in lines[0] and "left" in lines[0]
    done, left = (int("".join(filter(str.isdigit, part))) for part in lines[-1].split(",")[:2])
    assert done * 10 + left * 10 == pytest.approx(1000, abs=20)
