"""Record today's behaviour: `python -m tests.goldens.record [NAME …]`, by default everything.

The records say what a user gets from this version. A change that alters them on purpose records them again, in a
commit whose body says what changed and why. The project file `attack.decisions` stays as version 0.3 wrote it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tests.goldens.running import DECISIONS, RECORDS, nell_one, succeeds
from tests.goldens.things import GROUPS, THINGS

WIDTH = 160  # of a line; shorter values stand in one line


def made_decisions(folder: Path) -> None:
    """Write the project file: decisions of two curators on targets of groups, with a conflict, and one undone."""
    rows = succeeds("ask", "attack", *GROUPS, "--of-type", "group", "--top", 30, "--json").json
    lines = ["head\ttail\tdecision\twho\ttime\tprobability"]
    lines += ["G0082\tplatform:windows\treference\tann\t2025-01-02T03:04:05Z\t"]
    lines += ["G0139\tplatform:containers\treference\tann\t2025-01-02T03:04:06Z\t"]
    for number, row in enumerate(rows):
        decision = "rejected" if number % 3 == 1 else "accepted"
        who, time = ("ann", "bob")[number % 2], f"2025-01-03T10:{number:02}:00Z"
        lines.append("\t".join([row["head"], row["tail"], decision, who, time, f"{row['probability']:.4f}"]))
    lines.append("\t".join([rows[0]["head"], rows[0]["tail"], "rejected", "bob", "2025-01-04T10:00:00Z", ""]))
    targets, tools = folder / "targets.tsv", folder / "tools.tsv"
    targets.write_text("\n".join(lines) + "\n")
    tools.write_text("head\ttail\tdecision\twho\ttime\nS0002\tS0005\taccepted\tann\t2025-02-01T00:00:00Z\n")
    file = folder / DECISIONS.name
    succeeds("project", "import", file, targets, "--project", "targets")
    succeeds("project", "import", file, tools, "--project", "similar tools")
    succeeds("project", "undo", file, "--project", "targets", "--event", 12)
    succeeds("project", "backup", file, DECISIONS)


def text_of(value: Any, indent: str = "") -> str:
    """JSON in which what fits into a line stands in one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return flat
    inner = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + text_of(each, inner) for each in value) + f"\n{indent}]"
    items = (f"{inner}{json.dumps(key, ensure_ascii=False)}: {text_of(each, inner)}" for key, each in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def main(names: list[str]) -> None:
    """Record these things."""
    torch.set_num_threads(1)
    if not DECISIONS.exists():
        with tempfile.TemporaryDirectory() as folder:
            made_decisions(Path(folder))
    for name in names or THINGS:
        if name == "evaluate-nell-one" and nell_one() is None:
            print(f"{name}: the data is not there")
            continue
        with tempfile.TemporaryDirectory() as folder:
            facts = THINGS[name](Path(folder))
        (RECORDS / f"{name}.json").write_text(text_of(facts) + "\n")
        print(f"{name}: recorded")


if __name__ == "__main__":
    main(sys.argv[1:])
