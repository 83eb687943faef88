"""Mistakes of users. Each command ends with an exit code and one short message on standard error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.goldens.running import DECISIONS, RECORDS, command, people_file, succeeds, umls_file

TOO_LONG = 1_000  # characters of a message
ASKED = ["--reference", "virus => cell", "--head", "alga"]


def mistakes(folder: Path) -> dict[str, Any]:
    """The exit code of each mistake, and whether the command line (usage) or the work (error) found it."""
    found = {}
    for name, words in _commands(folder).items():
        ran = command(*words)
        message = ran.err.strip()
        answer = "usage" if message.startswith("Usage:") else "error"
        if not message or len(message) > TOO_LONG or "Traceback" in message:
            answer = "no short message"
        found[name] = f"{ran.code} {answer}"
    return found


def _commands(folder: Path) -> dict[str, list[object]]:
    umls, people = umls_file(folder), people_file(folder)
    out, nowhere, taken = folder / "out", folder / "nowhere", folder / "taken"
    succeeds("data", "compile", umls, "--out", taken)
    decisions = Path(shutil.copy(DECISIONS, folder))
    lives = ["--reference", "ann => norway", "--head", "dan"]
    causes = ["--relation", "causes", "--head", "virus"]
    tool = ["--relation", "group_uses_tool", "--head", "FIN7"]
    bad = _written(folder / "bad.tsv", b"a\tb\tc\na\tb\n")
    targets = ["--project", "targets", "--out"]
    return {
        "no such command": ["nothing"],
        "no such option": ["ask", "umls", *ASKED, "--nothing"],
        "ask: no graph": ["ask"],
        "ask: no such file": ["ask", nowhere, *ASKED],
        "ask: no references": ["ask", "umls", "--head", "alga"],
        "ask: no heads": ["ask", "umls", "--reference", "virus => cell"],
        "ask: heads and tails": ["ask", "umls", *ASKED, "--tail", "cell"],
        "ask: a reference without an arrow": ["ask", "umls", "--reference", "virus cell", "--head", "alga"],
        "ask: an unknown head": ["ask", "umls", "--reference", "virus => cell", "--head", "nobody"],
        "ask: an unknown reference": ["ask", "umls", "--reference", "nobody => cell", "--head", "alga"],
        "ask: an unknown relation": ["ask", "umls", "--relation", "nothing", "--head", "alga"],
        "ask: an unknown type": ["ask", "attack", *tool, "--candidates", "nothing"],
        "ask: no answers wanted": ["ask", "umls", *ASKED, "--top", 0],
        "ask: no whole number": ["ask", "umls", *ASKED, "--top", "many"],
        "ask: no shots": ["ask", "attack", *tool, "--shots", 0],
        "ask: an unknown constraint": ["ask", "umls", *ASKED, "--constraint", "nothing"],
        "ask: a broken constraint": ["ask", "umls", *causes, "--constraint", "functional"],
        "ask: an unknown device": ["ask", "umls", *ASKED, "--device", "nothing"],
        "ask: two forms of output": ["ask", "umls", *ASKED, "--json", "--tsv"],
        "ask: a missing file of names": ["ask", umls, *ASKED, "--names", nowhere],
        "ask: a missing file of references": ["ask", "umls", "--references", nowhere, "--head", "alga"],
        "ask: an unknown column": ["ask", people, *lives, "--columns", "head=nothing,relation=link,tail=target"],
        "ask: an unknown way with bad lines": ["ask", people, *lives, "--on-error", "nothing"],
        "ask: an unknown project": ["ask", "attack", *tool, "--project", decisions, "--project-name", "none"],
        "ask: a bad line": ["ask", bad, "--reference", "a => c", "--head", "a"],
        "ask: an empty file": ["ask", _written(folder / "empty.tsv", b""), *ASKED],
        "ask: bytes of no text": ["ask", _written(folder / "bytes.tsv", bytes(range(256)) * 4), *ASKED],
        "ask: damaged gzip": ["ask", _written(folder / "bad.tsv.gz", b"\x1f\x8b\x08\x00nonsense"), *ASKED],
        "ask: a damaged folder": ["ask", _damaged(taken, folder / "damaged"), *ASKED],
        "ask: a folder without a graph": ["ask", RECORDS, *ASKED],
        "complete: no relation": ["complete", "umls", "--out", folder / "c.tsv"],
        "complete: an unknown suffix": ["complete", "umls", "--relation", "treats", "--out", folder / "c.doc"],
        "relations: an unknown entity": ["relations", "umls", "nobody", "cell"],
        "check: an unknown relation": ["check", "umls", "--relation", "nothing"],
        "fit: no such file": ["fit", nowhere, "--out", out],
        "fit: no time": ["fit", umls, "--out", out, "--minutes", 0],
        "fit: an unknown setting": ["fit", umls, "--out", out, "--set", "nothing=1"],
        "fit: a folder of other things": ["fit", umls, "--out", taken],
        "train: no folder": ["train", "umls"],
        "train: an unknown model": ["train", "umls", "--model", "nothing", "--out", out],
        "train: no number": ["train", "umls", "--out", out, "--set", "steps=many"],
        "evaluate: an unknown scorer": ["evaluate", "umls", "--scorer", "nothing"],
        "evaluate: no shots": ["evaluate", "umls", "--shots", 0],
        "compare: one model": ["compare", "rules", "--benchmark", "umls"],
        "models: an unknown model": ["models", "nothing"],
        "data: an unknown benchmark": ["data", "info", "nothing"],
        "data: compile to a folder that is there": ["data", "compile", umls, "--out", taken],
        "data: append a missing file": ["data", "append", taken, nowhere],
        "project: no such file": ["project", "list", nowhere],
        "project: no project file": ["project", "list", people],
        "project: which one": ["project", "log", decisions],
        "project: an unknown format": ["project", "export", decisions, *targets, folder / "x.doc"],
        "project: a file that is there": ["project", "export", decisions, *targets, people],
        "serve: others without a token": ["serve", "umls", "--host", "0.0.0.0", "--port", 0],
        "mcp: no such file": ["mcp", nowhere],
    }


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _damaged(compiled: Path, copy: Path) -> Path:
    """A copy of a compiled graph with another byte in the middle of its largest file."""
    shutil.copytree(compiled, copy)
    largest = max(copy.rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else -1)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    return copy
