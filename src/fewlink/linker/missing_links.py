"""All missing links of a relation, head by head, into a file: an interrupted run goes on where it stopped.

While it runs, FILE.part holds what was found so far: a first line that says what it is made with, then one line for
each batch of heads, with its number and checksum. When all heads are done, FILE is written at once and FILE.part is
removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.core.errors import FewlinkError, InputError
from fewlink.core.storage import with_sha256, without_sha256, write_bytes

FORMAT = "fewlink-completion/1"
HEADS_AT_ONCE = 32
SUFFIX = ".part"
REMEDY = "remove it to begin again"
Row = Sequence[Any]


def complete_heads(
    heads: Sequence[int],
    answer: Callable[[np.ndarray], list[Row]],
    facts: Mapping[str, Any],
    out: Path | None = None,
    on_heads: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Row]]:
    """The rows of each batch of heads, those of an interrupted run first; `answer` maps heads (h,) to rows.

    With `out`, batches are kept in a file beside it until `finish` is called. Raises if that file, or `out` itself, was
    made with other `facts`.
    """
    batches = [heads[begin : begin + HEADS_AT_ONCE] for begin in range(0, len(heads), HEADS_AT_ONCE)]
    kept = [] if out is None else _begin(out, facts)
    for number, batch in enumerate(batches):
        if number < len(kept):
            rows = kept[number]
        else:
            rows = answer(np.array(batch, np.int32))
            if out is not None:
                _append(part_of(out), with_sha256({"batch": number, "rows": rows}))
        on_heads(min((number + 1) * HEADS_AT_ONCE, len(heads)))
        yield rows


def part_of(out: Path) -> Path:
    return out.with_name(out.name + SUFFIX)


def finish(out: Path, text: str) -> None:
    """Write the whole file at once and remove what was kept meanwhile."""
    write_bytes(out, text.encode())
    part_of(out).unlink(missing_ok=True)


def check_out(out: Path) -> None:
    """Raise if a finished file is there, or nothing can be written."""
    if os.path.exists(out):
        raise InputError(out, "exists already: remove it, or choose another file")
    if not os.path.isdir(out.parent):
        raise InputError(out, "cannot be written: its folder does not exist")


def _begin(out: Path, facts: Mapping[str, Any]) -> list[list[Row]]:
    """The batches that an interrupted run has kept; a file for new ones is begun if there is none."""
    part, first = part_of(out), {"format": FORMAT, **facts}
    check_out(out)
    if not part.exists():
        write_bytes(part, _line(first))
        return []
    try:
        content = part.read_bytes()
    except OSError as error:
        raise InputError(part, f"cannot be read ({error.strerror})") from None
    whole = content[: content.rfind(b"\n") + 1]  # a run that was killed may leave a part of a line
    lines = whole.splitlines()
    try:
        found = json.loads(lines[0]) if lines else None
        batches = [_rows(json.loads(line), number, part) for number, line in enumerate(lines[1:])]
    except (ValueError, RecursionError):
        raise InputError(part, f"is damaged: {REMEDY}") from None
    if found != json.loads(_line(first)):
        differing = [key for key in first if not isinstance(found, dict) or found.get(key) != first[key]]
        raise InputError(part, f"was begun with other choices ({', '.join(differing)}): give the same, or {REMEDY}")
    if len(whole) < len(content):
        with part.open("r+b") as file:
            file.truncate(len(whole))
    return batches


def _rows(kept: Any, number: int, part: Path) -> list[Row]:
    """The rows of a batch that was kept, which is checked; earlier versions kept the rows alone."""
    if isinstance(kept, list):
        return kept
    content = without_sha256(kept, part, number + 2, REMEDY)
    if not isinstance(content, dict) or content.get("batch") != number or not isinstance(content.get("rows"), list):
        raise InputError(part, f"is not the batch of heads that belongs here: {REMEDY}", number + 2)
    return list(content["rows"])


def _append(part: Path, batch: Mapping[str, Any]) -> None:
    try:
        with part.open("ab") as file:
            file.write(_line(batch))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FewlinkError(f"{part} cannot be written ({error.strerror})") from None


def _line(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()
