"""Folders and files that version 0.2 wrote still open, and give the same answers."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fewlink
from fewlink.curation.store import ProjectFile
from fewlink.embeddings import Embeddings
from fewlink.evaluation.records import read_records

ARCHIVE = Path(__file__).parent / "fixtures" / "version-0.2.tar.xz"
REFERENCES = [("virus", "cell"), ("fungus", "plant"), ("bacterium", "cell")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("version-0.2")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return content


@pytest.mark.parametrize("run", ["fsrl", "trail", "saved"])
def test_runs_and_saved_models_answer_as_they_did(run: str, folder: Path, expected: dict[str, Any]) -> None:
    rows = fewlink.load(folder / run).predict(REFERENCES, ["alga"], k=5)
    assert [row.tail for row in rows] == [tail for tail, _, _ in expected["predictions"][run]]
    for row, (_, score, probability) in zip(rows, expected["predictions"][run], strict=True):
        assert row.score == pytest.approx(score, rel=1e-5)
        assert row.base_probability == (None if probability is None else pytest.approx(probability, rel=1e-5))


@pytest.mark.parametrize(("run", "steps"), [("fsrl", 4), ("trail", 2)])
def test_a_run_continues(run: str, steps: int, folder: Path) -> None:
    assert fewlink.resume(folder / run, change=[f"steps={steps}"]).step == steps


def test_vectors_graphs_and_benchmarks_open(folder: Path, expected: dict[str, Any]) -> None:
    assert Embeddings.open(folder / "vectors").digest() == expected["vectors"]
    assert fewlink.Graph.open(folder / "graph").fingerprint == expected["graph"]
    assert fewlink.open_benchmark(folder / "benchmark").fingerprint == expected["benchmark"]


def test_records_and_decisions_are_read(folder: Path) -> None:
    (record,) = read_records(folder / "records")
    assert (record.model, record.split, record.shots) == ("trail", "dev", 3)
    with ProjectFile(folder / "decisions") as file:
        states = {decision.pair: decision.kind for decision in file.decisions("attacks")}
    assert states == {
        ("virus", "cell"): "reference",
        ("fungus", "plant"): "accepted",
        ("alga", "plant"): "rejected",
    }
