"""Errors for users: each names the file, line, field or entity and says what to do.

What raises them for any kind of file: other formats, damaged content, changed checksums, and names that are unknown.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar


class FewlinkError(Exception):
    """An error that the user can fix. The command line prints only the message and exits with 2."""


class InputError(FewlinkError):
    """A file that cannot be read, with the line number where there is one."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)  # so that the error can be pickled
        self.path, self.problem, self.line = Path(path), problem, line

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        return f"{where}: {self.problem}"


def wrong_format(path: Path, found: Any, expected: str, remedy: str = "make it again") -> InputError:
    """The error for a file or folder of another format: a newer version of the same one, or any other."""
    kind, number = expected.split("/")
    newer = re.fullmatch(rf"{re.escape(kind)}/(\d{{1,9}})", str(found))
    if newer and int(newer[1]) > int(number):
        return InputError(path, f"was written by a newer version of fewlink (format {found}): update fewlink")
    return InputError(path, f"has format {found!r}, this version of fewlink reads {expected!r}: {remedy}")


class UnknownName(FewlinkError):
    """A name that is not one of the choices; the message suggests the nearest ones."""


class MissingExtra(FewlinkError):
    """An optional dependency that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(purpose, extra)
        self.purpose, self.extra = purpose, extra

    def __str__(self) -> str:
        return f"{self.purpose} needs the extra '{self.extra}': pip install 'fewlink[{self.extra}]'"


class ScoreError(FewlinkError):
    """A scorer returned values that cannot be ranked."""


class ProcessLost(FewlinkError):
    """Another process of the same job was lost, and this one cannot continue without it."""


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


def with_sha256(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with the checksum of all of it, as its last entry `sha256`."""
    return {**content, "sha256": _sha256(json.loads(json.dumps(content)))}


def without_sha256(content: Any, path: Path, line: int | None = None, remedy: str = "restore or remove it") -> Any:
    """What `with_sha256` was given, as it was read from a file; raises if it has changed. It may have no checksum."""
    if not isinstance(content, dict):
        return content
    if "sha256" not in content and not any(map(_nearly_sha256, content)):
        return content
    kept = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256") != _sha256(kept):
        raise InputError(path, f"was changed or damaged since it was written: {remedy}", line)
    return kept


def _nearly_sha256(name: str) -> bool:
    """Whether a name may be the damaged name of the checksum."""
    return len(name) == 6 and sum(a == b for a, b in zip(name, "sha256", strict=True)) >= 3


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
