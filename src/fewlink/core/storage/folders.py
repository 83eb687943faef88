"""Folders with a manifest, replaced in one step and checked when they are read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.errors import FewlinkError, InputError, writing, wrong_format
from fewlink.core.memo import is_remembered, remember
from fewlink.core.progress import Advance, progress, silent
from fewlink.core.storage.checksums import sha256_file, sha256_json
from fewlink.core.storage.files import read_json, sync, write_json
from fewlink.core.storage.locks import in_draft, locked, this_thread
from fewlink.core.storage.places import MANIFEST, beside, place_of, real
from fewlink.core.storage.recovery import put_right

CHANGED = "was changed or damaged since it was written: make the folder again"
ALWAYS_VERIFIED_BYTES = 64 << 20  # folders up to this size are hashed whenever they are opened (0.1 s)
READING, PAUSE = 30.0, 0.01  # seconds for which a reader starts again, and between two tries

T = TypeVar("T")


@contextmanager
def new_folder(path: Path, format: str, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it becomes `path`, on any error it is removed.

    An existing folder of the same format is replaced. Raises if anything else is at `path`. `facts` may be filled
    inside the block and is stored in the manifest. A folder in a folder that is being filled is written in place.
    """
    path = real(path)
    if Path.cwd().is_relative_to(path):
        raise FewlinkError(f"{path} is or contains the working folder and would be replaced: choose another place")
    with writing(path), locked(path):
        draft = path if (inside := in_draft(path)) else beside(path, "new")
        if not inside:
            put_right(path)
            if path.exists() and (not path.is_dir() or (any(path.iterdir()) and _format_of(path) != format)):
                raise FewlinkError(f"{path} exists and is not a {format} folder: remove it or choose another place")
        draft.mkdir(parents=True)
        this_thread.drafts.append(draft)
        try:
            yield draft
            _write_manifest(draft, format, facts)
            if not inside:
                if (path / MANIFEST).exists():
                    os.rename(path, beside(path, "previous"))
                os.rename(draft, path)
                sync(path.parent)
        finally:
            this_thread.drafts.remove(draft)
            if not inside:
                put_right(path)


def _write_manifest(folder: Path, format: str, facts: dict[str, Any]) -> None:
    paths = sorted(folder.rglob("*"))
    files = {str(path.relative_to(folder)): path for path in paths if path.is_file()}
    listed = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in files.items()}
    manifest = {"format": format, **facts, "files": listed}
    write_json(folder / MANIFEST, {**manifest, "sha256": sha256_json(manifest)})
    for path in (*paths, folder / MANIFEST, folder):
        sync(path)


def read_folder(path: Path, format: str, load: Callable[[Path, dict[str, Any]], T], verify: bool | None = None) -> T:
    """What `load` makes of the place and the manifest of a folder, all of one version even if it is being replaced.

    Raises if a file has another size or hash. `verify=True` hashes every file, False none; None hashes a large folder
    only if it has changed since it was hashed last.
    """
    end = time.monotonic() + READING
    while True:
        with _watched(Path(path)) as (place, held, unchanged):
            try:
                loaded = load(place, _checked(place, format, verify))
            except Exception:
                if unchanged():
                    raise
            else:
                if held and unchanged():
                    return loaded
        if time.monotonic() > end:
            raise InputError(path, f"was replaced again and again for {READING:.0f} s: try again later")
        time.sleep(PAUSE)


def open_folder(path: Path, format: str, verify: bool | None = None) -> dict[str, Any]:
    """The manifest of a folder written by `new_folder`, which is checked as `read_folder` does it."""
    return read_folder(path, format, lambda place, manifest: manifest, verify)


def is_folder_of(path: Path, format: str) -> bool:
    return _format_of(place_of(path)) == format


def _checked(folder: Path, format: str, verify: bool | None) -> dict[str, Any]:
    """The manifest of a folder whose files are as they were written."""
    if not os.path.isdir(folder):
        raise InputError(folder, "is not a folder" if os.path.exists(folder) else "does not exist")
    manifest = read_json(folder / MANIFEST)
    actual = manifest.get("format") if isinstance(manifest, dict) else None
    if actual != format:
        raise wrong_format(folder, actual, format)
    if manifest.pop("sha256", None) != sha256_json(manifest):
        raise InputError(folder / MANIFEST, CHANGED)
    try:
        expected = {folder / name: (file["bytes"], file["sha256"]) for name, file in manifest["files"].items()}
    except (AttributeError, KeyError, TypeError):
        raise InputError(folder / MANIFEST, CHANGED) from None
    seen = []
    for file, (size, digest) in expected.items():
        if not os.path.isfile(file):
            raise InputError(file, "is missing from its folder: make the folder again")
        if (stat := file.stat()).st_size != size:
            raise InputError(file, CHANGED)
        seen.append((str(file), digest, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns))
    total = sum(size for size, _ in expected.values())
    if total <= ALWAYS_VERIFIED_BYTES and verify is not False:
        _hash(expected, silent)
    elif verify or (verify is None and not is_remembered(str(real(folder)), sha256_json(seen))):
        with progress(f"checking {folder} for damage", total) as advance:
            _hash(expected, advance)
        remember(str(real(folder)), sha256_json(seen))
    return dict(manifest)


def _hash(expected: Mapping[Path, tuple[int, str]], advance: Advance) -> None:
    """Raise if a file has another sha256 than expected."""
    done = 0
    for file, (size, digest) in expected.items():
        if sha256_file(file, lambda part, before=done: advance(before + part)) != digest:  # type: ignore[misc]
            raise InputError(file, CHANGED)
        done += size


def _format_of(folder: Path) -> str | None:
    with suppress(InputError, AttributeError):
        return str(read_json(folder / MANIFEST).get("format"))
    return None


@contextmanager
def _watched(path: Path) -> Iterator[tuple[Path, bool, Callable[[], bool]]]:
    """Yield where to read a folder, whether its manifest is held open, and whether it still is the same version.

    While a manifest is held open, the one of a later version does not get its inode number.
    """
    place, held = place_of(path), False
    with ExitStack() as kept:
        before = _inode(place / MANIFEST)
        try:
            before = os.fstat(kept.enter_context((place / MANIFEST).open("rb")).fileno()).st_ino
            held = True
        except FileNotFoundError:
            before = None
        except OSError:
            pass  # one that cannot be read has a number too
        yield place, held, lambda: before == _inode(place / MANIFEST) and place_of(path) == place


def _inode(file: Path) -> int | None:
    with suppress(OSError):
        return os.stat(file).st_ino
    return None
