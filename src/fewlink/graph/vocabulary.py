"""Names and ids: a list of distinct names in memory-mapped arrays."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fewlink.base.errors import UnknownName, did_you_mean

NEAREST_SCAN = 200_000  # names searched for "did you mean"


class Interner(dict[bytes, int]):
    """Gives each new name the next id: `interner[name]` is the id of a known or new name."""

    def __missing__(self, name: bytes) -> int:
        self[name] = number = len(self)
        return number

    def ids(self, names: Sequence[bytes]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, names), np.int32, count=len(names))


class Block(NamedTuple):
    """Some triples: `names` has each name once, by first appearance; `codes` (n, 3) are indices into it."""

    names: list[bytes]
    codes: np.ndarray

    @classmethod
    def of(cls, fields: list[bytes]) -> Block:
        """From head, relation, tail, head, relation, …"""
        interner = Interner()
        codes = interner.ids(fields).reshape(-1, 3)
        return cls(list(interner), codes)


class Vocabulary:
    """Distinct names by id, and ids by name through a sorted array of 32-bit checksums.

    Arrays, memory-mapped if opened from a folder: `text` is the concatenation of all names as UTF-8 bytes, and name i
    is `text[ends[i-1]:ends[i]]`; `sums` are the sorted checksums; `order` are the ids in that order.
    """

    ARRAYS = ("text", "ends", "sums", "order")

    def __init__(self, text: np.ndarray, ends: np.ndarray, sums: np.ndarray, order: np.ndarray) -> None:
        self.text, self.ends, self.sums, self.order = text, ends, sums, order

    @classmethod
    def of(cls, names: Iterable[bytes | str]) -> Vocabulary:
        raw = [n.encode() if isinstance(n, str) else n for n in names]
        ends = np.cumsum(np.fromiter(map(len, raw), np.int64, count=len(raw)))
        sums = np.fromiter(map(zlib.crc32, raw), np.uint32, count=len(raw))
        order = np.argsort(sums, kind="stable").astype(np.int32)
        return cls(np.frombuffer(b"".join(raw), np.uint8), ends, sums[order], order)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> str:
        return self._bytes(int(number)).decode()

    def __iter__(self) -> Iterator[str]:
        text, begin = self.text.tobytes(), 0
        for end in self.ends.tolist():
            yield text[begin:end].decode()
            begin = end

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Vocabulary)
            and np.array_equal(self.ends, other.ends)
            and np.array_equal(self.text, other.text)
        )

    __hash__ = None  # type: ignore[assignment]

    def find(self, name: str) -> int | None:
        """The id of a name, or None."""
        raw = name.encode(errors="surrogatepass")  # half a surrogate pair is in no name
        checksum = np.uint32(zlib.crc32(raw))  # another type would convert the whole array
        first, last = (int(np.searchsorted(self.sums, checksum, side)) for side in ("left", "right"))
        for at in range(first, last):
            if self._bytes(number := int(self.order[at])) == raw:
                return number
        return None

    def id(self, name: str, what: str = "name") -> int:
        """The id of a name. Raises if there is none, suggesting the nearest names."""
        number = self.find(name)
        if number is None:
            candidates = (self[i] for i in range(min(len(self), NEAREST_SCAN)))
            raise UnknownName(f"unknown {what} '{name}'{did_you_mean(name, candidates)}")
        return number

    def ids(self, names: Iterable[str], what: str = "name") -> np.ndarray:
        return np.array([self.id(n, what) for n in names], np.int32)

    def index(self) -> dict[str, int]:
        """All ids by name, for looking up many names."""
        return {name: number for number, name in enumerate(self)}

    def take(self, numbers: np.ndarray) -> Vocabulary:
        """The vocabulary of these ids, renumbered in this order."""
        return Vocabulary.of(self._bytes(int(i)) for i in numbers)

    def save(self, folder: Path, prefix: str) -> None:
        for array in self.ARRAYS:
            np.save(folder / f"{prefix}.{array}.npy", getattr(self, array), allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, prefix: str) -> Vocabulary:
        return cls(*(np.load(folder / f"{prefix}.{a}.npy", mmap_mode="r", allow_pickle=False) for a in cls.ARRAYS))

    def _bytes(self, number: int) -> bytes:
        if not 0 <= number < len(self):
            raise IndexError(f"id {number} is outside the {len(self)} names")
        begin = int(self.ends[number - 1]) if number else 0
        return self.text[begin : int(self.ends[number])].tobytes()


def local_name(iri: bytes) -> bytes:
    """What follows the last slash or hash of an http address; any other name as it is."""
    if not iri.startswith((b"http://", b"https://")):
        return iri
    return iri[max(iri.rfind(b"/"), iri.rfind(b"#")) + 1 :] or iri


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if raw.isascii():
        return True
    try:
        codecs.utf_8_decode(raw, "strict", True)
    except UnicodeDecodeError:
        return False
    return True
