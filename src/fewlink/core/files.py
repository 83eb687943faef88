"""Files and folders that are replaced atomically, locked while they are written, and checked when they are opened.

To write `name`, a process takes the lock `.name.lock`, fills the draft `.name.new`, moves the old folder to
`.name.previous`, and renames the draft. A reader opens `name`, or `.name.previous` while `name` is missing, and changes
nothing. If a writer is killed, the next one removes what it left.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fewlink.core.errors import FewlinkError, InputError, check_file, read_file, unique_keys, writing, wrong_format
from fewlink.core.progress import tell

MANIFEST = "manifest.json"
CHANGED = "was changed or damaged since it was written: make the folder again"
ALWAYS_HASHED_BYTES = 64 << 20  # folders up to this size are hashed whenever they are opened, which takes 0.1 s
SILENT_WAIT_SECONDS = 1.0  # after this time a waiting writer prints a line
MAX_READ_SECONDS = 30.0  # a reader gives up on something that is still being replaced after this time
RETRY_SECONDS = 0.01  # before something that was replaced is read again

T = TypeVar("T")


def real(path: Path) -> Path:
    """The path with all symbolic links resolved."""
    return Path(os.path.realpath(path))


def beside(path: Path, kind: str) -> Path:
    """The path of the `lock`, the draft (`new`) or the `previous` version of a file or folder."""
    return path.parent / f".{path.name}.{kind}"


def place_of(path: Path) -> Path:
    """Where to read a folder: at its path or, while a writer replaces it, at its previous version."""
    if os.path.exists(path) or "\0" in str(path):
        return Path(path)
    moved = beside(real(path), "previous")
    # the path is looked at again, because the writer may have put the new version there meanwhile
    return moved if os.path.exists(moved / MANIFEST) and not os.path.exists(path) else Path(path)


def exists(path: str | Path) -> bool:
    """Whether a file or folder exists; True also while a writer replaces the folder."""
    return os.path.exists(path) or place_of(Path(path)) != Path(path)


def cache_home() -> Path:
    """fewlink's folder in the user's cache folder. Everything in it can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "fewlink"


@contextmanager
def locked(path: Path, busy: str = "") -> Iterator[None]:
    """Exclude other writers of a file or folder; the lock file lies beside it.

    While another process holds the lock, wait and, after a second, print a line; or raise the message `busy` at once.
    The lock ends with the process, however it ends; what its writer left is then removed. A thread that holds the lock
    may take it again.
    """
    from filelock import FileLock, Timeout

    path = real(path)
    file = beside(path, "lock")
    lock = FileLock(file, mode=0o666, is_singleton=True)
    with writing(path):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0 if busy else SILENT_WAIT_SECONDS)
        except Timeout:
            if busy:
                raise FewlinkError(busy) from None
            if not file.exists():
                file.touch()  # raises where no file can be created, such as in /proc
            print(f"waiting for another process to finish writing {path}", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        if lock.lock_counter == 1:
            _recover(path)
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):  # filelock notices that the file is gone: a process that waits for it tries again
                os.unlink(file)
        lock.release()


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a draft path to write to. On success the draft replaces the file at `path`; on an error nothing changes."""
    path = real(path.parent) / path.name
    with writing(path), locked(path):
        folder = beside(path, "new")
        draft = folder / "draft"  # in a folder, which also holds what SQLite writes beside it
        folder.mkdir()
        try:
            yield draft
            sync(draft)
            os.replace(draft, path)
            sync(path.parent)
        finally:
            remove(folder)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a fragment."""
    with replaced_file(path) as draft:
        draft.write_bytes(content)


