"""A search index over names, in arrays that can be memory-mapped: by the beginning of a name or word, by substring, or
by similarity."""

from __future__ import annotations

import bisect
import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fewlink.core.threads import distinct
from fewlink.graph.vocabulary import Vocabulary, load_array

SORTED_BYTES = 16  # word starts are sorted by these; longer queries are then filtered byte by byte
CHUNK_BYTES = 1 << 22  # of names whose words are found together: their keys take some 100 MB
CHUNK_NAMES = 1 << 18  # names that are folded together, about as much text
CONTAINING_BYTES = 1 << 28  # of names, up to which all of them are searched for a part of a word
SIMILAR_BYTES = 1 << 26  # up to which they are searched for a similar name
ALIKE_WORDS = 2_000  # of more names, at most this many that begin like a word of a misspelt one are compared with it
SHORTEST = 3  # letters that they have in common with it
NEWLINE = ord("\n")

_CONCEPT = re.compile(r"^concept:(?:[^\n]*:)?", re.MULTILINE)
_OUTER_SPACES = re.compile(r"^[^\S\n]+|[^\S\n]+$", re.MULTILINE)
_LETTER = np.zeros(256, bool)
_LETTER[[*range(48, 58), *range(97, 123), *range(128, 256)]] = True

Keys = tuple[np.ndarray, np.ndarray, np.ndarray]  # the first and the next eight bytes of words, and their offsets
Sorter = Callable[[Iterator[Keys]], Iterator[np.ndarray]]


