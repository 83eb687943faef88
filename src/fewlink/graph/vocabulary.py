"""Names and ids: lists of distinct names in arrays that can be memory-mapped, and checks of arrays."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import numpy as np

from fewlink.core.errors import InputError, UnknownName, did_you_mean

MAX_SUGGESTION_NAMES = 200_000  # names searched for "did you mean"
MAX_CHECKED_BYTES = 64 << 20  # larger arrays are memory-mapped, and their values not checked when they are opened


def load_array(path: Path) -> np.ndarray:
    """Open an array (n, …) of a folder, memory-mapped if it is large."""
    mode: Literal["r"] | None = "r" if path.stat().st_size > MAX_CHECKED_BYTES else None
    array: np.ndarray = np.load(path, mmap_mode=mode, allow_pickle=False)
    if array.ndim == 0:
        raise ValueError(f"{path.name} is a number, not an array")
    array.flags.writeable = False
    return array


def check_mapped(*arrays: np.ndarray) -> None:
    """Raise if the file of a memory-mapped array was cut off: reading beyond its end would kill the process."""
    for array in arrays:
        mapped = array.base
        if isinstance(mapped, mmap.mmap) and mapped.size() < len(mapped):
            path = getattr(array, "filename", None) or "a file of the graph"
            raise InputError(path, "was cut off while it was in use: make the folder again, and start again")


def expect_random_reads(*arrays: np.ndarray) -> None:
    """Tell the system not to read ahead in memory-mapped arrays, because they are read here and there."""
    for array in arrays:
        if isinstance(mapped := array.base, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):  # not on Windows
            mapped.madvise(mmap.MADV_RANDOM)


def check_offsets(offsets: np.ndarray, total: int, what: str, count: int | None = None) -> None:
    """Raise ValueError unless offsets (count,) never decrease and end with the total."""
    fits = offsets.ndim == 1 and offsets.dtype.kind in "iu" and count in (None, len(offsets))
    if fits and len(offsets):
        small = offsets.nbytes <= MAX_CHECKED_BYTES
        fits = bool(offsets[0] >= 0 and offsets[-1] == total and not (small and (np.diff(offsets) < 0).any()))
    elif fits:
        fits = not total
    if not fits:
        raise ValueError(f"the offsets of {what} do not fit its content")


def check_ids(ids: np.ndarray, count: int, what: str) -> None:
    """Raise ValueError unless ids (n, …) lie between 0 and count − 1."""
    if ids.dtype.kind not in "iu" or (
        ids.size and ids.nbytes <= MAX_CHECKED_BYTES and not 0 <= int(ids.min()) <= int(ids.max()) < count
    ):
        raise ValueError(f"{what} has ids that are not between 0 and {count - 1}")


def check_edges(edges: Mapping[str, np.ndarray], entities: int, relations: int, labels: Sized | None) -> None:
    """Raise ValueError unless the edge arrays and labels of a graph fit together and have valid ids."""
    count = len(edges["tail_ids"])
    names = entities + relations
    sizes = {len(edges["relation_ids"]), len(edges["positions"]), count}
    if len(sizes) > 1 or (labels is not None and len(labels) != names):
        raise ValueError("the arrays of the graph do not fit together")
    check_offsets(edges["offsets"], count, "the graph", entities + 1)
    for name, limit in (("tail_ids", entities), ("relation_ids", 2 * relations), ("positions", count // 2)):
        check_ids(edges[name], limit, name)


class Interner(dict[bytes, int]):
    """The ids of names. `interner[name]` gives a new name the next id."""

    def __missing__(self, name: bytes) -> int:
        self[name] = number = len(self)
        return number

    def ids(self, names: Sequence[bytes]) -> np.ndarray:
        """The ids (n,) int32 of known or new names."""
        return np.fromiter(map(self.__getitem__, names), np.int32, count=len(names))


class Vocabulary:
    """Distinct names by id, and ids by name through a sorted array of 32-bit checksums.

    Arrays, of which large ones are memory-mapped if opened from a folder: `text` is the concatenation of all names as
    UTF-8 bytes, and name i is `text[ends[i-1]:ends[i]]`; `sums` are the sorted checksums; `order` are the ids in that
    order.
    """

    ARRAYS = ("text", "ends", "sums", "order")

    def __init__(self, text: np.ndarray, ends: np.ndarray, sums: np.ndarray, order: np.ndarray) -> None:
        self.text = text
        self.ends = ends
        self.sums = sums
        self.order = order

    @classmethod
    def of(cls, names: Iterable[bytes | str]) -> Vocabulary:
        """Make a vocabulary from names in the order of their ids."""
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
        text = self.text.tobytes()
        begin = 0
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
        raw = name.encode(errors="surrogatepass")  # no name contains a lone surrogate
        checksum = np.uint32(zlib.crc32(raw))  # another type would convert the whole array
        first, last = (int(np.searchsorted(self.sums, checksum, side)) for side in ("left", "right"))
        for at in range(first, last):
            if self._bytes(number := int(self.order[at])) == raw:
                return number
        return None

    def id(self, name: str, what: str = "name") -> int:
        """The id of a name. Raise if it is unknown, suggesting similar names."""
        number = self.find(name)
        if number is None:
            candidates = (self[i] for i in range(min(len(self), MAX_SUGGESTION_NAMES)))
            raise UnknownName(f"unknown {what} '{name}'{did_you_mean(name, candidates)}")
        return number

    def ids(self, names: Iterable[str], what: str = "name") -> np.ndarray:
        """The ids (n,) int32 of names. Raise if one is unknown, as `id` does."""
        return np.array([self.id(n, what) for n in names], np.int32)

    def index(self) -> dict[str, int]:
        """A dict of all ids by name, for looking up many names."""
        return {name: number for number, name in enumerate(self)}

    def take(self, numbers: np.ndarray) -> Vocabulary:
        """The vocabulary of these ids, renumbered in this order."""
        return Vocabulary.of(self._bytes(int(i)) for i in numbers)

    def save(self, folder: Path, prefix: str) -> None:
        for array in self.ARRAYS:
            np.save(folder / f"{prefix}.{array}.npy", getattr(self, array), allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, prefix: str) -> Vocabulary:
        """Open a vocabulary that `save` wrote. Raise ValueError if its arrays do not fit together."""
        text, ends, sums, order = (load_array(folder / f"{prefix}.{array}.npy") for array in cls.ARRAYS)
        if text.dtype != np.uint8 or sums.dtype != np.uint32 or not len(ends) == len(sums) == len(order):
            raise ValueError(f"the arrays of {prefix} do not fit together")
        check_offsets(ends, len(text), prefix)
        check_ids(order, len(ends), prefix)
        if text.nbytes <= MAX_CHECKED_BYTES:
            text.tobytes().decode()  # UnicodeDecodeError is a ValueError
            begins = ends[ends < len(text)]
            if bool((text[begins] & 0xC0 == 0x80).any()):
                raise ValueError(f"a name of {prefix} ends inside a character")
        return cls(text, ends, sums, order)

    def _bytes(self, number: int) -> bytes:
        if not 0 <= number < len(self):
            raise IndexError(f"id {number} is outside the {len(self)} names")
        begin = int(self.ends[number - 1]) if number else 0
        return self.text[begin : int(self.ends[number])].tobytes()


def labels_of(entities: Vocabulary, relations: Vocabulary, texts: Mapping[str, str]) -> Vocabulary:
    """Readable names by id; an entity or relation without one keeps its id."""
    return Vocabulary.of(texts.get(name, name) for vocabulary in (entities, relations) for name in vocabulary)


FEWLINK_IRI_PREFIXES = ("urn:fewlink:entity:", "urn:fewlink:relation:")  # of ids that are no IRIs, in exported RDF


def unquoted(iri: str) -> str:
    """The id that an IRI with one of fewlink's prefixes encodes; any other IRI unchanged."""
    prefix = next((prefix for prefix in FEWLINK_IRI_PREFIXES if iri.startswith(prefix)), None)
    if prefix is None:
        return iri
    try:
        return unquote(iri.removeprefix(prefix), errors="strict") or iri
    except UnicodeDecodeError:
        return iri