def write_json(path: Path, content: Any) -> None:
    """Replace a file of JSON atomically."""
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raise if a string cannot be encoded as UTF-8 or an object repeats a key."""
    try:
        text = read_file(path).decode("utf-8-sig")
        content = json.loads(text, object_pairs_hook=unique_keys)
        if "\\u" in text:  # an escape may be a lone surrogate
            json.dumps(content, ensure_ascii=False).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(path, f"is not UTF-8 text ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise InputError(path, f"is not JSON ({error.msg})", error.lineno) from None
    except (ValueError, RecursionError) as error:  # numbers or nesting too large for the parser
        raise InputError(path, f"is JSON that cannot be read ({error})") from None
    return content


def sha256_file(path: Path) -> str:
    """The sha256 of a file."""
    check_file(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None


def sha256_json(content: Any) -> str:
    """The sha256 of JSON content, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def with_sha256(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its checksum added as the last entry, `sha256`."""
    return {**content, "sha256": sha256_json(json.loads(json.dumps(content)))}


def without_sha256(content: Any, path: Path, line: int | None = None, remedy: str = "restore or remove it") -> Any:
    """The content without the checksum that `with_sha256` added. Raise if it is missing or wrong."""
    if not isinstance(content, dict):
        return content
    rest = dict(content)
    if rest.pop("sha256", None) != sha256_json(rest):
        raise InputError(path, f"was changed or damaged since it was written: {remedy}", line)
    return rest


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or folder. A folder's manifest goes first, so that nobody reads a half-removed folder."""
    if path.is_dir() and not path.is_symlink():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, format: str, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill. On success it becomes `path`; on any error it is removed.

    It replaces an existing folder of the same format. Raise if anything else is at `path`. The manifest stores `facts`,
    which the block may still change.
    """
    path = real(path)
    if Path.cwd().is_relative_to(path):
        raise FewlinkError(f"{path} is or contains the working folder and would be replaced: choose another folder")
    with writing(path), locked(path):
        if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or is_folder_of(path, format))):
            raise FewlinkError(f"{path} exists and is not a {format} folder: remove it or choose another folder")
        draft = beside(path, "new")
        draft.mkdir()
        try:
            yield draft
            _write_manifest(draft, format, facts)
            if (path / MANIFEST).exists():
                os.rename(path, beside(path, "previous"))
            os.rename(draft, path)
            sync(path.parent)
        finally:
            _recover(path)


def _recover(path: Path) -> None:
    """Remove what a writer has left, and move the previous version of a folder back if it has no other.

    A draft is removed even if it is complete: since its writer was killed, readers have seen the previous version.
    """
    place = place_of(path)
    if place != path:
        os.rename(place, path)
    remove(beside(path, "previous"))
    remove(beside(path, "new"))


def _write_manifest(folder: Path, format: str, facts: dict[str, Any]) -> None:
    paths = sorted(folder.rglob("*"))
    files = {str(path.relative_to(folder)): path for path in paths if path.is_file()}
    listed = {name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)} for name, path in files.items()}
    content = json.dumps(with_sha256({"format": format, **facts, "files": listed}), indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_bytes(content.encode())
    for path in (*paths, folder / MANIFEST, folder):
        sync(path)


def read_folder(path: Path, format: str, load: Callable[[Path, dict[str, Any]], T]) -> T:
    """Return `load(place, manifest)`, all of one version of the folder even if a writer replaces it meanwhile.

    Raise unless all files are as they were written. A large folder is hashed once, and again after a file has changed.
    """
    path = Path(path)

    def load_checked() -> T:
        place = place_of(path)
        return load(place, _checked(place, format))

    return while_unchanged(path, lambda: version_of(path), load_checked)


def open_folder(path: Path, format: str) -> dict[str, Any]:
    """The manifest of a folder that `new_folder` wrote, whose files are as they were written."""
    return read_folder(path, format, lambda place, manifest: manifest)


def is_folder_of(path: Path, format: str) -> bool:
    """Whether a folder was written by `new_folder` in this format. Raise if its manifest is damaged."""
    file = place_of(path) / MANIFEST
    return os.path.lexists(file) and _manifest(file).get("format") == format


def while_unchanged(path: Path, version: Callable[[], Any], load: Callable[[], T]) -> T:
    """Call `load` again until what it reads at `path` has the same version before and after."""
    end = time.monotonic() + MAX_READ_SECONDS
    while True:
        before = version()
        try:
            loaded = load()
        except Exception:
            if version() == before:
                raise
        else:
            if version() == before:
                return loaded
        if time.monotonic() > end:
            raise InputError(path, f"was replaced repeatedly for {MAX_READ_SECONDS:.0f} s: try again later")
        time.sleep(RETRY_SECONDS)


def version_of(folder: Path) -> Any:
    """Where a folder is read, and the identity of its manifest: one of them differs after the folder is replaced."""
    place = place_of(folder)
    return place, identity(place / MANIFEST)


def identity(file: Path) -> tuple[int, int, int, int] | None:
    """The inode, size and times of a file, which differ after it is written or replaced. None if there is no file."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _manifest(file: Path) -> dict[str, Any]:
    """The content of a manifest without its checksum; empty for that of another program. Raise if it is damaged."""
    content = read_json(file)
    if not isinstance(content, dict) or not ("sha256" in content or str(content.get("format")).startswith("fewlink")):
        return {}
    found: dict[str, Any] = without_sha256(content, file, remedy="make the folder again")
    return found


def _checked(folder: Path, format: str) -> dict[str, Any]:
    """The manifest of a folder. Raise unless all files are as they were written."""
    if not os.path.isdir(folder):
        raise InputError(folder, "is not a folder" if os.path.exists(folder) else "does not exist")
    manifest = _manifest(folder / MANIFEST)
    if manifest.get("format") != format:
        raise wrong_format(folder, manifest.get("format"), format)
    try:
        listed = {str(name): (file["bytes"], file["sha256"]) for name, file in manifest["files"].items()}
    except (AttributeError, KeyError, TypeError):
        raise InputError(folder / MANIFEST, CHANGED) from None
    seen = {}
    for name, (size, digest) in listed.items():
        _check_inside(folder, name)
        file = folder / name
        found = identity(file)
        if found is None:
            raise InputError(file, "is missing from its folder: make the folder again")
        check_file(file)
        if found[1] != size:
            raise InputError(file, CHANGED)
        seen[name] = (digest, found)
    if sum(size for size, _ in listed.values()) <= ALWAYS_HASHED_BYTES:
        _check_hashes(folder, listed)
        return manifest
    cache = cache_home() / "checked" / hashlib.sha256(os.fsencode(real(folder))).hexdigest()[:32]
    with suppress(OSError):
        if cache.read_text() == sha256_json(seen):  # the files are those that were hashed before
            return manifest
    tell(f"checking {folder} for damage")
    _check_hashes(folder, listed)
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(sha256_json(seen))  # a file that is cut off never matches
    return manifest


def _check_inside(folder: Path, name: str) -> None:
    """Raise unless a listed file lies in its folder, or is a link into the store that huggingface_hub fetched it to."""
    place = real(folder)
    blobs = place.parent.parent / "blobs"  # where the links <model>/snapshots/<commit>/<file> lead
    if "\0" not in name and not os.path.isabs(name):
        target = real(place / name)
        if target == place / name or target.parent == blobs:
            return
    raise InputError(folder / MANIFEST, f"names a file outside its folder ('{name}'): make the folder again")


def _check_hashes(folder: Path, listed: Mapping[str, tuple[int, str]]) -> None:
    """Raise if the sha256 of a file is not the listed one."""
    for name, (_, digest) in listed.items():
        if sha256_file(folder / name) != digest:
            raise InputError(folder / name, CHANGED)
