"""The result of checking a path."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fewlink.core.errors import FewlinkError, InputError, describe

WHOLE = "whole"
DAMAGED = "damaged"
UNKNOWN = "unknown"


@dataclass
class Verified:
    """The result of checking a path: its `kind`, the number of `files` checked, `problems` (damage) and `notes`.

    `unclear` lists the reasons why damage cannot be ruled out.
    """

    path: Path
    kind: str = "unknown"
    files: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Whether the content is whole, damaged, or unknown because it cannot be checked."""
        if self.problems:
            return DAMAGED
        return UNKNOWN if self.unclear else WHOLE

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "kind": self.kind,
            "status": self.status,
            "files": self.files,
            "problems": self.problems,
            "unclear": self.unclear,
            "notes": self.notes,
        }

    def add(self, error: FewlinkError) -> None:
        """Record an error as damage or, if a file cannot be read or is of another version, as unclear."""
        unread = isinstance(error, InputError) and error.problem.startswith("cannot be read")
        other = any(words in str(error) for words in ("newer version of fewlink", "which this version cannot run"))
        target = self.unclear if unread or other else self.problems
        if str(error) not in target:
            target.append(str(error))

    def check(self, read: Callable[[], Any]) -> Any:
        """Return `read()`; if it raises, record the error and return None."""
        try:
            return read()
        except FewlinkError as error:
            self.add(error)
        except (SafetensorError, sqlite3.Error, OSError) as error:
            self.add(FewlinkError(f"{self.path}: {describe(error)}"))
        return None
