"""The access log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fewlink.core.errors import FewlinkError
from fewlink.server.logs import MAX_PATH_LENGTH, AccessLog


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
    assert len(json.loads(second)["path"]) == MAX_PATH_LENGTH


def test_a_rotated_file_is_opened_again(tmp_path: Path) -> None:
    place = tmp_path / "access.log"
    log = AccessLog(str(place))
    place.rename(tmp_path / "access.log.1")
    write(log, "/health")
    log.close()
    assert json.loads(place.read_text())["path"] == "/health"


def test_a_log_that_cannot_be_written_raises_at_the_start(tmp_path: Path) -> None:
    place = str(tmp_path / "none" / "access.log")
    with pytest.raises(FewlinkError, match=place):
        AccessLog(place)


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("-")
    write(log, "/health")
    log.close()
    assert json.loads(capsys.readouterr().out)["path"] == "/health"
