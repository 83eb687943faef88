"""What is built from the repository is complete: the wheel has its data files, the sdist what its tests read."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fewlink

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fewlink"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
KERNELS = PACKAGE / "propagation" / "kernels.py"  # of Triton, which torch brings where there is a GPU
DISTRIBUTIONS = {  # where the import name differs
    "sklearn": "scikit-learn",
    "huggingface_hub": "huggingface-hub",
    "sentence_transformers": "sentence-transformers",
}
QUICK_TESTS = (  # run in the unpacked sdist: together they read documents, results, benchmarks, recipes and examples
    *("tests/base/test_seeds.py", "tests/base/test_recipes.py", "tests/evaluation/test_ranks.py"),
    *("tests/baselines/test_learning_free.py", "tests/test_packaging.py"),
    "tests/test_documents.py::test_generated_documents_are_fresh",
    "tests/test_documents.py::test_every_link_of_the_documents_leads_somewhere",
)


def names(requirements: list[str]) -> set[str]:
    """The distributions of requirements such as `torch>=2.6`, extras of fewlink itself resolved."""
    found = set()
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[(.*)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == "fewlink":
            for extra in extras.split(","):
                found |= names(PROJECT["optional-dependencies"][extra])
        else:
            found.add(name)
    return found


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The distribution of each import of another package, and whether it stands at the top of the module."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        for module in modules:
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in ("fewlink", "_typeshed"):
                yield DISTRIBUTIONS.get(top, top), node in tree.body


CORE = names(PROJECT["dependencies"])
EXTRAS = {extra: names(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}


def test_every_imported_package_is_declared() -> None:
    declared = CORE.union(*(names for extra, names in EXTRAS.items() if extra != "dev"))
    used = {(name, path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py") for name, _ in imports(path)}
    used.discard(("triton", KERNELS.relative_to(ROOT)))
    assert not [f"{path} imports {name}" for name, path in used if name not in declared]
    assert {name for name, _ in used} >= CORE


def test_modules_import_extras_inside_functions_only() -> None:
    """Only what is served may need its extra at the top, because the command checks for it first."""
    for path in PACKAGE.rglob("*.py"):
        served = path.parent.name == "web" or path.name == "openrefine.py"
        allowed = CORE | EXTRAS["serve"] if served else CORE
        if path == KERNELS:
            continue  # it is imported inside a function
        missing = {name for name, at_top in imports(path) if at_top} - allowed
        assert not missing, f"{path.relative_to(ROOT)} imports {missing}"


def test_versions_of_everything_the_tests_need_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    assert {name.lower() for name in CORE | EXTRAS["dev"]} <= pinned


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [fewlink.__version__]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of the repository."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("needs hatchling, which builds packages")
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        points = archive.read(f"fewlink-{fewlink.__version__}.dist-info/entry_points.txt").decode()
    files = {p.relative_to(ROOT / "src").as_posix() for p in PACKAGE.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    assert files <= inside
    assert {name for name in inside if not name.startswith("fewlink-")} <= files
    data = ("py.typed", "recipes/trail-0.1.toml", "static/page.html", "report.html.j2", "builtin/attack.tsv.xz")
    for suffix in (
        *data,
        "builtin/umls.tsv.gz",
        "builtin/attack.tsv.xz",
        "builtin/trail.safetensors",
        "builtin/trail.md",
    ):
        assert [name for name in files if name.endswith(suffix)], suffix
    assert "fewlink = fewlink.cli:main" in points


@pytest.mark.slow
def test_the_tests_of_the_sdist_run(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    places = [str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    command += ["-q", "--import-mode=importlib"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return done.stdout

    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    collected = {line.partition("::")[0] for line in run("--collect-only").splitlines() if "::" in line}
    assert collected == here
    run("-m", "not slow", *QUICK_TESTS)
