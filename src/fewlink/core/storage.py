"""Files and folders that are replaced in one step, locked while they are written, and checked when they are read.

To write `name`, a process takes the lock `.name.lock`, fills `.name.new`, moves what was there to `.name.previous`, and
renames its draft. A reader takes `name`, or `.name.previous` while `name` is missing, and starts again if the folder
was replaced meanwhile; it changes nothing on disk. The next writer puts right what a killed one left, under the lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.errors import FewlinkError, InputError, unique_keys, writing, wrong_format
from fewlink.core.memo import is_remembered, remember
from fewlink.core.progress import Advance, progress, silent

MANIFEST = "manifest.json"
CHANGED = "was changed or damaged since it was written: make the folder again"
ALWAYS_VERIFIED_BYTES = 64 << 20  # folders up to this size are hashed whenever they are opened (0.1 s)
BLOCK = 4 << 20  # bytes that are hashed at a time
SILENT_WAIT = 1.0  # seconds for which a writer waits for another one without saying so
READING, PAUSE = 30.0, 0.01  # seconds for which a reader starts again, and between two tries
LEFT = re.compile(r"\.(.+)\.(lock|new|previous)")  # names of what a killed writer of the file or folder leaves

T = TypeVar("T")


class _Writing(threading.local):
    """The locks that a thread holds and the folders that it fills: in these nobody else writes."""

    def __init__(self) -> None:
        self.locks: set[str] = set()
        self.drafts: list[Path] = []


_writing = _Writing()


def locked(path: Path, busy: str = "") -> AbstractContextManager[None]:
    """Exclude other writers of a file or folder that is replaced; the lock is beside it.

    Another process waits, and says so after a second, or raises at once with the message `busy`. The lock ends with
    the process, however it ends. Inside of it, the same thread may take it again.
    """
    path = _real(path)
    return _lock(_beside(path, "lock"), path, busy)


@contextmanager
def locked_inside(folder: Path, busy: str = "") -> Iterator[None]:
    """Like `locked`, for a folder that stays while what is in it is replaced; the lock is in it."""
    folder = _real(folder)
    with _lock(folder / ".lock", folder, busy):
        for name in {left[1] for path in folder.iterdir() if (left := LEFT.fullmatch(path.name))}:
            if str(_beside(folder / name, "lock")) not in _writing.locks:
                recover_quietly(folder / name)
        yield


@contextmanager
def _lock(file: Path, what: Path, busy: str) -> Iterator[None]:
    if str(file) in _writing.locks or _in_draft(what):
        yield
        return
    from filelock import FileLock, Timeout

    lock = FileLock(file, mode=0o666, thread_local=False)
    with writing(what):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0 if busy else SILENT_WAIT)
        except Timeout:
            if busy:
                raise FewlinkError(busy) from None
            print(f"waiting for another process that is writing {what}", file=sys.stderr, flush=True)
            lock.acquire()
    _writing.locks.add(str(file))
    try:
        yield
    finally:
        _writing.locks.discard(str(file))
        with suppress(OSError):  # a process that waits for the removed file tries again (filelock checks its links)
            os.unlink(file)
        lock.release()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a part."""
    with replaced_file(path) as draft, draft.open("wb") as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a path to write a file to, which then replaces the one at `path`; nothing changes on an error."""
    path = Path(os.path.realpath(path.parent)) / path.name
    if _in_draft(path):
        yield path
        return
    with writing(path), _lock(_beside(path, "lock"), path, ""):
        draft = (folder := _beside(path, "new")) / "draft"  # not of the file's kind, for those who look for such
        _remove(folder)
        folder.mkdir()
        try:
            yield draft
            sync(draft)
            os.replace(draft, path)
            sync(path.parent)
        finally:
            _remove(folder)


def read_json(path: Path) -> Any:
    """The content of a JSON file; all its strings can be written as UTF-8, and no object has a key twice."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = json.loads(text, object_pairs_hook=unique_keys)
        if "\\u" in text:  # an escape may be half a surrogate pair
            json.dumps(content, ensure_ascii=False).encode()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(path, f"is not UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise InputError(path, f"is not JSON ({error.msg})", error.lineno) from None
    except (ValueError, RecursionError) as error:  # numbers or nesting too large for the parser
        raise InputError(path, f"is JSON that cannot be read ({error})") from None
    return content


def with_sha256(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with the checksum of all of it, as its last entry `sha256`."""
    return {**content, "sha256": _sha256_json(json.loads(json.dumps(content)))}


def _is_sha256(name: str) -> bool:
    """Whether this is the name of the checksum, or that name with up to three wrong characters."""
    return len(name) == 6 and sum(map(str.__eq__, name, "sha256")) >= 3


def without_sha256(content: Any, path: Path, line: int | None = None, remedy: str = "restore or remove it") -> Any:
    """What `with_sha256` was given, as it was read from a file; raises if it has changed. It may have no checksum."""
    if not isinstance(content, dict) or not any(map(_is_sha256, content)):
        return content
    kept = dict(content)
    if kept.pop("sha256", None) != _sha256_json(kept):
        raise InputError(path, f"was changed or damaged since it was written: {remedy}", line)
    return kept


@contextmanager
def new_folder(path: Path, format: str, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it becomes `path`, on any error it is removed.

    An existing folder of the same format is replaced. Raises if anything else is at `path`. `facts` may be filled
    inside the block and is stored in the manifest. A folder in a folder that is being filled is written in place.
    """
    path = _real(path)
    if Path.cwd().is_relative_to(path):
        raise FewlinkError(f"{path} is or contains the working folder and would be replaced: choose another place")
    with writing(path), locked(path):
        draft = path if (inside := _in_draft(path)) else _beside(path, "new")
        if not inside:
            _put_right(path)
            if path.exists() and (not path.is_dir() or (any(path.iterdir()) and _format_of(path) != format)):
                raise FewlinkError(f"{path} exists and is not a {format} folder: remove it or choose another place")
        draft.mkdir(parents=True)
        _writing.drafts.append(draft)
        try:
            yield draft
            _write_manifest(draft, format, facts)
            if not inside:
                if (path / MANIFEST).exists():
                    os.rename(path, _beside(path, "previous"))
                os.rename(draft, path)
                sync(path.parent)
        finally:
            _writing.drafts.remove(draft)
            if not inside:
                _put_right(path)


def recover(path: Path, busy: str = "") -> None:
    """Put right what a killed writer of a file or folder left: what was moved comes back, and drafts are removed."""
    with writing(path), locked(path, busy):
        _put_right(_real(path))


def recover_quietly(path: Path) -> None:
    """Like `recover`, if nobody is writing the file or folder and it can be written."""
    with suppress(FewlinkError):
        recover(path, busy="it is being written")


def _put_right(path: Path) -> None:
    """Give a folder that was moved aside its name again, and remove what is beside it. The caller has the lock.

    A complete draft of a killed writer is removed too: readers have been shown the version before since then.
    """
    place = place_of(path)
    if place != path:
        os.rename(place, path)
    for kind in ("previous", "new"):
        _remove(_beside(path, kind))


def _remove(path: Path) -> None:
    """Remove a file or folder; a folder's manifest goes first, so that nobody reads what is left of it."""
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write_manifest(folder: Path, format: str, facts: dict[str, Any]) -> None:
    paths = sorted(folder.rglob("*"))
    files = {str(path.relative_to(folder)): path for path in paths if path.is_file()}
    listed = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in files.items()}
    manifest = {"format": format, **facts, "files": listed}
    write_json(folder / MANIFEST, {**manifest, "sha256": _sha256_json(manifest)})
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


def place_of(path: Path) -> Path:
    """Where to read a folder: at its path, or while that is missing, where a writer has moved it."""
    if os.path.exists(path) or "\0" in str(path):
        return Path(path)
    moved = _beside(_real(path), "previous")
    return moved if os.path.exists(moved / MANIFEST) and not os.path.exists(path) else Path(path)


def exists(path: str | Path) -> bool:
    """Whether there is a file or folder, also while the folder is being replaced."""
    return os.path.exists(path) or place_of(Path(path)) != Path(path)


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
    if manifest.pop("sha256", None) != _sha256_json(manifest):
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
    elif verify or (verify is None and not is_remembered(str(_real(folder)), _sha256_json(seen))):
        with progress(f"checking {folder} for damage", total) as advance:
            _hash(expected, advance)
        remember(str(_real(folder)), _sha256_json(seen))
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


def sha256_file(path: Path, advance: Callable[[int], None] = lambda size: None) -> str:
    """The sha256 of a file, read in blocks; `advance` is called with the number of bytes so far."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                digest.update(block)
                advance(size := size + len(block))
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Write a file, or the list of files of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _beside(path: Path, kind: str) -> Path:
    return path.parent / f".{path.name}.{kind}"


def _in_draft(path: Path) -> bool:
    return any(path.is_relative_to(draft) for draft in _writing.drafts)


def _sha256_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
