"""Folders and files that version 0.2 wrote still open, and give the same answers.

Its network `trail` is gone: its runs and records are read as history, and its weights are refused.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fewlink
from fewlink.core.errors import InputError
from fewlink.curation.store import ProjectFile
from fewlink.evaluation.ranks import read_ranks
from fewlink.evaluation.records import Record, RecordStore
from fewlink.models.embeddings import Embeddings
from fewlink.training.run import RunConfig
from fewlink.verification.verify import verify

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


def test_a_run_answers_as_it_did(folder: Path, expected: dict[str, Any]) -> None:
    rows = fewlink.load(folder / "fsrl").predict(REFERENCES, ["alga"], k=5)
    assert [row.tail for row in rows] == [tail for tail, _, _ in expected["predictions"]["fsrl"]]
    for row, (_, score, probability) in zip(rows, expected["predictions"]["fsrl"], strict=True):
        assert row.score == pytest.approx(score, rel=1e-5)
        assert row.base_probability == (None if probability is None else pytest.approx(probability, rel=1e-5))


def test_a_run_continues(folder: Path) -> None:
    assert fewlink.resume(folder / "fsrl", change=["steps=4"]).step == 4


@pytest.mark.parametrize("run", ["trail", "saved"])
def test_weights_of_the_old_trail_are_refused(run: str, folder: Path) -> None:
    with pytest.raises(InputError, match="train or fit again in another folder") as raised:
        fewlink.load(folder / run)
    assert str(raised.value).startswith(str(folder / run)) and "\n" not in str(raised.value)


def test_a_run_of_the_old_trail_does_not_continue_and_stays_as_it_is(folder: Path) -> None:
    before = (folder / "trail" / "config.json").read_bytes()
    with pytest.raises(InputError, match="another version of its model"):
        fewlink.resume(folder / "trail", change=["steps=2"])
    assert (folder / "trail" / "config.json").read_bytes() == before


def test_a_run_of_the_old_trail_is_read_as_history(folder: Path) -> None:
    config = RunConfig.read(folder / "trail")
    assert (config.settings.model, config.settings.steps, config.benchmark["name"]) == ("trail", 1, "umls")
    assert [found.status for found in verify(folder / "trail")] == ["whole"]


def test_vectors_graphs_and_benchmarks_open(folder: Path, expected: dict[str, Any]) -> None:
    assert Embeddings.open(folder / "vectors").digest() == expected["vectors"]
    assert fewlink.Graph.open(folder / "graph").fingerprint == expected["graph"]
    assert fewlink.open_benchmark(folder / "benchmark").fingerprint == expected["benchmark"]


def test_records_and_decisions_are_read(folder: Path) -> None:
    ((file, record),) = RecordStore(folder / "records").places
    assert (record.model, record.split, record.shots) == ("trail-0.2", "dev", 3)
    ranks = read_ranks(file, record)
    assert ranks is not None and len(ranks.ranks) == record.queries
    with ProjectFile(folder / "decisions") as file:
        states = {decision.pair: decision.kind for decision in file.decisions("attacks")}
    assert states == {
        ("virus", "cell"): "reference",
        ("fungus", "plant"): "accepted",
        ("alga", "plant"): "rejected",
    }


def test_records_of_the_old_trail_stay_apart_from_those_of_the_new_one(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "records" / "umls", tmp_path / "umls")
    (old,) = RecordStore(tmp_path).records
    new = Record.model_validate({**old.model_dump(), "model": "trail", "version": fewlink.__version__, "config": {}})
    store = RecordStore(tmp_path)
    assert store.add(new) == tmp_path / "umls" / "trail.jsonl"  # where 0.2 kept its own
    assert sorted(record.model for record in store.records) == ["trail", "trail-0.2"]
    assert [read_ranks(file, record) is None for file, record in store.places if record.model == "trail-0.2"] == [False]
    assert [model for _, model in sorted((r.version, r.model) for r in store.records)] == ["trail-0.2", "trail"]
