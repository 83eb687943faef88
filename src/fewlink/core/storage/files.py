"""Atomic replacement of files, and JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fewlink.core.errors import InputError, unique_keys, writing
from fewlink.core.storage.locks import acquired, in_draft
from fewlink.core.storage.places import beside
from fewlink.core.storage.recovery import remove


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a fragment."""
    with replaced_file(path) as draft, draft.open("wb") as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a draft path to write to. On success the draft replaces the file at `path`; on an error nothing changes."""
    path = Path(os.path.realpath(path.parent)) / path.name
    if in_draft(path):
        yield path
        return
    with writing(path), acquired(beside(path, "lock"), path, ""):
        folder = beside(path, "new")
        draft = folder / "draft"  # without the file's suffix, so that searches by suffix skip it
        remove(folder)
        folder.mkdir()
        try:
            yield draft
            sync(draft)
            os.replace(draft, path)
            sync(path.parent)
        finally:
            remove(folder)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raise if a string cannot be encoded as UTF-8 or an object repeats a key."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = json.loads(text, object_pairs_hook=unique_keys)
        if "\\u" in text:  # an escape may be a lone surrogate
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


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