def fold(text: str) -> str:
    """Text in lower case and in one Unicode normal form, so that equal-looking names compare equal."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def readable(text: str) -> str:
    """Each line as `Graph.name` writes it: without `concept:type:`, underscores and outer spaces."""
    return spaced(_CONCEPT.sub("", text) if "concept:" in text else text)


def spaced(text: str) -> str:
    """Each line with underscores replaced by spaces, and without outer spaces."""
    return _OUTER_SPACES.sub("", text.replace("_", " "))


def lines_of(names: Vocabulary, first: int, last: int) -> str:
    """The names with ids from `first` to before `last`, one per line; a space replaces each line break in a name."""
    begin = int(names.ends[first - 1]) if first else 0
    ends = np.asarray(names.ends[first:last]) - begin
    text = np.array(names.text[begin : begin + int(ends[-1]) if len(ends) else begin])
    text[text == NEWLINE] = 32
    lines = np.full(len(text) + len(ends), NEWLINE, np.uint8)
    inside = np.ones(len(lines), bool)
    inside[ends + np.arange(len(ends))] = False
    lines[inside] = text
    return lines.tobytes().decode()


class NameIndex:
    """A search index over folded names.

    Shapes: `bytes` (b,) uint8, all names, a line break before the first and after each; `begins` (names,) their offsets
    in it; `starts` (words,) the offsets of words, sorted by the text that follows.
    """

    ARRAYS = ("bytes", "begins", "starts")

    def __init__(self, bytes: np.ndarray, begins: np.ndarray, starts: np.ndarray) -> None:
        self.bytes = bytes
        self.begins = begins
        self.starts = starts

    @classmethod
    def of(cls, lines: str, *, words: bool) -> NameIndex:
        """The index over names, one per line; `words` says whether it finds each word or the beginnings of names."""
        text = np.frombuffer(b"\n" + fold(lines).encode(), np.uint8)
        begins = np.flatnonzero(text == NEWLINE)[:-1] + 1
        starts = np.concatenate([np.zeros(0, np.int64), *sorted_in_memory(_keys(text, words))])
        return cls(text, begins, starts.astype(_kind(len(text))))

    @classmethod
    def open(cls, folder: Path, prefix: str) -> NameIndex:
        return cls(*(load_array(folder / f"{prefix}.{array}.npy") for array in cls.ARRAYS))

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, name: int) -> str:
        begin = int(self.begins[name])
        end = int(self.begins[name + 1]) if name + 1 < len(self.begins) else len(self.bytes)
        return self.bytes[begin : end - 1].tobytes().decode()

    def starting(self, text: str) -> np.ndarray:
        """The offsets (n,) of words that start with this text, in sorted order."""
        pattern = text.encode(errors="surrogatepass")
        width = min(len(pattern), SORTED_BYTES)

        def key(place: int) -> bytes:
            start = int(self.starts[place])
            return self.bytes[start : start + width].tobytes()

        every = range(len(self.starts))
        low = bisect.bisect_left(every, pattern[:width], key=key)
        starts = self.starts[low : bisect.bisect_right(every, pattern[:width], lo=low, key=key)]
        for place in range(width, len(pattern)):
            starts = starts[starts + place < len(self.bytes)]
            starts = starts[self.bytes[starts + place] == pattern[place]]
        return np.asarray(starts)

    def equal(self, text: str) -> np.ndarray:
        """The names that equal this text, in order."""
        starts = self.starting(f"{text}\n")
        return np.sort(self.owners(starts[self.starts_name(starts)]))

    def starts_name(self, starts: np.ndarray) -> np.ndarray:
        """Whether each word, by its offset, is the first of its name."""
        return np.asarray(self.bytes[starts - 1] == NEWLINE)

    def owners(self, offsets: np.ndarray) -> np.ndarray:
        """The name at each offset of `bytes`."""
        return np.searchsorted(self.begins, offsets, "right") - 1

    def containing(self, text: str, limit: int, most_bytes: int = CONTAINING_BYTES) -> list[int]:
        """The first names that contain this text, at most `limit`; none if all names are more than `most_bytes`."""
        names: list[int] = []
        pattern = text.encode(errors="surrogatepass")
        if not pattern or len(self.bytes) > most_bytes:
            return names
        raw = self._raw
        at = raw.find(pattern)
        while at >= 0 and len(names) < limit:
            names.append(int(self.owners(np.array(at))))
            at = raw.find(pattern, raw.index(b"\n", at))
        return names

    @functools.cached_property
    def _raw(self) -> bytes:
        return self.bytes.tobytes()

    def similar(self, text: str, limit: int, most_bytes: int = SIMILAR_BYTES) -> np.ndarray:
        """The `limit` names that share the largest proportion of their byte trigrams with this text.

        If all names are more than `most_bytes`, only names with a word that begins like one of this text count.
        """
        pattern = np.frombuffer(f"\n{text}\n".encode(errors="replace"), np.uint8)
        table = np.zeros(1 << 24, bool)
        table[_trigrams(pattern)] = True
        if len(self.bytes) <= most_bytes:
            names = np.arange(len(self))
            counts, lengths = self._common(table)
        else:
            names = self._alike(text)
            counts, lengths = self._common_of(table, names)
        shares = 2 * counts / (lengths + len(pattern))
        best = np.argpartition(-shares, limit)[:limit] if limit < len(shares) else np.arange(len(shares))
        best = best[shares[best] > 0]
        return np.asarray(names[best[np.lexsort((names[best], -shares[best]))]])

    def _common(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of trigrams of each name (names,) that are in a table, and its length with the line break."""
        counts = np.zeros(len(self), np.int32)
        for begin in range(0, len(self.bytes), CHUNK_BYTES):
            hits = np.flatnonzero(table[_trigrams(self.bytes[begin : begin + CHUNK_BYTES + 2])]) + begin
            owners, times = np.unique(self.owners(hits + 1), return_counts=True)
            counts[owners[owners < len(self)]] += times[owners < len(self)].astype(np.int32)
        return counts, np.diff(self.begins, append=len(self.bytes))

    def _common_of(self, table: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What `_common` returns, for these names (n,) only."""
        texts = [np.frombuffer(f"\n{self[name]}\n".encode(), np.uint8) for name in names.tolist()]
        counts = np.array([table[_trigrams(text)].sum() for text in texts], np.int64)
        return counts, np.array([len(text) - 1 for text in texts], np.int64)

    def _alike(self, text: str) -> np.ndarray:
        """The names with a word that begins like a word of this text, sorted; long beginnings are tried first."""
        found = [np.zeros(0, np.int64)]
        for word in re.findall(r"[^\W_]+", text):
            count = 0
            for width in range(min(len(word), SORTED_BYTES), SHORTEST - 1, -1):
                starts = self.starting(word[:width])[: ALIKE_WORDS - count]
                found.append(self.owners(starts))
                count += len(starts)
                if count >= ALIKE_WORDS:
                    break
        return distinct(np.concatenate(found))


def write_index(
    names: Vocabulary, count: int, folder: Path, prefix: str, *, words: bool, sorter: Sorter | None = None
) -> None:
    """Write the index over the first `count` names, so that `NameIndex.open` opens it.

    With `words` it is over readable names, and finds each word; otherwise over the names as they are.
    """
    with (
        ArrayWriter(folder / f"{prefix}.bytes.npy", np.uint8) as text,
        ArrayWriter(folder / f"{prefix}.begins.npy", np.int64) as begins,
    ):
        text.write(np.array([NEWLINE], np.uint8))
        for first in range(0, count, CHUNK_NAMES):
            lines = lines_of(names, first, min(first + CHUNK_NAMES, count))
            part = np.frombuffer(fold(readable(lines) if words else lines).encode(), np.uint8)
            ends = np.flatnonzero(part == NEWLINE) + 1
            begins.write(text.count + np.append(0, ends[:-1]))
            text.write(part)
    whole = np.load(folder / f"{prefix}.bytes.npy", mmap_mode="r")
    kind = _kind(len(whole))
    with ArrayWriter(folder / f"{prefix}.starts.npy", kind) as starts:
        for part in (sorter or sorted_in_memory)(_keys(whole, words)):
            starts.write(part.astype(kind))


class ArrayWriter:
    """Writes an array (n,) of a known kind to a file piece by piece, as `numpy.save` writes it at once."""

    HEADER_BYTES = 128

    def __init__(self, path: Path, kind: np.dtype | type) -> None:
        self.path = path
        self.kind = np.dtype(kind)
        self.count = 0

    def __enter__(self) -> ArrayWriter:
        self.file = self.path.open("wb")
        self.file.seek(self.HEADER_BYTES)
        return self

    def write(self, part: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(part, self.kind).data)
        self.count += len(part)

    def __exit__(self, *error: object) -> None:
        self.file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(self.kind), "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self.file, header)
        if self.file.tell() != self.HEADER_BYTES:
            raise ValueError(f"the header of {self.path} has {self.file.tell()} bytes")
        self.file.close()


def _kind(size: int) -> type:
    return np.int32 if size < 2**31 else np.int64


def _keys(text: np.ndarray, words: bool) -> Iterator[Keys]:
    """The keys of words, or of names, in their order, piece by piece."""
    for begin in range(1, len(text), CHUNK_BYTES):
        piece = text[begin - 1 : begin + CHUNK_BYTES + SORTED_BYTES - 1]
        size = min(CHUNK_BYTES, len(text) - begin)
        padded = np.append(piece, np.zeros(SORTED_BYTES, np.uint8))
        first = piece[:size] == NEWLINE
        if words:
            inside = _LETTER[piece[: size + 1]]
            first |= inside[1:] & ~inside[:-1]
        starts = np.flatnonzero(first)
        keys = []
        for half in range(0, SORTED_BYTES, 8):
            key = np.zeros(len(starts), np.uint64)
            for place in range(half + 1, half + 9):
                key = (key << np.uint64(8)) | padded[starts + place]
            keys.append(key)
        yield keys[0], keys[1], starts + begin


def sorted_in_memory(keys: Iterator[Keys]) -> Iterator[np.ndarray]:
    """The offsets of words, sorted by their keys."""
    parts = list(keys)
    if parts:
        first, second, starts = (np.concatenate(column) for column in zip(*parts, strict=True))
        yield starts[np.lexsort((second, first))]


def _trigrams(text: np.ndarray) -> np.ndarray:
    """Every three consecutive bytes as one number."""
    wide = text.astype(np.int32)
    return (wide[:-2] << 16) | (wide[1:-1] << 8) | wide[2:]
