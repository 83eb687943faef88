"""JSON that is read value by value, so that a large array takes no more memory than its largest element."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

from fewlink.core.errors import unique_keys
from fewlink.graph.source import MAX_LINE_BYTES

PIECE_BYTES = 1 << 16
WHITE_SPACE = " \t\n\r"


class NotJson(ValueError):
    """What is not JSON in a text, and on which line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"is not valid JSON ({problem})")
        self.line = line


class JsonText:
    """The text of a JSON file from the current place on. Every method raises `NotJson` where it is none."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.decode = codecs.getincrementaldecoder("utf-8")().decode
        self.scan = json.JSONDecoder(object_pairs_hook=unique_keys).raw_decode
        self.text = ""
        self.at = 0
        self.ended = False
        self.line = 1
        self.counted = 0  # the line of a place in `text`

    def next(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in WHITE_SPACE:
                self.at += 1
            if self.at < len(self.text) or not self._read(PIECE_BYTES):
                return self.text[self.at : self.at + 1]

    def take(self, mark: str) -> bool:
        """Whether the next character is this one, which is then passed."""
        found = self.next() == mark
        self.at += found
        return found

    def expect(self, mark: str) -> None:
        """Pass this character. Raise if the next one is another."""
        if not self.take(mark):
            raise self.error(f"'{mark}' is missing")

    def value(self) -> Any:
        """The next value."""
        self.next()
        size = PIECE_BYTES
        while True:
            try:
                value, end = self.scan(self.text, self.at)
            except RecursionError:
                raise self.error("objects and lists are nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(self.text) - self.at > MAX_LINE_BYTES:
                    raise self.error(f"{error.msg}, or a value of over {MAX_LINE_BYTES:,} bytes", error.pos) from None
                if not self._read(size):
                    raise self.error(error.msg, self.at if error.pos > len(self.text) else error.pos) from None
                size *= 2
            except ValueError as error:  # of unique_keys
                raise self.error(str(error), self.at) from None
            else:
                if end == len(self.text) and self._read(PIECE_BYTES):  # a number may go on
                    continue
                self.at = end
                return value

    def elements(self) -> Iterator[Any]:
        """The elements of the next value, an array."""
        self.expect("[")
        if self.take("]"):
            return
        while True:
            yield self.value()
            if not self.take(","):
                self.expect("]")
                return

    def members(self) -> Iterator[str]:
        """The keys of the next value, an object; the caller reads the value after each. Raise if a key is repeated."""
        self.expect("{")
        if self.take("}"):
            return
        keys = set[str]()
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.error("a key is not text")
            if key in keys:
                raise self.error(f"key '{key}' is repeated")
            keys.add(key)
            self.expect(":")
            yield key
            if not self.take(","):
                self.expect("}")
                return

    def end(self) -> None:
        """Raise unless nothing follows."""
        if self.next():
            raise self.error("text follows the end")

    def error(self, problem: str, at: int | None = None) -> NotJson:
        """An error at a place of `text`, or else at the current one."""
        if at is None:
            problem += "" if self.next() else ": the file is cut off"
            at = self.at
        return NotJson(problem, self.line + self.text.count("\n", self.counted, at))

    def line_number(self) -> int:
        """The line of the current place."""
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line

    def _read(self, size: int) -> bool:
        """Read on, and forget what is before the current place; False at the end of the file."""
        if self.ended:
            return False
        raw = self.file.read(size)
        self.ended = not raw
        self.line_number()
        self.text = self.text[self.at :]
        self.at = 0
        self.counted = 0
        try:
            self.text += self.decode(raw, self.ended)
        except UnicodeDecodeError:
            raise NotJson("it is not UTF-8 text", self.line + self.text.count("\n")) from None
        return not self.ended
