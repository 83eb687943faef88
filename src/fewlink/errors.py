"""The errors a user may see: each names the file, line, field or entity and says what to do."""

from __future__ import annotations

from pathlib import Path


class FewlinkError(Exception):
    """Anything the user can put right. The command line prints the message alone and exits with 2."""


class InputError(FewlinkError):
    """A file that cannot be read as asked, with its line where there is one."""

    def __init__(self, path: str | Path, problem: str, line: int | None = None) -> None:
        self.path, self.problem, self.line = Path(path), problem, line
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")


class UnknownName(FewlinkError):
    """A name that is not among the choices; the message lists the nearest ones."""


class MissingExtra(FewlinkError):
    """An optional dependency that is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs the extra '{extra}': pip install 'fewlink[{extra}]'")


class ScoreError(FewlinkError):
    """A scorer that gave something no rank can be read from."""
