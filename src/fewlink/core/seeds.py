"""Random numbers as a pure function of a seed and of words that name their purpose. There is no global state."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *words: object) -> int:
    """Derive a 64-bit seed for one purpose: `derive(0, "episode", step)`."""
    text = "\x1f".join([str(seed), *map(str, words)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(seed: int, *words: object) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.default_rng(derive(seed, *words))


def scramble(keys: np.ndarray, seed: int = 0) -> np.ndarray:
    """Hash each key to 64 bits (splitmix64); the bits depend only on the key and the seed."""
    with np.errstate(over="ignore"):
        x = keys.astype(np.uint64) + np.uint64(derive(seed, "scramble"))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes_of(pairs: np.ndarray) -> np.ndarray:
    """A hash of each pair of ids (n, 2)."""
    heads, tails = np.asarray(pairs, np.uint64).T
    return scramble(scramble(heads) ^ tails)


def by_hash(pairs: np.ndarray) -> np.ndarray:
    """Distinct pairs of ids (n, 2) in an order that does not depend on theirs."""
    return pairs[np.argsort(hashes_of(pairs))]
