"""Run folders, vectors, benchmarks and records that version 0.1 wrote still open, and say the same."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.trail_0_1.test_new_kind import ParityEvidence

import fewlink
from fewlink.base.errors import FewlinkError
from fewlink.embeddings import Embeddings
from fewlink.pipeline.fit import fit
from fewlink.pipeline.train import append
from fewlink.prediction import write_card
from fewlink.trail_0_1.evidence import KINDS
from fewlink.trail_0_1.scorer import Trail01Scorer
from fewlink.training.run import RunConfig

ARCHIVE = Path(__file__).parent / "fixtures" / "version-0.1.tar.xz"
REFERENCES = [("virus", "cell"), ("fungus", "plant"), ("bacterium", "cell")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders, as `fewlink 0.1` made them: fsrl, trail, trail-no-trails and fit are runs, `saved` a saved model."""
    place = tmp_path_factory.mktemp("version-0.1")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    yield place


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return content


@pytest.mark.parametrize("run", ["fsrl", "trail", "trail-no-trails", "fit", "saved"])
def test_runs_answer_as_they_did(run: str, folder: Path, expected: dict[str, Any]) -> None:
    linker = fewlink.load(folder / run)
    rows = linker.predict(references=REFERENCES, heads=["alga"], k=5, constraints="none")
    assert {row.probability for row in rows} == {None}  # their errors were large
    if linker.calibration is not None:
        assert rows.trust is not None and not rows.trust.shown
        linker.calibration = dataclasses.replace(linker.calibration, error=0.1)
        rows = linker.predict(references=REFERENCES, heads=["alga"], k=5, constraints="none")
    assert [row.tail for row in rows] == [tail for tail, _, _ in expected["predictions"][run]]
    for row, (_, score, probability) in zip(rows, expected["predictions"][run], strict=True):
        assert row.score == pytest.approx(score, rel=1e-5)
        assert row.probability == (None if probability is None else pytest.approx(probability, rel=1e-5))


@pytest.mark.parametrize("run", ["trail", "trail-no-trails"])
def test_runs_answer_the_same_with_another_kind_of_evidence(
    run: str, folder: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "parity", ParityEvidence)
    test_runs_answer_as_they_did(run, folder, expected)


def test_a_renamed_model_is_found_by_its_old_name(folder: Path) -> None:
    config = RunConfig.read(folder / "trail-no-trails")
    assert config.settings.model == "trail-0.1-no-paths" and "paths" not in config.parts["evidence"]


def test_a_run_that_names_its_parts_keeps_them_and_is_of_trail_0_1(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "trail" / "config.json").read_text())
    parts = {"evidence": ["paths", "profile"], "scoring": ["paths"]}
    (tmp_path / "config.json").write_text(json.dumps({**content, "parts": parts}))
    config = RunConfig.read(tmp_path)
    assert (config.settings.model, config.family.name, config.parts) == ("trail-0.1", "trail-0.1", parts)


def test_a_fit_is_carded_and_appended_to_but_not_continued(folder: Path, tmp_path: Path) -> None:
    run, new = tmp_path / "fit", tmp_path / "new.tsv"
    shutil.copytree(folder / "fit", run)
    before = fewlink.load(run)
    assert "What was chosen" not in write_card(run).read_text()
    new.write_text("moss\tisa\tplant\nmoss\teaten_by\thuman\n")
    assert append(run, [new]).growth.entities == 1
    after, old = fewlink.load(run), len(before.graph.entities)
    assert len(after.predict(references=REFERENCES, heads=["moss"], k=3)) == 3
    assert isinstance(before.scorer, Trail01Scorer) and isinstance(after.scorer, Trail01Scorer)
    for name in ("bilinear", "translation"):
        assert torch.equal(getattr(before.scorer.graph, name), getattr(after.scorer.graph, name)[:old])
    with pytest.raises(FewlinkError, match="choose another folder"):
        fit(new, run)


def test_shares_of_evidence_are_the_same(folder: Path, expected: dict[str, Any]) -> None:
    tail = expected["predictions"]["trail"][0][0]
    shares = fewlink.load(folder / "trail").explain(REFERENCES, "alga", tail).shares
    before = {kind.replace("trails", "paths"): share for kind, share in expected["shares"].items()}
    assert shares == {kind: pytest.approx(share, abs=1e-4) for kind, share in before.items()}


@pytest.mark.parametrize("run", ["fsrl", "trail", "trail-no-trails"])
def test_a_run_continues(run: str, folder: Path) -> None:
    settings, place = RunConfig.read(folder / run).settings, folder / run
    more = {"settings": settings, "vectors": place / "embeddings", "change": [f"steps={settings.steps + 2}"]}
    result = fewlink.train("umls", settings.model, out=place, **more)
    assert result.step == settings.steps + 2
    assert len((place / "metrics.jsonl").read_text().splitlines()) == result.step // 2


def test_vectors_and_benchmarks_open(folder: Path, expected: dict[str, Any]) -> None:
    assert Embeddings.open(folder / "vectors").digest() == expected["vectors"]
    assert fewlink.open_benchmark(folder / "benchmark").fingerprint == expected["benchmark"]


def test_records_are_read(folder: Path, expected: dict[str, Any]) -> None:
    from fewlink.evaluation.records import read_records

    records = [[r.model, r.split, r.metrics["micro"]["mrr"]] for r in read_records(folder / "records")]
    before = [[model.replace("trail", "trail-0.1"), *rest] for model, *rest in expected["records"]]
    assert sorted(records) == sorted(before)
