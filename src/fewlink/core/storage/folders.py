"""Folders with a manifest, replaced atomically and checked when they are read."""

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
from fewlink.core.storage.recovery import restore

CHANGED = "was changed or damaged since it was written: make the folder again"
ALWAYS_VERIFIED_BYTES = 64 << 20  # folders up to this size are hashed whenever they are opened (0.1 s)
MAX_READ_SECONDS = 30.0  # a reader gives up on a folder that is still being replaced after this time
RETRY_SECONDS = 0.01

T = TypeVar("T")


@contextmanager
def new_folder(path: Path, format: str, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill. On success it becomes `path`; on any error it is removed.

    It replaces an existing folder of the same format. Raise if anything else is at `path`. The manifest stores `facts`,
    which the block may still change. A folder inside another folder that is being filled is written in place.
    """
    path = real(path)
    if Path.cwd().is_relative_to(path):
        raise FewlinkError(f"{path} is or contains the working folder and would be replaced: choose another folder")
    with writing(path), locked(path):
        inside = in_draft(path)
        draft = path if inside else beside(path, "new")
        if not inside:
            restore(path)
            if path.exists() and (not path.is_dir() or (any(path.iterdir()) and _format_of(path) != format)):
                raise FewlinkError(f"{path} exists and is not a {format} folder: remove it or choose another folder")
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
                restore(path)


def _write_manifest(folder: Path, format: str, facts: dict[str, Any]) -> None:
    paths = sorted(folder.rglob("*"))
    files = {str(path.relative_to(folder)): path for path in paths if path.is_file()}
    listed = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in files.items()}
    manifest = {"format": format, **facts, "files": listed}
    write_json(folder / MANIFEST, {**manifest, "sha256": sha256_json(manifest)})
    for path in (*paths, folder / MANIFEST, folder):
        sync(path)


def read_folder(path: Path, format: str, load: Callable[[Path, dict[str, Any]], T], verify: bool | None = None) -> T:
    """Return `load(place, manifest)`, all of one version of the folder even if a writer replaces it meanwhile.

    Raise if a file's size or hash differs from the manifest. `verify=True` hashes every file, False none; None hashes a
    large folder only if it has changed since its last check.
    """
    end = time.monotonic() + MAX_READ_SECONDS
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
            raise InputError(path, f"was replaced repeatedly for {MAX_READ_SECONDS:.0f} s: try again later")
        time.sleep(RETRY_SECONDS)


def open_folder(path: Path, format: str, verify: bool | None = None) -> dict[str, Any]:
    """The manifest of a folder that `new_folder` wrote; the folder is checked as in `read_folder`."""
    return read_folder(path, format, lambda place, manifest: manifest, verify)


def is_folder_of(path: Path, format: str) -> bool:
    return _format_of(place_of(path)) == format


def _checked(folder: Path, format: str, verify: bool | None) -> dict[str, Any]:
    """The manifest of a folder. Raise unless all files are as they were written."""
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
        stat = file.stat()
        if stat.st_size != size:
            raise InputError(file, CHANGED)
        seen.append((str(file), digest, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns))
    total = sum(size for size, _ in expected.values())
    if total <= ALWAYS_VERIFIED_BYTES and verify is not False:
        _check_hashes(expected, silent)
    elif verify or (verify is None and not is_remembered(str(real(folder)), sha256_json(seen))):
        with progress(f"checking {folder} for damage", total) as advance:
            _check_hashes(expected, advance)
        remember(str(real(folder)), sha256_json(seen))
    return dict(manifest)


def _check_hashes(expected: Mapping[Path, tuple[int, str]], advance: Advance) -> None:
    """Raise if the sha256 of a file is not the expected one."""
    done = 0
    for file, (size, digest) in expected.items():
        if sha256_file(file, lambda size, before=done: advance(before + size)) != digest:  # type: ignore[misc]
            raise InputError(file, CHANGED)
        done += size


def _format_of(folder: Path) -> str | None:
    with suppress(InputError, AttributeError):
        return str(read_json(folder / MANIFEST).get("format"))
    return None


@contextmanager
def _watched(path: Path) -> Iterator[tuple[Path, bool, Callable[[], bool]]]:
    """Yield the place to read a folder from, whether its manifest is open, and a check that it is the same version.

    While a manifest is open, the manifest of a later version cannot get its inode number.
    """
    place = place_of(path)
    held = False
    with ExitStack() as kept:
        before = _inode(place / MANIFEST)
        try:
            before = os.fstat(kept.enter_context((place / MANIFEST).open("rb")).fileno()).st_ino
            held = True
        except FileNotFoundError:
            before = None
        except OSError:
            pass  # an unreadable manifest still has an inode number
        # the place first: a folder that is back by then has a manifest again
        yield place, held, lambda: place_of(path) == place and _inode(place / MANIFEST) == before


def _inode(file: Path) -> int | None:
    with suppress(OSError):
        return os.stat(file).st_ino
    return None
