"""Log lines of a server: one JSON object for each request, and a limit on messages that repeat."""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fewlink.core.errors import FewlinkError

WAITING = 10_000  # lines that wait to be written; further ones are dropped
PATH_LENGTH = 200  # characters of a path that are logged
EVERY = 10.0  # seconds in which the same message is logged once


class AccessLog:
    """Writes a line of JSON for each request to a file (appended to) or, for "-", to standard output.

    Lines are written by a thread, so that a slow disk does not hold up requests. Neither the query of an address nor
    the content of a request is logged.
    """

    def __init__(self, place: str) -> None:
        self.place, self.dropped = place, 0
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._file = self._opened()
        self._thread = threading.Thread(target=self._write, name="fewlink-access-log", daemon=True)
        self._thread.start()

    def _opened(self) -> IO[str]:
        if self.place == "-":
            return sys.stdout
        try:
            return Path(self.place).open("a", encoding="ascii", buffering=1)
        except OSError as error:
            raise FewlinkError(
                f"cannot write the access log to {self.place} ({error.strerror}): choose another file, or - for "
                "standard output"
            ) from None

    def write(
        self, *, client: str, method: str, path: str, status: int, seconds: float, size: int, waited: float
    ) -> None:
        """The line of a request: `size` are the bytes of the answer's body, `waited` the seconds in the queue."""
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": client,
            "method": method,
            "path": path[:PATH_LENGTH],
            "status": status,
            "seconds": round(seconds, 4),
            "bytes": size,
            "queue_seconds": round(waited, 4),
        }
        try:
            self._lines.put_nowait(json.dumps(line))  # ASCII: control characters are escaped
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is waiting, for at most two seconds."""
        try:
            self._lines.put(None, timeout=1)
            self._thread.join(1)
        except queue.Full:
            pass

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                print(line, file=self._file, flush=True)
            except (OSError, ValueError):  # the disk is full, or the reader of standard output has gone
                self.dropped += 1
        if self._file is not sys.stdout:
            self._file.close()


class RepeatLimit(logging.Filter):
    """Lets each message of a logger pass once in `every` seconds; then it says how often it was left out."""

    def __init__(self, every: float = EVERY, most: int = 1_000) -> None:
        super().__init__()
        self.every, self.most = every, most
        self._seen: dict[object, tuple[float, int]] = {}  # when it passed last, and how often it was left out since
        self._guard = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info and record.exc_info[0] else None
        key, now = (record.name, str(record.msg), kind), time.monotonic()
        with self._guard:
            last, count = self._seen.get(key, (-self.every, 0))
            if now - last < self.every:
                self._seen[key] = (last, count + 1)
                return False
            if len(self._seen) >= self.most:
                self._seen.clear()
            self._seen[key] = (now, 0)
        if count:
            record.msg = f"{record.msg} (and {count:,} times more in the last {now - last:.0f} s)"
        return True


def limit_repeats(*loggers: str, every: float = EVERY) -> None:
    """Limit repeated messages of these loggers; calling it again changes nothing."""
    for name in loggers:
        logger = logging.getLogger(name)
        if not any(isinstance(one, RepeatLimit) for one in logger.filters):
            logger.addFilter(RepeatLimit(every))
