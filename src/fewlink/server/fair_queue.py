"""A queue that serves clients in turn, and of each client's work first what is due first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class Entry(Generic[T]):
    """An item in the queue.

    `due` orders the items of one client: the time of arrival plus the seconds that the whole request takes, so that
    small requests go first and large ones are not put off for ever. `seconds` are those of this item, `left` those of
    its whole request. Items with the same `key` can be taken together.
    """

    item: T
    client: str
    due: float = 0.0
    seconds: float = 0.0
    left: float = 0.0
    key: Hashable = None
    started: float | None = None  # when it was taken


class FairQueue(Generic[T]):
    """Entries by client. Not thread-safe."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, list[Entry[T]]] = OrderedDict()  # the one whose turn is next first

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def put(self, entry: Entry[T]) -> None:
        self._clients.setdefault(entry.client, []).append(entry)

    def discard(self, entry: Entry[T]) -> None:
        """Remove an entry if it is still there."""
        entries = self._clients.get(entry.client, [])
        if entry in entries:
            entries.remove(entry)
        if not entries:
            self._clients.pop(entry.client, None)

    def clear(self) -> list[Entry[T]]:
        """Remove and return all entries."""
        entries = [entry for own in self._clients.values() for entry in own]
        self._clients.clear()
        return entries

    def has(self, most_left: float = float("inf")) -> bool:
        """Whether there is an entry of a request with at most so many seconds left."""
        return any(entry.left <= most_left for own in self._clients.values() for entry in own)

    def take(self, together: int = 1, seconds: float = float("inf"), most_left: float = float("inf")) -> list[Entry[T]]:
        """The entry whose turn it is, and others with its key: at most `together`, and so many seconds in all.

        Only entries of requests with at most `most_left` seconds left are taken. Empty if there is none.
        """
        ready = [entry for own in self._clients.values() for entry in own if entry.left <= most_left]
        if not ready:
            return []
        client = ready[0].client
        first = min((entry for entry in ready if entry.client == client), key=lambda entry: entry.due)
        self._clients.move_to_end(client)
        taken, total = [first], first.seconds
        for entry in sorted(ready, key=lambda entry: entry.due):
            if entry is not first and entry.key == first.key:
                if len(taken) >= together or total + entry.seconds > seconds:
                    break
                taken.append(entry)
                total += entry.seconds
        for entry in taken:
            self.discard(entry)
        return taken
