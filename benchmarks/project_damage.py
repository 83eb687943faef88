"""Damage project files and what lies beside them, and see that no decision is lost or changed in silence.

python benchmarks/project_damage.py [--trials 1000] [--seed 0] [--record]

A third of the files has a log of another program beside it (`-wal`, `-journal`), a third the journal of a writer that
was killed. A bit is flipped, a block set to zero, or the rest cut off, of the file or of its journal. Opening must give
exactly the log of events as before, or an error; `silent` is anything else, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.curation.store import Event, ProjectFile

BLOCK = 512
DECISIONS = 60


def make_files(folder: Path) -> tuple[list[Event], bytes, bytes, bytes]:
    """The events of a project file; its content; and its content and journal inside another transaction."""
    path = folder / "whole.decisions"
    with ProjectFile(path) as file:
        file.add_project("cures", [("a", "b")], who="ann")
        for number in range(DECISIONS):
            file.decide("cures", [("accepted", f"head {number}", "tail", 0.5)], "ann")
        events = file.log("cures")
    whole = path.read_bytes()
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA cache_size = 1")  # pages are written before the commit
    base.execute("BEGIN IMMEDIATE")
    for number in range(DECISIONS + 2, 10 * DECISIONS):
        base.execute(
            "INSERT INTO event VALUES (?, 1, 'accepted', ?, 't', NULL, '', '', NULL, '')", (number, f"h{number}")
        )
    during = path.read_bytes()
    journal = Path(f"{path}-journal").read_bytes()
    base.close()
    return events, whole, during, journal


def damaged(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    at = rng.randrange(len(content))
    how = rng.randrange(3)
    if how == 0:
        changed[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        changed[at : at + BLOCK] = bytes(len(changed[at : at + BLOCK]))
    else:
        del changed[at:]
    return bytes(changed)


def trials(count: int, seed: int, folder: Path) -> Counter[str]:
    """The number of files that opened as before (`same`), that were `refused`, and `silent` ones."""
    events, whole, during, journal = make_files(folder)
    found = Counter[str]()
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        place = folder / f"trial {number}"
        place.mkdir()
        path = place / "p.decisions"
        kind = number % 3
        content, beside = (during, journal) if kind == 2 else (whole, b"")
        if kind == 2 and rng.random() < 0.5:
            beside = damaged(rng, beside)
        else:
            content = damaged(rng, content)
        path.write_bytes(content)
        if kind == 1:
            Path(f"{path}-wal").write_bytes(rng.randbytes(rng.choice((10, 100, 5000))))
        if kind > 0:
            Path(f"{path}-journal").write_bytes(beside or rng.randbytes(rng.choice((10, 100, 5000))))
        try:
            with ProjectFile(path, must_exist=True, write=rng.random() < 0.5) as file:
                found["same" if file.log("cures") == events else "silent"] += 1
        except FewlinkError:
            found["refused"] += 1
        shutil.rmtree(place)
    return found


def main() -> None:
    from measure import write_record

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="store the counts in records/project_damage.json")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = trials(given.trials, given.seed, Path(folder))
    minutes = (time.monotonic() - begin) / 60
    print(f"{given.trials:,} damaged project files in {minutes:.1f} min: {dict(found)}")
    if given.record:
        write_record(
            "project_damage", {"seed": given.seed, "minutes": round(minutes, 1), **found, "silent": found["silent"]}
        )
    sys.exit(1 if found["silent"] else 0)


if __name__ == "__main__":
    main()
