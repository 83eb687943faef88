"""The order in which Python 2 lists a set of names, by which the authors' program of FSRL cuts candidates to 1000.

Python 2 does not randomise the hashes of strings: the order is the same for all sets whose tables have the same size.
"""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph

WORD = (1 << 64) - 1
SMALLEST_TABLE = 8  # slots, as in Python 2's sets
MANY = 50_000  # members from which a table doubles instead of growing fourfold


def in_set_order(graph: Graph, ids: np.ndarray) -> np.ndarray:
    """The entities (n,) in the order of a Python 2 set of their names, added in the order of `ids`."""
    hashes = graph.once(name_hashes)[ids].tolist()
    return np.asarray(ids)[set_order(hashes)]


def name_hashes(graph: Graph) -> np.ndarray:
    """Python 2's 64-bit hash of every entity's name (of its UTF-8 bytes): (E,) uint64."""
    text = np.asarray(graph.entities.text)
    ends = np.asarray(graph.entities.ends).astype(np.int64)
    begins = np.append(0, ends)[:-1]
    lengths = ends - begins
    hashes = np.zeros(len(ends), np.uint64)
    filled = np.flatnonzero(lengths)
    hashes[filled] = text[begins[filled]].astype(np.uint64) << np.uint64(7)
    for place in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > place)
        letters = text[begins[longer] + place].astype(np.uint64)
        hashes[longer] = (hashes[longer] * np.uint64(1_000_003)) ^ letters
    hashes ^= lengths.astype(np.uint64)
    hashes[hashes == np.uint64(WORD)] = np.uint64(WORD - 1)  # −1 means an error and becomes −2
    return hashes


def set_order(hashes: list[int]) -> list[int]:
    """The order in which Python 2.7 lists a set whose members, with these hashes, are added one after another."""
    table = _Table(SMALLEST_TABLE)
    for number, value in enumerate(hashes):
        table.add(number, value)
        if 3 * table.members >= 2 * len(table.slots):
            table = table.grown(hashes)
    return [number for number in table.slots if number is not None]


class _Table:
    """A hash table with open addressing; its size is a power of two."""

    def __init__(self, size: int) -> None:
        self.slots: list[int | None] = [None] * size
        self.members = 0

    def add(self, number: int, value: int) -> None:
        """Put a new member into the first free slot of the sequence that its hash defines."""
        mask = len(self.slots) - 1
        slot = perturb = value
        while self.slots[slot & mask] is not None:
            slot = (5 * slot + perturb + 1) & WORD
            perturb >>= 5
        self.slots[slot & mask] = number
        self.members += 1

    def grown(self, hashes: list[int]) -> _Table:
        """A larger table with the same members, added in the order of this one."""
        least = self.members * (2 if self.members > MANY else 4)
        size = SMALLEST_TABLE
        while size <= least:
            size *= 2
        larger = _Table(size)
        for number in self.slots:
            if number is not None:
                larger.add(number, hashes[number])
        return larger
