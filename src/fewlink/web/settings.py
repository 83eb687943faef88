"""What a server allows: how much one request may ask, and how many may wait."""

from __future__ import annotations

from dataclasses import dataclass

MOST_REFERENCES = 200
MOST_HEADS = 10_000
MOST_CANDIDATES = 20_000
MOST_K = 1_000
NAME_LENGTH = 500  # characters of one name


@dataclass(frozen=True)
class Settings:
    """Limits of a server. The schema holds for every server; `heads` and `k` are this one's own, and no higher."""

    heads: int = 5_000  # of one request, listed or of a type
    k: int = 100
    rows: int = 10_000  # heads · k
    explained: int = 100  # rows of one request with reasons
    body: int = 1 << 20  # bytes
    waiting: int = 256  # requests in the queue; another one is told to come again
    gather: float = 0.004  # seconds that a request waits for others like it
    together: int = 64  # requests of one turn; 1 answers each by itself
    token: str | None = None
    hosts: frozenset[str] | None = None  # names that the server may be called by; None: any
