"""Reading compressed files, and limits on what a file may become in memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from fewlink.core import memory
from fewlink.core.errors import InputError, MissingExtra, check_file

BLOCK_BYTES = 32 << 20  # read at a time if the caller gives no size
PIECE_BYTES = 1 << 20  # read at a time from a compressed file
ALWAYS_ALLOWED_BYTES = 256 << 20  # any file may unpack to this size, or hold names and triples of this size
MAX_RATIO = 200  # of unpacked to packed bytes, above that size; text of triples has less than 50
MIN_LIMIT_BYTES = 4 << 30
MEMORY_FACTOR = 16  # text may be larger than the free memory, because each name is stored once
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")


@contextmanager
def reading_source(path: Path) -> Iterator[None]:
    """Turn system and decompression errors into errors that name the file."""
    check_file(path)
    try:
        yield
    except OSError as error:  # gzip and pyarrow raise OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


def decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The content of an open file, decompressed according to its suffix."""
    suffix = path.suffix.lower()
    inner: Any = None
    if suffix == ".gz":
        inner = gzip.GzipFile(fileobj=raw)
    elif suffix == ".xz":
        inner = ConcatenatedStreams(raw, lzma.LZMADecompressor)
    elif suffix == ".bz2":
        inner = ConcatenatedStreams(raw, bz2.BZ2Decompressor)
    elif suffix == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtra("reading a .zst file", "scale") from None
        inner = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")
    return raw if inner is None else cast("IO[bytes]", Unpacked(path, raw, inner))


class Budget:
    """The number of bytes that a file of `packed` bytes may become when it is read.

    The limit is $FEWLINK_MAX_UNPACKED, or else `max_bytes`, or else a multiple of the free memory. Without
    $FEWLINK_MAX_UNPACKED, a file that becomes over `MAX_RATIO` times its size is refused too. A pipe has no size.
    """

    def __init__(self, path: Path, packed: int | None, max_bytes: int | None = None) -> None:
        self.path = path
        self.spent = 0
        user_limit = memory.max_unpacked_bytes()
        memory_limit = max(MIN_LIMIT_BYTES, MEMORY_FACTOR * (memory.free_bytes("cpu") or 0))
        self.max_bytes = user_limit or max_bytes or memory_limit
        self.of_size = None if user_limit or packed is None else max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * packed)

    def spend(self, count: int, what: str) -> None:
        """Add to the bytes, and check them. `what` is a verb, such as `unpacks to`."""
        self.spent += count
        self.check(self.spent, what)

    def check(self, size: int, what: str) -> None:
        """Raise if a file of its size may not become so many bytes."""
        if size > self.max_bytes:
            remedy = f"if there is room for more, raise the limit, such as {memory.UNPACKED_VARIABLE}=100G"
            raise InputError(self.path, f"{what} over {self.max_bytes:,} bytes: {remedy}")
        if self.of_size is not None and size > self.of_size:
            remedy = f"if you trust the file, set a limit, such as {memory.UNPACKED_VARIABLE}=10G"
            raise InputError(self.path, f"{what} over {MAX_RATIO} times its size, which is rare: {remedy}")


def size_of(raw: IO[bytes]) -> int | None:
    """The size of an open file; None for a pipe."""
    status = os.fstat(raw.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class Unpacked(io.RawIOBase):
    """The content of a compressed file. Reading raises if the file is damaged, truncated or unpacks to too much."""

    def __init__(self, path: Path, raw: IO[bytes], inner: Any, max_bytes: int | None = None) -> None:
        self.path = path
        self.inner = inner
        self.budget = Budget(path, size_of(raw), max_bytes)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        content = bytearray()
        try:
            while len(content) < size and (piece := self.inner.read(min(size - len(content), PIECE_BYTES))):
                content += piece
                self.budget.spend(len(piece), "unpacks to")
        except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            place = f"after {self.budget.spent:,} unpacked bytes"
            problem = f"is cut off or not a valid {self.path.suffix} file {place} ({error})"
            raise InputError(self.path, problem) from None
        return bytes(content)

    def close(self) -> None:
        self.inner.close()
        super().close()


class ConcatenatedStreams:
    """The content of an .xz or .bz2 file of one or several streams, each of which must be complete.

    `make` returns a new decompressor. Closing does not close the file.
    """

    def __init__(self, raw: IO[bytes], make: Callable[[], Any]) -> None:
        self.raw = raw
        self.make = make
        self.stream = make()

    def read(self, size: int) -> bytes:
        content = b""
        packed = b""
        while not content:
            if self.stream.eof:  # zeros may follow a stream
                packed = self.stream.unused_data.lstrip(b"\0")
                while not packed and (more := self.raw.read(PIECE_BYTES)):
                    packed = more.lstrip(b"\0")
                if not packed:
                    return b""
                self.stream = self.make()
            elif self.stream.needs_input and not (packed := self.raw.read(PIECE_BYTES)):
                raise EOFError("it ends in the middle of a stream")
            content = self.stream.decompress(packed, size)
            packed = b""
        return content

    def close(self) -> None: ...
