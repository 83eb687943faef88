"""Atomic folders: written to a temporary place, fsynced, described by a manifest, renamed into place."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fewlink.base.errors import FewlinkError, InputError, unique_keys

MANIFEST = "manifest.json"
CHANGED = "was changed or damaged since it was written: make the folder again"
ALWAYS_VERIFIED_BYTES = 64 << 20  # folders up to this size are hashed whenever they are opened (0.1 s)


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a part."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent / f".{path.name}.{os.getpid()}.part"
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


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


@contextmanager
def new_folder(path: Path, format: str, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it becomes `path`, on any error it is removed.

    An existing folder of the same format is replaced. Raises if anything else is at `path`. `facts` may be filled
    inside the block and is stored in the manifest.
    """
    with _writing(path):
        path = Path(os.path.realpath(path))
        if Path.cwd().is_relative_to(path):
            raise FewlinkError(f"{path} is or contains the working folder and would be replaced: choose another place")
        _clean_up(path)
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and _format_of(path) != format)):
            raise FewlinkError(f"{path} exists and is not a {format} folder: remove it or choose another place")
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            yield draft
            _write_manifest(draft, format, facts)
            if path.exists():
                old = path.with_name(f".{path.name}.{os.getpid()}.old")
                os.rename(path, old)
                os.rename(draft, path)
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.rename(draft, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def open_folder(path: Path, format: str, verify: bool | None = None) -> dict[str, Any]:
    """The manifest of a folder written by `new_folder`. Raises if a file has another size or, with `verify`, hash.

    `verify=None` hashes small folders, but not large ones, which are memory-mapped.
    """
    path = Path(path)
    if not os.path.exists(path):
        _clean_up(path)
    if not os.path.isdir(path):
        raise InputError(path, "is not a folder" if os.path.exists(path) else "does not exist")
    manifest = read_json(path / MANIFEST)
    actual = manifest.get("format") if isinstance(manifest, dict) else None
    if actual != format:
        raise InputError(path, f"has format {actual!r}, this version of fewlink reads {format!r}: make it again")
    if manifest.pop("sha256", None) != _sha256_json(manifest):
        raise InputError(path / MANIFEST, CHANGED)
    try:
        files = {path / name: {"bytes": f["bytes"], "sha256": f["sha256"]} for name, f in manifest["files"].items()}
        total = sum(f["bytes"] for f in files.values())
    except (AttributeError, KeyError, TypeError):
        raise InputError(path / MANIFEST, CHANGED) from None
    if verify is None:
        verify = total <= ALWAYS_VERIFIED_BYTES
    for file, expected in files.items():
        if not os.path.isfile(file):
            raise InputError(file, "is missing from its folder: make the folder again")
        if file.stat().st_size != expected["bytes"] or (verify and sha256_file(file) != expected["sha256"]):
            raise InputError(file, CHANGED)
    return dict(manifest)


def is_folder_of(path: Path, format: str) -> bool:
    return os.path.isdir(path) and _format_of(Path(path)) == format


def _format_of(path: Path) -> str | None:
    try:
        manifest = read_json(path / MANIFEST)
    except InputError:
        return None
    return manifest.get("format") if isinstance(manifest, dict) else None


def _clean_up(path: Path) -> None:
    """Clean up after a process that was killed while writing: restore the old folder, remove drafts."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
        kind, process = leftover.suffix, leftover.stem.rpartition(".")[2]
        if kind not in (".old", ".part") or not process.isdigit() or _is_running(int(process)):
            continue
        if kind == ".old" and not path.exists():
            os.rename(leftover, path)
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _write_manifest(folder: Path, format: str, facts: dict[str, Any]) -> None:
    files = {str(f.relative_to(folder)): f for f in sorted(folder.rglob("*")) if f.is_file()}
    for file in files.values():
        sync_file(file)
    listed = {name: {"bytes": f.stat().st_size, "sha256": sha256_file(f)} for name, f in files.items()}
    manifest = {"format": format, **facts, "files": listed}
    write_json(folder / MANIFEST, {**manifest, "sha256": _sha256_json(manifest)})


def _sha256_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file; the lock is released when the process ends, however it ends."""
    from filelock import FileLock

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.parent / ".lock", mode=0o666).acquire()
    except OSError as error:
        raise FewlinkError(f"{path} cannot be written ({error.strerror or error})") from None
    with lock:
        yield


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing `path` into an error that names it and the reason."""
    try:
        yield
    except OSError as error:
        raise FewlinkError(f"{path} cannot be written ({error.strerror or error})") from None


def sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
