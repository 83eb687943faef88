"""How far a project is: which share of the decided pairs was right, and whether one tail crowds out the rest.

One tail *crowds out the rest* if at least `MIN_ACCEPTED` pairs are accepted and more than `CROWDED` of them have it.
The accepted pairs then say little about the other tails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MIN_ACCEPTED = 8
CROWDED = 2 / 3


class TailCount(NamedTuple):
    """A tail, and how many accepted pairs have it."""

    tail: str
    accepted: int


@dataclass(frozen=True)
class Progress:
    """The numbers of accepted and rejected pairs, and the `tails` of the accepted ones, the most frequent first."""

    accepted: int
    rejected: int
    tails: tuple[TailCount, ...]

    @property
    def decided(self) -> int:
        return self.accepted + self.rejected

    @property
    def right(self) -> float | None:
        """The share of the decided pairs that were accepted; None before the first decision."""
        return self.accepted / self.decided if self.decided else None

    @property
    def crowding(self) -> TailCount | None:
        """The tail that crowds out the rest; None if there is none."""
        if self.accepted < MIN_ACCEPTED or self.tails[0].accepted <= CROWDED * self.accepted:
            return None
        return self.tails[0]

    def warning(self, name: Callable[[str], str] = str) -> str | None:
        """The sentence that warns of a tail that crowds out the rest; `name` makes its id readable."""
        if self.crowding is None:
            return None
        count = "all" if self.crowding.accepted == self.accepted else f"{self.crowding.accepted:,} of"
        return (
            f"{count} {self.accepted:,} accepted pairs have the tail {name(self.crowding.tail)}:"
            " decide pairs with other tails too, or let the most informative come first"
        )
