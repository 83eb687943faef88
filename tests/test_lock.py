"""requirements.lock has all packages of the core and of `serve`, in the versions of constraints.txt, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")


def name_of(requirement: str) -> str:
    """The normalized name of a requirement, as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=\[;~!]", requirement)[0]).lower()


def versions(text: str) -> dict[str, str]:
    lines = (line.split() for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {name_of(line[0]): line[0].partition("==")[2] for line in lines}


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    constraints = versions((ROOT / "constraints.txt").read_text("utf-8"))
    locked = {name: version.partition("+")[0] for name, version in versions(LOCK).items()}
    assert len(locked) >= 25
    assert {name: constraints.get(name) for name in locked} == locked


def test_the_lock_covers_the_core_and_serve() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {name_of(each) for each in [*project["dependencies"], *project["optional-dependencies"]["serve"]]}
    assert needed <= versions(LOCK).keys()


def test_every_package_has_a_hash_and_no_address() -> None:
    requirements = LOCK[LOCK.index("\n", LOCK.rindex("#")) :].replace("\\\n", " ").split("\n")
    for line in filter(None, requirements):
        assert re.fullmatch(r"[\w.-]+==[\w.+]+(\s+--hash=sha256:[0-9a-f]{64})+", line), line
    assert "://" not in LOCK and "/opt" not in LOCK and "/home" not in LOCK
