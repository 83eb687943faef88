"""The notebooks run from the first to the last cell, and are stored with the outputs that they give."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"[-+−<>]?\s?\d[\d,]*\.?\d*%?")
MACHINE = re.compile(
    r"/(tmp|home|root|work|Users|private|var|opt|mnt)/|site-packages|[A-Z]:\\\\|0x[0-9a-f]{6}|20\d\d-\d\d-\d\dT"
)
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(outputs: list[Any]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each part of the outputs of a cell."""
    for output in outputs:
        if output.output_type == "stream":
            yield output.name, output.text
        else:
            yield from sorted(output.data.items())


def words(outputs: list[Any]) -> list[tuple[str, str]]:
    """What outputs say, without numbers and spaces: those may differ a little between machines."""
    said = [(kind, text) for kind, text in texts(outputs) if kind in ("stdout", "text/plain")]
    return [(kind, "".join(NUMBER.sub("#", text).split())) for kind, text in said]


def test_there_are_three_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["comparing_models", "curating_loop", "own_graph"]


@every_notebook
def test_outputs_are_stored_and_plain(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) - 1
    for cell in cells:
        assert cell.source.strip() and max(map(len, cell.source.splitlines())) <= 96
        for kind, text in texts(cell.outputs):
            assert kind in ("stdout", "text/plain", "text/html", "image/svg+xml"), f"{kind}: {text}"
            assert "<script" not in text
            if kind != "image/svg+xml":  # which names its schemas by address
                assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
            assert MACHINE.search(text) is None, MACHINE.search(text)
    assert MACHINE.search("\n".join(cell.source for cell in notebook.cells)) is None


@every_notebook
def test_the_prose_begins_with_a_title_and_links_to_files_that_exist(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert len(prose) > 2_000
    for target in re.findall(r"\]\(([^)#]+)", prose):
        assert (path.parent / target).is_file(), target


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """docs/notebooks/execute.py; what notebooks write goes to a folder of the test."""
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package)
    for name in ("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("execute_notebooks", ROOT / "docs" / "notebooks" / "execute.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@every_notebook
def test_it_runs_and_says_what_is_stored(path: Path, execute: ModuleType) -> None:
    stored, new = nbformat.read(path, as_version=4), execute.executed(path)
    for before, after in zip(code_cells(stored), code_cells(new), strict=True):
        assert words(after.outputs) == words(before.outputs), (
            f"{path.name} has old outputs: python docs/notebooks/execute.py stores new ones\n{before.source}"
        )
        assert [kind for kind, _ in texts(after.outputs)] == [kind for kind, _ in texts(before.outputs)]


@pytest.mark.slow
def test_a_cell_that_fails_is_an_error(tmp_path: Path, execute: ModuleType) -> None:
    path = tmp_path / "failing.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute.executed(path)
