"""Names of entities as vectors: hashed character n-grams, or a file that the user has made with a text model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fewlink.core.errors import InputError, reading
from fewlink.core.seeds import scramble
from fewlink.graph import Graph

SIZES = (3, 4, 5)  # of n-grams, in bytes
BEGIN = b"\x02"
END = b"\x03"  # of a name
ENTITIES_AT_ONCE = 1 << 16


def ngram_vectors(graph: Graph, numbers: int) -> np.ndarray:
    """A vector (E, numbers) of each entity's name: signed counts of its n-grams by hash, with a mean square of 1.

    Names are in lower case; the beginning and the end of a name count as characters.
    """
    count = len(graph.entities)
    vectors = np.zeros((count, numbers), np.float32)
    for first in range(0, count, ENTITIES_AT_ONCE):
        names = [graph.name(entity).lower().encode() for entity in range(first, min(first + ENTITIES_AT_ONCE, count))]
        vectors[first : first + len(names)] = _vectors(names, numbers)
    return vectors


def _vectors(names: list[bytes], numbers: int) -> np.ndarray:
    marked = [BEGIN + name + END for name in names]
    lengths = np.array([len(name) for name in marked])
    text = np.frombuffer(b"".join(marked), np.uint8).astype(np.uint64)
    owners = np.repeat(np.arange(len(marked)), lengths)
    total = np.zeros(len(marked) * numbers)
    for size in SIZES:
        count = len(text) - size + 1
        if count <= 0:
            continue
        inside = owners[:count] == owners[size - 1 :]
        keys = np.zeros(count, np.uint64)
        for place in range(size):
            keys = (keys << np.uint64(8)) | text[place : place + count]
        hashes = scramble(keys[inside], seed=size)
        buckets = owners[:count][inside] * numbers + (hashes % np.uint64(numbers)).astype(np.int64)
        signs = np.where(hashes >> np.uint64(63), 1.0, -1.0)
        total += np.bincount(buckets, signs, minlength=len(total))
    vectors = total.reshape(len(marked), numbers)
    scaled: np.ndarray = vectors / np.maximum(np.sqrt(np.square(vectors).mean(1, keepdims=True)), 1e-9)
    return scaled


def read_vectors(file: str) -> np.ndarray:
    """The vectors (E, numbers) in a .npy file; they are read when used."""
    path = Path(file)
    with reading(path, "write it with numpy.save"):
        vectors: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        raise InputError(path, "is not a table of numbers: give an array (entities, numbers) of floats")
    return vectors
