"""The wheel has all files of the package and runs README's first commands; the sdist has all files of its tests."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.browser import CHROMIUM, DRIVER, Browser

import fewlink

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fewlink"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
KERNELS = PACKAGE / "propagation" / "kernels.py"  # Triton comes with torch for GPUs
DISTRIBUTIONS = {  # whose import names differ
    "sklearn": "scikit-learn",
    "huggingface_hub": "huggingface-hub",
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
    "sentence_transformers": "sentence-transformers",
}
QUICK_TESTS = (  # run in the unpacked sdist: they read documents, results, benchmarks, recipes and examples
    "tests/core/test_seeds.py",
    "tests/core/test_recipes.py",
    "tests/evaluation/test_ranks.py",
    "tests/models/baselines/test_learning_free.py",
    "tests/test_packaging.py",
    "tests/test_documents.py::test_the_figures_of_the_documents_are_those_of_the_records",
    "tests/test_documents.py::test_every_link_of_the_documents_leads_somewhere",
)


def names(requirements: list[str]) -> set[str]:
    """The distributions of requirements such as `torch>=2.6`, with fewlink's own extras resolved."""
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
    """Yield the distribution of each imported package, and whether the import is at the top of the module."""
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
    """Only the server may import its extra at the top of a module: `fewlink serve` checks for it first."""
    for path in PACKAGE.rglob("*.py"):
        served = path.parent.name == "server" or path.name == "openrefine.py"
        allowed = CORE | EXTRAS["serve"] if served else CORE
        if path == KERNELS:
            continue  # a function imports this module
        missing = {name for name, at_top in imports(path) if at_top} - allowed
        assert not missing, f"{path.relative_to(ROOT)} imports {missing}"


def test_classifiers_list_the_tested_versions() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    (matrix,) = re.findall(r"python: \[(.+)\]", workflow)
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert re.findall(r"\d\.\d+", matrix) == named
    assert re.fullmatch(rf">={re.escape(named[0])}(\.\d+)?", PROJECT["requires-python"])
    assert not [line for line in PROJECT["classifiers"] if "Windows" in line or line.endswith("OS Independent")]


def test_constraints_pin_the_core_and_the_extra_dev() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if "==" in line}
    assert {name.lower() for name in CORE | EXTRAS["dev"]} <= pinned


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    """`make floors` installs the extras that the extra dev has, in exactly the versions that pyproject.toml names."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (extras,) = re.findall(r"^FLOORED_EXTRAS := (\S+)$", makefile, re.MULTILINE)
    (own,) = (line for line in PROJECT["optional-dependencies"]["dev"] if line.startswith("fewlink["))
    assert own == f"fewlink[{extras}]"
    lines = (ROOT / "floors.txt").read_text("utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    asked = [
        *PROJECT["dependencies"],
        *(line for name in extras.split(",") for line in PROJECT["optional-dependencies"][name]),
    ]
    for line in asked:
        name, _, version = line.partition(">=")
        assert re.fullmatch(re.escape(version) + r"(\.0)*", tested[name]), line


def test_weights_and_word_vectors_are_small() -> None:
    files = [path for path in (PACKAGE / "builtin").iterdir() if path.suffix in (".safetensors", ".npz")]
    assert len(files) >= 2 and sum(path.stat().st_size for path in files) < 5e6


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [fewlink.__version__]


def test_the_change_log_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *_ = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert first == fewlink.__version__.partition(".dev")[0]
    assert "## Versions" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")  # CHANGELOG.md and README.md link to it


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["twine check --strict", "check_wheel_contents"])
def test_checkers_accept_the_wheel_and_the_sdist(checker: str, built: Path) -> None:
    module, *options = checker.split()
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs {module}")
    files = built.glob("*" if module == "twine" else "*.whl")
    command = [sys.executable, "-m", module, *options, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_links_of_the_description_lead_to_this_version(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"fewlink-{fewlink.__version__}.dist-info/METADATA").decode()
    _, _, description = text.partition("\n\n")
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert len(targets) > 20
    version = f"v{fewlink.__version__}"
    for target in (target for target in targets if not target.startswith("#")):
        assert f"/{version}/" in target
        place = target.partition(f"/{version}/")[2].partition("#")[0]
        raw = "raw.githubusercontent.com" if place.endswith(".png") else "github.com"
        assert target.startswith(f"https://{raw}/") and (ROOT / place).exists()


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        points = archive.read(f"fewlink-{fewlink.__version__}.dist-info/entry_points.txt").decode()
    files = {p.relative_to(ROOT / "src").as_posix() for p in PACKAGE.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    assert files <= inside
    assert {name for name in inside if not name.startswith("fewlink-")} <= files
    for suffix in (
        "py.typed",
        "recipes/trail.toml",
        "static/page.html",
        "static/cytoscape-3.34.4.min.js",
        "static/LICENSE-cytoscape.txt",
        "builtin/umls.tsv.gz",
        "builtin/attack.tsv.xz",
        "builtin/attack/manifest.json",
        "builtin/umls/manifest.json",
        "builtin/trail.safetensors",
        "builtin/words.npz",
        "builtin/LICENSE-words.txt",
        "builtin/trail.md",
    ):
        assert [name for name in files if name.endswith(suffix)], suffix
    assert "fewlink = fewlink.__main__:main" in points


@pytest.mark.long
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
    run("-m", "not slow and not long", *QUICK_TESTS)


def first_commands() -> list[str]:
    """The commands `fewlink …` of README's first block."""
    (block,) = re.findall(r"^```\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)[:1]
    lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines if line.startswith(".venv/bin/fewlink")]


