"""The access log: one line of JSON per request."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import queue
import sys
from datetime import UTC, datetime
from typing import Any

from fewlink.core.errors import FewlinkError

MAX_QUEUED_LINES = 10_000  # further lines are dropped
MAX_PATH_LENGTH = 200  # longer paths are cut


class JsonFormatter(logging.Formatter):
    """Formats a record whose message is a dict as ASCII, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        assert isinstance(record.msg, dict)
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": time, **record.msg})


class DroppingQueueHandler(logging.handlers.QueueHandler):
    """Drops records when the queue is full, so that a slow disk does not hold up requests."""

    def enqueue(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


class AccessLog:
    """Appends lines to a file, or writes them to standard output if `place` is "-", in a separate thread.

    It never logs the query string, the headers or the body of a request. The file may be rotated at any time.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        lines: queue.Queue[Any] = queue.Queue(MAX_QUEUED_LINES)
        handler = DroppingQueueHandler(lines)
        handler.setFormatter(JsonFormatter())
        self._logger = logging.Logger("fewlink.access")
        self._logger.addHandler(handler)
        self._sink = _open(place)
        self._listener = logging.handlers.QueueListener(lines, self._sink)
        self._listener.start()

    def write(
        self, *, client: str, method: str, path: str, status: int, seconds: float, size: int, waited: float
    ) -> None:
        """Log one request. `size` is the length of the response body; `waited` is the time in the queue."""
        line = {
            "client": client,
            "method": method,
            "path": path[:MAX_PATH_LENGTH],
            "status": status,
            "seconds": round(seconds, 4),
            "bytes": size,
            "queue_seconds": round(waited, 4),
        }
        self._logger.info(line)

    def close(self) -> None:
        """Write the queued lines and close the file."""
        self._listener.stop()
        self._sink.close()


def _open(place: str) -> logging.Handler:
    if place == "-":
        return logging.StreamHandler(sys.stdout)
    try:
        return logging.handlers.WatchedFileHandler(place, encoding="ascii")
    except OSError as error:
        raise FewlinkError(
            f"cannot write the access log to {place} ({error.strerror}): choose another file, or - for standard output"
        ) from None
