"""Errors that a user can fix. Each names the file, line, field or entity, and says what to do.

Names may come from untrusted files. `shown`, `json_shown` and `table_cell` escape them, so that a name can neither
control a terminal nor run a formula in a spreadsheet.
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

# Characters that control a terminal or reorder text: C0 and C1 controls, line separators, bidirectional marks,
# embeddings, overrides and isolates; and lone surrogates, which cannot be encoded.
CONTROLS = "\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
CONTROL = re.compile(f"[{CONTROLS}]")
CONTROL_IN_LINES = re.compile(f"(?![\\n\\t])[{CONTROLS}]")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # first characters of a formula, full-width ones too
CLONE = Path(__file__).parents[3]  # the repository, if fewlink is installed from a clone
SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def shown(text: object, *, lines: bool = False) -> str:
    """The text with control characters written as `\\x1b` or `\\u202e`, on one line; with `lines`, \\n and \\t stay."""
    return (CONTROL_IN_LINES if lines else CONTROL).sub(_escape, str(text))


def json_shown(text: str) -> str:
    """JSON text with control characters except line ends escaped; its value stays the same."""
    return CONTROL_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table_cell(text: object, *, exact: bool = False) -> str:
    """A cell of tab-separated text, with control characters escaped as in `shown` and backslashes doubled.

    Unless `exact`, an apostrophe goes before text that a spreadsheet would run as a formula.
    """
    cell = shown(str(text).replace("\\", "\\\\"))
    return f"'{cell}" if not exact and cell.startswith(FORMULA) else cell


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return SHORT_ESCAPES.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


class FewlinkError(Exception):
    """An error that the user can fix. The command line prints its message on one line and exits with code 2."""

    def __str__(self) -> str:
        return shown(super().__str__())


class InputError(FewlinkError):
    """A problem with a file or folder, and its line number if it concerns one line."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)  # so that the error can be pickled
        self.path = Path(path)
        self.problem = problem
        self.line = line

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        return shown(f"{where}: {self.problem}")


OPEN_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # paths that a shell passes for <(…)


def check_file(path: str | Path) -> None:
    """Raise if a path is not a regular file: opening a FIFO would block, and a device never ends."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise InputError(path, f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if stat.S_ISDIR(mode):
        raise InputError(path, "cannot be read (Is a directory)")
    if not stat.S_ISREG(mode) and not str(path).startswith(OPEN_PIPES):
        raise InputError(path, "cannot be read (it is a FIFO, a socket or a device, not a file)")


def read_file(path: str | Path) -> bytes:
    """Read a small file whole. Raise if it cannot be read."""
    check_file(path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of a JSON object's pairs. Raise ValueError if a key is repeated: `json` would keep the last value."""
    content = dict(pairs)
    if len(content) < len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key '{repeated}' is repeated")
    return content


def wrong_format(path: Path, actual: Any, expected: str, remedy: str = "make it again") -> InputError:
    """The error for a file or folder in a newer version of the expected format, or in another format."""
    kind, number = expected.split("/")
    newer = re.fullmatch(rf"{re.escape(kind)}/(\d{{1,9}})", str(actual))
    if newer and int(newer[1]) > int(number):
        return InputError(path, f"was written by a newer version of fewlink (format {actual}): update fewlink")
    return InputError(path, f"has format {actual!r}, but this version of fewlink reads {expected!r}: {remedy}")


class UnknownName(FewlinkError):
    """A name that is not one of the choices; the message suggests similar ones.

    `name` is the unknown name; `field` is its place in the question, such as `references.0.1`, or empty.
    """

    def __init__(self, message: str, name: str = "", field: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.field = field


class MissingExtra(FewlinkError):
    """An optional dependency that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(purpose, extra)
        self.purpose = purpose
        self.extra = extra

    def __str__(self) -> str:
        install = f"pip install 'fewlink[{self.extra}]'"
        if (CLONE / "constraints.txt").is_file():
            install = f"in {CLONE}, pip install -c constraints.txt -e '.[{self.extra}]'"
        return shown(f"{self.purpose} needs the extra '{self.extra}': {install}")


class ScoreError(FewlinkError):
    """A scorer returned values that cannot be ranked."""


T = TypeVar("T")


@contextlib.contextmanager
def reading(path: str | Path, remedy: str) -> Iterator[None]:
    """Turn any exception that damaged or malicious content causes into an error that names the file.

    Wrap the reading only, so that bugs in later computations still surface.
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
    """Turn a system error while writing `path` into an error with the path and the reason.

    safetensors reports a full disk with its own exception type.
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
    """The type and message of an exception, on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:200]}" if message else type(error).__name__


def choose(what: str, name: str, table: Mapping[str, T]) -> T:
    """Look up a name in a table. Raise if it is unknown, listing the choices."""
    if name in table:
        return table[name]
    raise UnknownName(f"unknown {what} '{name}'{did_you_mean(name, table) or '.'} Choices: {', '.join(table)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'a' or 'b'?`, or an empty string if no name is similar."""
    similar = difflib.get_close_matches(name, list(names))
    return f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
