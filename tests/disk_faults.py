"""Work on files while one operation of the disk fails: `disk_faults.c` is preloaded, and each trial is a process.

python -m tests.disk_faults store|files TRIALS FOLDER, under the library, prints the outcomes as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fewlink.core import files
from fewlink.core.errors import FewlinkError
from fewlink.curation.store import ProjectFile

ROOT = Path(__file__).parents[1]
KINDS = {
    "r": "a read fails",
    "w": "a write fails",
    "h": "half is written",
    "f": "the disk is full",
    "s": "fsync fails",
    "p": "the power fails",
}
OUTCOMES = {0: "done", 2: "refused", 99: "lost power"}  # by exit code
FORMAT = "fewlink-test/1"


class Work(NamedTuple):
    """What is prepared in a folder without faults, done with one, and checked afterwards.

    `work` calls its argument when something is stored for good; `check` gets all of that, and raises if any is lost.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path, Callable[[str], None]], None]
    check: Callable[[Path, list[str]], None]


def prepare_store(folder: Path) -> None:
    with ProjectFile(folder / "p.decisions") as file:
        file.add_project("cures", [("a", "b")])


def decide(folder: Path, stored: Callable[[str], None]) -> None:
    """Store decisions; after an error, the same file accepts the next ones."""
    problem: FewlinkError | None = None
    with ProjectFile(folder / "p.decisions") as file:
        for number in range(6):
            try:
                file.decide("cures", [("accepted", f"{number}.{part}" * 300, "t") for part in range(4)])
            except FewlinkError as error:
                if "damaged" in str(error) or (problem is not None and "full" not in str(error)):
                    raise RuntimeError("a wrong or a second error") from error
                problem = error
            else:
                stored(str(number))
    if problem is not None:
        raise problem


def check_store(folder: Path, stored: list[str]) -> None:
    with ProjectFile(folder / "p.decisions") as file:
        counts = Counter(head.partition(".")[0] for head, _ in file.pairs("cures", "accepted"))
        assert set(stored) <= set(counts), f"lost {set(stored) - set(counts)}"
        assert set(counts.values()) <= {4}, "a part of decisions that belong together"
        file.decide("cures", [("accepted", "after", "all")])


def write_version(folder: Path, version: str) -> None:
    with files.new_folder(folder / "made", FORMAT, {"version": version}) as draft:
        (draft / "a.txt").write_text(version * 10_000)
        (draft / "b.txt").write_text(version)


def prepare_files(folder: Path) -> None:
    write_version(folder, "0")
    files.write_json(folder / "a.json", ["0"])


def replace_files(folder: Path, stored: Callable[[str], None]) -> None:
    for version in "12":
        files.write_json(folder / "a.json", [version] * 5000)
        stored(f"a.json {version}")
        write_version(folder, version)
        stored(f"made {version}")


def check_files(folder: Path, stored: list[str]) -> None:
    def read(place: Path, facts: dict[str, Any]) -> str:
        texts = {(place / name).read_text()[:1] for name in ("a.txt", "b.txt")} | {facts["version"]}
        assert len(texts) == 1, "two versions in one folder"
        return texts.pop()

    found = {
        "a.json": files.read_json(folder / "a.json")[0],
        "made": files.read_folder(folder / "made", FORMAT, read),
    }
    for name, version in (each.split() for each in stored):
        assert found[name] >= version, f"{name} {version} is lost"
    write_version(folder, "3")
    files.write_json(folder / "a.json", ["3"])
    assert sorted(path.name for path in folder.iterdir()) == ["a.json", "made"], "something is left"


WORKS = {"store": Work(prepare_store, decide, check_store), "files": Work(prepare_files, replace_files, check_files)}


def trial(work: Work, folder: Path, kind: str, number: int) -> str:
    """The outcome of one trial, or what went wrong."""
    library, notes = ctypes.CDLL(None), folder.with_name("notes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    notes.write_text("")
    work.prepare(folder)
    child = os.fork()
    if not child:
        code = 1
        with notes.open("a") as file:

            def stored(what: str) -> None:
                print(what, file=file, flush=True)

            library.disk_fault(ord(kind), number, number, os.fsencode(folder))
            try:
                work.work(folder, stored)
                code = 0
            except FewlinkError:
                code = 2
            except BaseException:
                traceback.print_exc()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in OUTCOMES:
        return f"ended with {code}"
    try:
        work.check(folder, notes.read_text().splitlines())
    except (AssertionError, FewlinkError) as error:
        return f"{OUTCOMES[code]}, then: {error}"
    return OUTCOMES[code]


def outcomes(work: str, trials: int, folder: Path) -> dict[str, dict[str, int]]:
    """Compile the library, and run so many trials of each kind in a process with it: outcomes by kind."""
    library = folder / "disk_faults.so"
    source = ROOT / "tests" / "disk_faults.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    command = [sys.executable, "-m", "tests.disk_faults", work, str(trials), str(folder / "work")]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


if __name__ == "__main__":
    name, count, place = sys.argv[1:]
    print(
        json.dumps(
            {
                about: Counter(trial(WORKS[name], Path(place), kind, number) for number in range(1, int(count) + 1))
                for kind, about in KINDS.items()
            }
        )
    )
