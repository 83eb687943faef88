"""Work as a pickle for other processes and machines, in which memory-mapped arrays are paths."""

from __future__ import annotations

import io
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.engine.base import Work
from fewlink.core.errors import FewlinkError, InputError, describe
from fewlink.core.files import MANIFEST, sha256_file


def packed(work: Work) -> bytes:
    """The work as a pickle without the arrays that are memory-mapped; workers open those from their path."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FewlinkError(f"the model cannot be sent to workers ({describe(error)}): use processes:1") from None
    return buffer.getvalue()


def unpacked(pickled: bytes) -> Work:
    """The work that was `packed`, perhaps on another machine."""
    work: Work = pickle.loads(pickled)  # noqa: S301 (from those that this worker serves)
    return work


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.memmap) or not isinstance(value.base, mmap.mmap) or value.filename is None:
            return NotImplemented
        path = Path(value.filename)
        order = "C" if value.flags.c_contiguous else "F"
        return map_array, (str(path), value.dtype.str, value.shape, value.offset, order, folder_checksum(path))


def map_array(path: str, dtype: str, shape: tuple[int, ...], offset: int, order: Any, checksum: str) -> np.ndarray:
    """Map an array of a file of this machine. Raises unless it belongs to the same version of the same folder."""
    file = Path(path)
    if not file.is_file():
        raise InputError(file, "is not on every worker: share its folder, or copy it to the same path")
    if folder_checksum(file) != checksum:
        raise InputError(file, "differs between workers, or was replaced: copy the same folder to all, and start again")
    array: np.ndarray = np.memmap(file, dtype, "r", offset, shape, order)
    return array


def folder_checksum(file: Path) -> str:
    """The sha256 of the manifest beside a file, which lists the checksums of all files; without one, the file's."""
    manifest = file.parent / MANIFEST
    return sha256_file(manifest if manifest.is_file() else file)
