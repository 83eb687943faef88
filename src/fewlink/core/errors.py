"""Errors for users: each names the file, line, field or entity and says what to do; names looked up in tables.

Names come from files of strangers. `shown`, `json_shown` and `table_cell` write them so that they can neither control a
terminal nor run a formula in a spreadsheet.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

# What a terminal obeys or that reorders text: C0 and C1 controls, line separators, bidirectional embeddings, overrides
# and isolates; and halves of surrogate pairs, which cannot be written.
CONTROLS = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
CONTROL = re.compile(f"[{CONTROLS}]")
CONTROL_IN_LINES = re.compile(f"(?![\\n\\t])[{CONTROLS}]")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # how a formula begins; spreadsheets take wide signs too
SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shown(text: object, *, lines: bool = False) -> str:
    """The text with control characters written as `\\x1b` or `\\u202e`, on one line; with `lines`, \\n and \\t stay."""
    return (CONTROL_IN_LINES if lines else CONTROL).sub(_escape, str(text))


def json_shown(text: str) -> str:
    """JSON text without raw control characters except line ends; it stands for the same value."""
    return CONTROL_IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def table_cell(text: object, *, exact: bool = False) -> str:
    """A cell of tab-separated text: control characters as in `shown`, and a backslash as two.

    Unless `exact`, one that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    cell = shown(str(text).replace("\\", "\\\\"))
    return f"'{cell}" if not exact and cell.startswith(FORMULA) else cell


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


class FewlinkError(Exception):
    """An error that the user can fix. The command line prints only the message, on one line, and exits with 2."""

    def __str__(self) -> str:
        return shown(super().__str__())


class InputError(FewlinkError):
    """A file that cannot be read, with the line number where there is one."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)  # so that the error can be pickled
        self.path, self.problem, self.line = Path(path), problem, line

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        return shown(f"{where}: {self.problem}")


OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # what a shell gives a command for <(…)


def check_file(path: str | Path) -> None:
    """Raise if a path is not that of a file: opening a FIFO would wait for a writer, and a device has no end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise InputError(path, f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if stat.S_ISDIR(mode):
        raise InputError(path, "cannot be read (Is a directory)")
    if not stat.S_ISREG(mode) and not str(path).startswith(OPEN_PIPES):
        kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise InputError(path, f"cannot be read (it is {kind}, not a file)")


def read_file(path: str | Path) -> bytes:
    """The content of a small file. Raises if it cannot be read."""
    check_file(path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file; raises ValueError if a key comes twice, of which Python would keep the last."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key '{twice}' comes twice")
    return content


def wrong_format(path: Path, found: Any, expected: str, remedy: str = "make it again") -> InputError:
    """The error for a file or folder of another format: a newer version of the same one, or any other."""
    kind, number = expected.split("/")
    newer = re.fullmatch(rf"{re.escape(kind)}/(\d{{1,9}})", str(found))
    if newer and int(newer[1]) > int(number):
        return InputError(path, f"was written by a newer version of fewlink (format {found}): update fewlink")
    return InputError(path, f"has format {found!r}, this version of fewlink reads {expected!r}: {remedy}")


class UnknownName(FewlinkError):
    """A name that is not one of the choices; the message suggests the nearest ones.

    `name` is that name; `field` says where it stands in the question, such as `references.0.1`, if that is known.
    """

    def __init__(self, message: str, name: str = "", field: str = "") -> None:
        super().__init__(message)
        self.name, self.field = name, field


class MissingExtra(FewlinkError):
    """An optional dependency that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(purpose, extra)
        self.purpose, self.extra = purpose, extra

    def __str__(self) -> str:
        return f"{self.purpose} needs the extra '{self.extra}': pip install 'fewlink[{self.extra}]'"


class ScoreError(FewlinkError):
    """A scorer returned values that cannot be ranked."""


T = TypeVar("T")


@contextlib.contextmanager
def reading(path: str | Path, remedy: str) -> Iterator[None]:
    """Turn whatever damaged or crafted content raises while it is read into an error that names the file.

    For the reading itself only: what is computed afterwards may have bugs, and these have to show.
    """
    try:
        yield
    except FewlinkError:
        raise
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise InputError(path, f"is damaged ({describe(error)}): {remedy}") from None


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an error of the operating system while `path` is written into one that names it and the reason.

    safetensors reports a full disk by an error of its own.
    """
    try:
        yield
    except OSError as error:
        raise FewlinkError(f"{path} cannot be written ({error.strerror or error})") from None
    except Exception as error:
        if type(error).__name__ != "SafetensorError":
            raise
        reason = re.search(r"I/O error: (.*) \(os error", str(error))
        raise FewlinkError(f"{path} cannot be written ({reason[1] if reason else describe(error)})") from None


def describe(error: Exception) -> str:
    """The kind and message of an error in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:200]}" if message else type(error).__name__


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """`table[name]`. Raises if the name is unknown, listing the choices."""
    if name in table:
        return table[name]
    raise UnknownName(f"unknown {what} '{name}'{did_you_mean(name, table) or '.'} Choices: {', '.join(table)}")


def did_you_mean(name: str, names: Iterable[str], count: int = 3) -> str:
    """`; did you mean 'a' or 'b'?`, or an empty text if no name is near."""
    near = difflib.get_close_matches(name, list(names), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
