"""A decided pair as exports write it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A decided pair with its names, its relation, and who decided what and when."""

    head: str
    head_name: str
    relation: str
    tail: str
    tail_name: str
    decision: str
    probability: float | None
    who: str
    time: str

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.head, self.relation, self.tail
