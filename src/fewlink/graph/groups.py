"""Variable-length lists stored one after the other in an array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Groups:
    """The members of each group: those of group g are `members[offsets[g] : offsets[g + 1]]`."""

    offsets: np.ndarray
    members: np.ndarray

    @classmethod
    def of(cls, groups: np.ndarray, members: np.ndarray, count: int) -> Groups:
        """Group members (n,) by their groups (n,); the members of a group keep their order."""
        order = np.argsort(groups, kind="stable")
        return cls(offsets_of(groups[order], count), members[order])

    def __getitem__(self, group: int) -> np.ndarray:
        return self.members[self.offsets[group] : self.offsets[group + 1]]


def offsets_of(sorted_rows: np.ndarray, rows: int) -> np.ndarray:
    """The position at which each row begins in a list sorted by row: (rows + 1,) int64."""
    counts = np.bincount(sorted_rows, minlength=rows) if len(sorted_rows) else np.zeros(rows, np.int64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def spans(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All positions in the spans [begin, end), one span after the other, and the index of each position's span."""
    lengths = ends - begins
    owners = np.repeat(np.arange(len(begins)), lengths)
    firsts = np.cumsum(lengths) - lengths
    return np.arange(len(owners)) - firsts[owners] + begins[owners], owners
