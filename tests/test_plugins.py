"""Scorers and families that other packages offer through entry points."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Fewlink

from fewlink.models import families
from fewlink.models.baselines import scorers

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "fewlink-example"


def python(folder: Path, *command: str, plugins: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python command in a folder, with fewlink's source and the plug-ins on the path."""
    places = [str(ROOT / "src"), *([str(plugins)] if plugins else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    return subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)


def plugin(folder: Path, group: str, name: str, code: str) -> Path:
    """Make a folder like an installation of `other-package`: a module with `code`, and one entry point."""
    information = folder / "other_package-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = other_package:made\n")
    (folder / "other_package.py").write_text(code)
    return folder


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path of this process. The registries are cleared before and after the test."""

    def forget() -> None:
        sys.modules.pop("other_package", None)
        families.cache_clear()
        scorers.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    forget()
    yield tmp_path / "site"
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example package, without a network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("needs hatchling, which builds packages")
    folder = tmp_path_factory.mktemp("plugins")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    done = python(folder, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_models_of_the_example_package_are_listed(installed: Path, tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "fewlink", "models", "--json", plugins=installed)
    assert done.returncode == 0, done.stderr
    families = {model["name"]: model["family"] for model in json.loads(done.stdout)}
    assert families["common-neighbours"] == "learning-free"
    assert families["relation-profile"] == "profiles"
    assert families["fsrl"] == "fewshot"


@pytest.mark.slow
def test_models_of_the_example_package_are_evaluated(installed: Path, tmp_path: Path) -> None:
    scorers = ("--scorer", "common-neighbours", "--scorer", "relation-profile", "--scorer", "random")
    done = python(tmp_path, "-m", "fewlink", "evaluate", "umls", *scorers, "--json", plugins=installed)
    assert done.returncode == 0, done.stderr
    records = {record["model"]: record for record in json.loads(done.stdout)}
    chance = records["random"]["metrics"]["micro"]["mrr"]
    assert records["common-neighbours"]["metrics"]["micro"]["mrr"] > 1.5 * chance
    assert records["relation-profile"]["metrics"]["micro"]["mrr"] > 1.5 * chance
    assert records["relation-profile"]["config"]["settings"]["power"] == 1.0


@pytest.mark.slow
def test_settings_of_a_family_of_another_package_can_be_changed(installed: Path, tmp_path: Path) -> None:
    command = ("-m", "fewlink", "evaluate", "umls", "--scorer", "relation-profile", "--json")
    done = python(tmp_path, *command, "--set", "power=0.5", plugins=installed)
    assert json.loads(done.stdout)["config"]["settings"]["power"] == 0.5
    wrong = python(tmp_path, *command, "--set", "power=-1", plugins=installed)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: power")


SCORERS, FAMILIES = "fewlink.scorers", "fewlink.families"
FAMILY = """
from fewlink.models.family import BaselineFamily, Prepared

class made(BaselineFamily):
    name = "{name}"
    models = {{"{model}": "a model"}}

    def prepare(self, *arguments, **more):
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("group", "name", "code", "named"),
    [
        (SCORERS, "mine", "import not_there", "'not_there'"),
        (SCORERS, "mine", "raise ValueError('two\\nlines')", "two lines"),
        (SCORERS, "mine", "", "'made'"),
        (SCORERS, "mine", "made = 3", "scorer"),
        (SCORERS, "rules", "def made(graph, seed): ...", "scorer"),
        (SCORERS, "fsrl", "def made(graph, seed): ...", "'fsrl'"),
        (FAMILIES, "mine", "made = 3", "family"),
        (FAMILIES, "mine", FAMILY.format(name="trail", model="new"), "'trail'"),
        (FAMILIES, "mine", FAMILY.format(name="new", model="fsrl"), "'fsrl'"),
        (FAMILIES, "mine", FAMILY.format(name="new", model="new").partition("    def prepare")[0], "TypeError"),
    ],
)
def test_a_broken_plugin_is_named_in_one_line(
    group: str, name: str, code: str, named: str, fewlink: Fewlink, plugins: Path
) -> None:
    plugin(plugins, group, name, code)
    answer = fewlink("models")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"'{name}'" in answer.err and "other-package" in answer.err and named in answer.err


def test_a_scorer_of_another_package_is_evaluated_by_its_entry_point(fewlink: Fewlink, plugins: Path) -> None:
    plugin(plugins, SCORERS, "mine", "from fewlink.models.baselines import RandomScorer\nmade = RandomScorer")
    code, out, error = fewlink("evaluate", "umls", "--scorer", "mine", "--json")
    assert code == 0, error
    assert json.loads(out)["queries"] > 0


@pytest.mark.slow
def test_help_needs_no_plugin(tmp_path: Path) -> None:
    site = plugin(tmp_path / "site", SCORERS, "mine", "import not_there")
    assert python(tmp_path, "-m", "fewlink", "--help", plugins=site).returncode == 0