@pytest.mark.long
def test_the_wheel_is_enough_for_the_first_commands_of_the_readme(built: Path, tmp_path: Path) -> None:
    """Installs into an empty environment, with dependencies from the package index."""
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    (tmp_path / "constraints.txt").write_text(f"{pins}\nfewlink=={fewlink.__version__}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {
        **kept,
        "PATH": f"{tmp_path / 'empty' / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PIP_NO_COMPILE": "1",
        "PIP_FIND_LINKS": f"{built} {os.environ.get('PIP_FIND_LINKS', '')}".strip(),
        "PIP_CONSTRAINT": str(tmp_path / "constraints.txt"),
        "COLUMNS": "200",
    }

    install = "pip install 'fewlink[serve]'"
    ask, serve = first_commands()
    done = subprocess.run(["bash", "-c", f"{install} --quiet"], env=environment, capture_output=True, text=True)
    if done.returncode and "No matching distribution found for fewlink" not in done.stderr:
        pytest.skip(f"the package index cannot be reached: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob(f"empty/lib/*/site-packages/fewlink-{fewlink.__version__}.dist-info/RECORD")
    with zipfile.ZipFile(wheel) as archive:  # not the release of the same version on the index
        lines = archive.read(f"fewlink-{fewlink.__version__}.dist-info/RECORD").decode().splitlines()
    assert {line for line in lines if line.startswith("fewlink/")} <= set(record.read_text().splitlines())

    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Sandworm Team +1 +Windows", done.stdout) and "examples are joined" in done.stdout

    command = ["bash", "-c", f"exec {serve} --port 0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            line = server.stderr.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert address, line
            predict_on_the_page(address[0])
        finally:
            server.terminate()


def predict_on_the_page(address: str) -> None:
    """Make a prediction as a visitor does, in Chromium if it is installed, else over HTTP."""
    if CHROMIUM and DRIVER:
        with Browser() as browser:
            browser.open(address)
            browser.until(lambda: "6,187 entities" in browser.text("#about"))
            browser.click("#start-example")
            browser.until(lambda: browser.texts(".row"), 60)
            assert browser.console_errors() == []
        return
    with urllib.request.urlopen(address) as page:
        assert "What else fits?" in page.read().decode()
    question = {"references": [["APT38", "Windows"], ["TeamTNT", "Containers"]], "heads": ["FIN7"], "k": 3}
    request = urllib.request.Request(f"{address}predict", json.dumps(question).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        assert len(json.load(answer)["predictions"]) == 3
