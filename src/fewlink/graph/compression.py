"""Compressed files: their content, checked for damage and for how much they unpack to."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from fewlink.core import memory
from fewlink.core.errors import (
    InputError,
    MissingExtra,
    check_file,
)

BLOCK_BYTES = 32 << 20  # read at once if no size is given
PIECE_BYTES = 1 << 20  # read at once from a compressed file
SMALL_UNPACKED = 256 << 20  # bytes that any compressed file may unpack to
MOST_RATIO = 200  # of unpacked to packed bytes, if there are more; text of triples has less than 50
LEAST_LIMIT, TIMES_MEMORY = 4 << 30, 16  # text may be larger than the free memory: its names are stored once
COMPRESSIONS = (".gz", ".xz", ".zst")


@contextmanager
def reading_source(path: Path) -> Iterator[None]:
    """Turn errors of the system and of decompression into errors that name the file."""
    check_file(path)
    try:
        yield
    except OSError as error:  # gzip and pyarrow raise OSErrors without a strerror
        raise InputError(path, f"cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(path, f"is cut off or not a valid {path.suffix} file ({error})") from None


def decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The content of an open file, decompressed as its suffix says."""
    suffix, inner = path.suffix.lower(), cast(Any, None)
    if suffix == ".gz":
        inner = gzip.GzipFile(fileobj=raw)
    elif suffix == ".xz":
        inner = Parts(raw, lzma.LZMADecompressor)
    elif suffix == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtra("reading a .zst file", "scale") from None
        inner = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")
    return raw if inner is None else cast("IO[bytes]", Unpacked(path, raw, inner))


class Unpacked(io.RawIOBase):
    """The content of a compressed file. Raises if a part is damaged or cut off, or if there is more than `most` bytes.

    Without $FEWLINK_MAX_UNPACKED, a file that unpacks to `MOST_RATIO` times its size is refused too.
    """

    def __init__(self, path: Path, raw: IO[bytes], inner: Any, most: int | None = None) -> None:
        self.path, self.inner, self.count = path, inner, 0
        self.given = memory.most_unpacked()
        self.most = self.given or most or max(LEAST_LIMIT, TIMES_MEMORY * (memory.free_bytes("cpu") or 0))
        self.packed = os.fstat(raw.fileno()).st_size if hasattr(raw, "fileno") else 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        content = bytearray()
        try:
            while len(content) < size and (piece := self.inner.read(min(size - len(content), PIECE_BYTES))):
                content += piece
                self._count(len(piece))
        except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            place = f"after {self.count:,} unpacked bytes ({error})"
            raise InputError(self.path, f"is cut off or not a valid {self.path.suffix} file {place}") from None
        return bytes(content)

    def _count(self, more: int) -> None:
        self.count += more
        if self.count > self.most:
            room = f"set {memory.UNPACKED}, such as {memory.UNPACKED}=100G, if there is room for more"
            raise InputError(self.path, f"unpacks to over {self.most:,} bytes: {room}")
        if not self.given and self.count > max(SMALL_UNPACKED, MOST_RATIO * self.packed):
            way = f"if it is in order, set {memory.UNPACKED}, such as {memory.UNPACKED}=10G"
            raise InputError(self.path, f"unpacks to over {MOST_RATIO} times its size, which data rarely does: {way}")

    def close(self) -> None:
        self.inner.close()
        super().close()


class Parts:
    """The content of an .xz or .bz2 file of one or several parts, all of which must be whole. The file stays open."""

    def __init__(self, raw: IO[bytes], make: Callable[[], Any]) -> None:
        self.raw, self.make, self.part = raw, make, make()

    def read(self, size: int) -> bytes:
        content, packed = b"", b""
        while not content:
            if self.part.eof:  # zeros may follow a part
                packed = self.part.unused_data.lstrip(b"\0")
                while not packed and (more := self.raw.read(PIECE_BYTES)):
                    packed = more.lstrip(b"\0")
                if not packed:
                    return b""
                self.part = self.make()
            elif self.part.needs_input and not (packed := self.raw.read(PIECE_BYTES)):
                raise EOFError("it ends in the middle of a part")
            content, packed = self.part.decompress(packed, size), b""
        return content

    def close(self) -> None: ...
