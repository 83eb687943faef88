"""The packages under src/fewlink (rooms) stand in one order: no import from a later room, no cycle inside a room.

Every import statement counts, also inside functions and under TYPE_CHECKING. Each problem names its file and line.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
ROOMS = (
    "core",
    "graph",
    "tasks",
    "propagation",
    "models",
    "evaluation",
    "training",
    "curation",
    "linker",
    "fitting",
    "server",
    "bridges",
    "cli",
)
Import = tuple[str, str]  # the imported module, and the place of the statement as "file:line"


def modules_under(source: Path) -> dict[str, Path]:
    """The file of every module of the package fewlink, by dotted name."""
    found = {}
    for path in sorted((source / "fewlink").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def nodes(path: Path) -> list[ast.Import | ast.ImportFrom | ast.Attribute]:
    """The imports of a file, and its attributes of the name `fewlink`."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fewlink")
    ]


def imports_of(module: str, modules: Mapping[str, Path], source: Path) -> Iterator[Import]:
    """Every module of fewlink that a module imports, wherever the statement stands."""
    path = modules[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes(path):
        place = f"{path.relative_to(source.parent)}:{node.lineno}"
        if isinstance(node, ast.Import):
            yield from ((alias.name, place) for alias in node.names if alias.name.split(".")[0] == "fewlink")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            if base.split(".")[0] == "fewlink":
                names = [f"{base}.{alias.name}" for alias in node.names]
                yield from ((name if name in modules else base, place) for name in names)


def room_of(module: str) -> str:
    """The room of a module; empty for `fewlink` itself and `fewlink.__main__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""


def upward_imports(source: Path = SOURCE) -> list[str]:
    """Imports from a room that stands later in the order, or of names that `fewlink` itself gathers from all rooms."""
    modules = modules_under(source)
    problems = []
    for module in modules:
        if not room_of(module):
            continue  # the package itself and the command may import every room
        rank = ROOMS.index(room_of(module))
        for imported, place in imports_of(module, modules, source):
            if (room := room_of(imported)) and ROOMS.index(room) > rank:
                problems.append(f"{place}: {module} imports {imported}, and {room} comes after {room_of(module)}")
        for node in nodes(modules[module]):
            line = f"{modules[module].relative_to(source.parent)}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == "fewlink" and not node.level:
                gathered = [a.name for a in node.names if f"fewlink.{a.name}" not in modules]
            elif isinstance(node, ast.Attribute):
                gathered = [node.attr] if f"fewlink.{node.attr}" not in modules else []
            else:
                continue
            wrong = [name for name in gathered if name != "__version__"]
            problems += [f"{line}: {module} takes {name} from fewlink: import it from its room" for name in wrong]
    return sorted(set(problems))


def cycles(source: Path = SOURCE) -> list[str]:
    """Cycles between modules of one room, each told once by the statements that close it."""
    modules = modules_under(source)
    edges = {
        module: {
            imported: place
            for imported, place in imports_of(module, modules, source)
            if imported != module and room_of(imported) == room_of(module) != ""
        }
        for module in modules
    }
    problems, finished = [], set[str]()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            ring = [*path[path.index(module) :], module]
            steps = [f"{edges[a][b]}: {a} imports {b}" for a, b in itertools.pairwise(ring)]
            problems.append("; ".join(steps))
        elif module not in finished:
            for imported in edges.get(module, {}):
                visit(imported, [*path, module])
            finished.add(module)

    for module in edges:
        visit(module, [])
    return problems


def test_every_package_is_in_the_order() -> None:
    packages = {path.relative_to(SOURCE / "fewlink").parts[0] for path in (SOURCE / "fewlink").glob("*/**/*.py")}
    assert packages == set(ROOMS)


def test_the_architecture_document_lists_the_rooms_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE)
    assert tuple(rows) == ROOMS


def test_tests_mirror_the_rooms() -> None:
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders - {"goldens", "experiments"} == set(ROOMS)


def test_no_module_imports_from_a_later_room() -> None:
    problems = upward_imports()
    assert not problems, "\n".join(["", *problems])


def test_no_cycle_inside_a_room() -> None:
    problems = cycles()
    assert not problems, "\n".join(["", *problems])


@pytest.fixture
def small_source(tmp_path: Path) -> Path:
    """A source tree with one problem of each kind."""
    files = {
        "__init__.py": "from fewlink.server import app\n",
        "core/__init__.py": "",
        "core/a.py": "def f():\n    from fewlink.core.b import x\n",
        "core/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a\n",
        "graph/__init__.py": "from fewlink.core import a\nimport fewlink.server.app\nimport fewlink\nfewlink.train\n",
        "server/__init__.py": "",
        "server/app.py": "from fewlink import __version__, evaluate\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "fewlink" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def test_upward_imports_are_named_with_file_and_line(small_source: Path) -> None:
    assert upward_imports(small_source) == [
        "src/fewlink/graph/__init__.py:2: fewlink.graph imports fewlink.server.app, and server comes after graph",
        "src/fewlink/graph/__init__.py:4: fewlink.graph takes train from fewlink: import it from its room",
        "src/fewlink/server/app.py:1: fewlink.server.app takes evaluate from fewlink: import it from its room",
    ]


def test_cycles_are_named_with_files_and_lines(small_source: Path) -> None:
    assert cycles(small_source) == [
        "src/fewlink/core/a.py:2: fewlink.core.a imports fewlink.core.b; "
        "src/fewlink/core/b.py:3: fewlink.core.b imports fewlink.core.a"
    ]
