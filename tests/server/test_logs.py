"""The access log, and messages that repeat."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.server.logs import AccessLog, RepeatLimit, limit_repeats


def write(log: AccessLog, path: str) -> None:
    log.write(client="10.0.0.1", method="GET", path=path, status=200, seconds=0.12345, size=17, waited=0.05)


def test_a_request_is_a_line_of_json_with_control_characters_escaped(tmp_path: Path) -> None:
    place = tmp_path / "access.log"
    place.write_text("earlier\n")
    log = AccessLog(str(place))
    write(log, "/a\n\x1b]52;c;x\x07\u202e")
    write(log, "/" + "x" * 1_000)
    log.close()
    earlier, first, second = place.read_text("ascii").splitlines()
    assert earlier == "earlier" and first.isprintable()
    line = json.loads(first)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "client": "10.0.0.1",
        "method": "GET",
        "path": "/a\n\x1b]52;c;x\x07\u202e",
        "status": 200,
        "seconds": 0.1235,
        "bytes": 17,
        "queue_seconds": 0.05,
    }
    assert len(json.loads(second)["path"]) == 200


def test_a_log_that_cannot_be_written_raises_at_the_start_and_later_lines_are_counted(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"cannot write the access log to .*: choose another file, or -"):
        AccessLog(str(tmp_path / "none" / "access.log"))
    log = AccessLog(str(tmp_path / "access.log"))
    log._file.close()
    write(log, "/")
    log.close()
    assert log.dropped == 1


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("-")
    write(log, "/health")
    log.close()
    assert json.loads(capsys.readouterr().out)["path"] == "/health"


def test_repeated_messages_are_counted_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("fewlink.server.logs.time.monotonic", lambda: now)
    logger = logging.getLogger("fewlink.test.repeats")
    limit_repeats(logger.name, every=10)
    limit_repeats(logger.name, every=10)
    assert len([one for one in logger.filters if isinstance(one, RepeatLimit)]) == 1
    for _ in range(1_000):
        logger.error("out of files %d", 7)
    logger.error("something else")
    now = 12.0
    logger.error("out of files %d", 7)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "out of files 7",
        "something else",
        "out of files 7 (and 999 times more in the last 12 s)",
    ]
