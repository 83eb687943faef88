"""The order in which Python 2 lists a set of names, by which the authors' program of FSRL cuts candidates to 1000.

Python 2 does not randomise the hashes of strings: the order is the same for all sets whose tables have the same size.
"""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph

WORD = (1 << 64) - 1  # the bits of a machine word, to which Python's hashes are cut
SMALLEST_TABLE = 8  # slots, as in Python 2's sets
MANY = 50_000  # members from which a table doubles instead of growing fourfold


def in_set_order(graph: Graph, ids: np.ndarray) -> np.ndarray:
    """The entities (n,) in the order of a Python 2 set of their names, added in the order of `ids`."""
    hashes = [name_hash(graph.entities[number]) for number in ids.tolist()]
    return np.asarray(ids)[set_order(hashes)]


def name_hash(name: str) -> int:
    """Python 2's 64-bit hash of a name in UTF-8, which is not empty."""
    letters = name.encode()
    value = letters[0] << 7
    for letter in letters:
        value = (value * 1_000_003 ^ letter) & WORD
    value ^= len(letters)
    return value if value != WORD else WORD - 1  # −1 means an error and becomes −2


def set_order(hashes: list[int]) -> list[int]:
    """The order in which Python 2.7 lists a set whose members, with these hashes, are added one after another."""
    table: list[int | None] = [None] * SMALLEST_TABLE
    for number, value in enumerate(hashes):
        _add(table, number, value)
        members = number + 1
        if 3 * members < 2 * len(table):
            continue
        size = SMALLEST_TABLE
        while size <= members * (2 if members > MANY else 4):
            size *= 2
        listed = [each for each in table if each is not None]
        table = [None] * size
        for each in listed:
            _add(table, each, hashes[each])
    return [each for each in table if each is not None]


def _add(table: list[int | None], number: int, value: int) -> None:
    """Put a new member into the first free slot of the sequence that its hash defines; the size is a power of two."""
    mask = len(table) - 1
    slot = perturb = value
    while table[slot & mask] is not None:
        slot = (5 * slot + perturb + 1) & WORD
        perturb >>= 5
    table[slot & mask] = number
