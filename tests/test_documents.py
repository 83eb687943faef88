"""Documents match the records, and README's code and commands work."""

from __future__ import annotations

import gzip
import re
import runpy
import shlex
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fewlink
from fewlink.cli import app
from fewlink.evaluation.records import read_records

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_generated_documents_are_fresh() -> None:
    documents = runpy.run_path(str(ROOT / "docs" / "generate.py"))["documents"]()
    stale = [path.name for path, text in documents.items() if path.read_text("utf-8") != text]
    assert not stale, f"run make docs: {stale}"


def test_all_stored_results_are_read_together() -> None:
    assert {record.benchmark for record in read_records(ROOT / "results")} >= {"nell-one", "fb15k-237-few"}


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    benchmark = fewlink.open_benchmark("umls")
    short = {"steps": 2, "evaluate_every": 2, "views": 2, "complex_epochs": 1, "transe_epochs": 1}
    quick = fewlink.Trail01Settings(**short, lessons=1, relations=2, queries=4, candidates=20, hard=5)
    fewlink.train(benchmark, "trail-0.1", settings=quick, out="runs/umls-trail")  # as the command above the block
    Path("graph.tsv").write_bytes(gzip.decompress((files("fewlink") / "builtin" / "umls.tsv.gz").read_bytes()))
    code = "".join(blocks("python"))
    assert code.count("steps=1000") == 1
    exec(compile(code.replace("steps=1000", "steps=10"), "README.md", "exec"), {})  # noqa: S102


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    return [line for line in lines if line.startswith("fewlink ")]


@pytest.mark.parametrize("command", commands())
def test_the_options_the_readme_shows_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    path = [w for w in words[:2] if w.isalpha() and w != "umls"]
    helped = CliRunner().invoke(app, [*path, "--help"])
    assert helped.exit_code == 0, helped.output
    for option in (w for w in words if w.startswith("--")):
        assert option in helped.stdout


@pytest.mark.parametrize(
    "command", [c for c in commands() if c.startswith(("fewlink evaluate umls", "fewlink data list"))]
)
def test_commands_on_the_built_in_data_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
            assert target.startswith("http") or (document.parent / target).exists(), f"{document.name}: {target}"
