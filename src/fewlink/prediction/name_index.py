"""Names without regard to case, searched by how they or their words begin: arrays built once, no loop over names."""

from __future__ import annotations

import bisect
import re
import unicodedata

import numpy as np

from fewlink.graph import Vocabulary

WIDTH = 16  # bytes that word beginnings are sorted by; a longer query looks through those that agree in so many
CHUNK = 1 << 22  # bytes looked at together
NEWLINE = 10

_CONCEPT = re.compile(r"^concept:(?:[^\n]*:)?", re.MULTILINE)
_EDGES = re.compile(r"^[^\S\n]+|[^\S\n]+$", re.MULTILINE)


def fold(text: str) -> str:
    """Text in which what differs in case or in how characters are composed is the same; lines stay lines."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def readable(text: str) -> str:
    """Each line as `Graph.name` writes it: without `concept:type:`, underscores and spaces at the ends."""
    return spaced(_CONCEPT.sub("", text) if "concept:" in text else text)


def spaced(text: str) -> str:
    """Each line with spaces for underscores, and none at the ends."""
    return _EDGES.sub("", text.replace("_", " "))


def lines_of(names: Vocabulary, count: int) -> str:
    """The first `count` names, a line each; a line break inside a name becomes a space."""
    ends = np.asarray(names.ends[:count])
    text = np.array(names.text[: int(ends[-1]) if count else 0])
    text[text == NEWLINE] = 32
    lines = np.full(len(text) + count, NEWLINE, np.uint8)
    inside = np.ones(len(lines), bool)
    inside[ends + np.arange(count)] = False
    lines[inside] = text
    return lines.tobytes().decode()


class Folded:
    """Folded names, one on each line of `raw`, which begins with a line break, and where their words begin, in order.

    Shapes: `begins` (names,), where each name begins in `raw`; `starts` (words,), sorted by the text that follows.
    """

    def __init__(self, lines: str, *, words: bool) -> None:
        self.raw = b"\n" + fold(lines).encode()
        self.bytes = np.frombuffer(self.raw, np.uint8)
        self.begins = np.flatnonzero(self.bytes == NEWLINE)[:-1] + 1
        self.starts = self._sorted(self._words() if words else self.begins)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, name: int) -> str:
        begin = int(self.begins[name])
        return self.raw[begin : self.raw.index(b"\n", begin)].decode()

    def _words(self) -> np.ndarray:
        """Where words begin, a name's beginning always being one."""
        letter = np.zeros(256, bool)
        letter[[*range(48, 58), *range(97, 123), *range(128, 256)]] = True
        inside = letter[self.bytes]
        first = np.zeros(len(inside), bool)
        first[1:] = inside[1:] & ~inside[:-1]
        first[self.begins] = True
        return np.flatnonzero(first)

    def _sorted(self, starts: np.ndarray) -> np.ndarray:
        padded = np.append(self.bytes, np.zeros(WIDTH, np.uint8))
        keys = []
        for half in range(0, WIDTH, 8):
            key = np.zeros(len(starts), np.uint64)
            for place in range(half, half + 8):
                key = (key << np.uint64(8)) | padded[starts + place]
            keys.append(key)
        ordered: np.ndarray = starts[np.lexsort(keys[::-1])]
        return ordered.astype(np.int32) if len(self.raw) < 2**31 else ordered

    def beginning(self, text: str) -> np.ndarray:
        """Where words begin that go on like this text (n,), in the order of what follows."""
        wanted = text.encode(errors="surrogatepass")
        width = min(len(wanted), WIDTH)

        def key(place: int) -> bytes:
            start = int(self.starts[place])
            return self.raw[start : start + width]

        every = range(len(self.starts))
        low = bisect.bisect_left(every, wanted[:width], key=key)
        found = self.starts[low : bisect.bisect_right(every, wanted[:width], lo=low, key=key)]
        for place in range(width, len(wanted)):
            found = found[found + place < len(self.bytes)]
            found = found[self.bytes[found + place] == wanted[place]]
        return found

    def equal(self, text: str) -> np.ndarray:
        """The names that are this text, in their order."""
        found = self.beginning(f"{text}\n")
        return np.sort(self.owners(found[self.first(found)]))

    def first(self, starts: np.ndarray) -> np.ndarray:
        """Whether a name begins at each of these places."""
        return np.asarray(self.bytes[starts - 1] == NEWLINE)

    def owners(self, places: np.ndarray) -> np.ndarray:
        """The name that each place belongs to."""
        return np.searchsorted(self.begins, places, "right") - 1

    def holding(self, text: str, most: int) -> list[int]:
        """At most `most` names, the first ones, with this text anywhere in them."""
        wanted, at = text.encode(errors="surrogatepass"), 0
        found: list[int] = []
        while wanted and len(found) < most and (at := self.raw.find(wanted, at)) >= 0:
            found.append(int(self.owners(np.array(at))))
            at = self.raw.index(b"\n", at)
        return found

    def alike(self, text: str, most: int) -> np.ndarray:
        """The `most` names that share most of their groups of three bytes with this text."""
        wanted = np.frombuffer(f"\n{text}\n".encode(errors="replace"), np.uint8)
        table = np.zeros(1 << 24, bool)
        table[_threes(wanted)] = True
        counts = np.zeros(len(self), np.int32)
        for begin in range(0, len(self.bytes), CHUNK):
            hits = np.flatnonzero(table[_threes(self.bytes[begin : begin + CHUNK + 2])]) + begin
            owners, times = np.unique(self.owners(hits + 1), return_counts=True)
            counts[owners[owners < len(self)]] += times[owners < len(self)].astype(np.int32)
        lengths = np.diff(self.begins, append=len(self.bytes))
        shares = 2 * counts / (lengths + len(wanted))
        best = np.argpartition(-shares, most)[:most] if most < len(shares) else np.arange(len(shares))
        best = best[shares[best] > 0]
        return np.asarray(best[np.lexsort((best, -shares[best]))])


def _threes(text: np.ndarray) -> np.ndarray:
    """Each three bytes in a row as one number."""
    wide = text.astype(np.int32)
    return (wide[:-2] << 16) | (wide[1:-1] << 8) | wide[2:]
