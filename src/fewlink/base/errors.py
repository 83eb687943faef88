"""Errors for users: each names the file, line, field or entity and says what to do."""

from __future__ import annotations

from pathlib import Path


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
