"""Triples appended to a benchmark or a run: old runs still open, and new entities get predictions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.conftest import benchmark_of, graph_of, named, quickly, town_lines, written
from tests.fitting.fits import fitted

from fewlink.core.errors import FewlinkError
from fewlink.curation.exports import write_export
from fewlink.curation.store import ProjectFile
from fewlink.evaluation import Protocol, evaluate
from fewlink.fitting.append import append
from fewlink.linker import Linker
from fewlink.models.embeddings import Embeddings
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.run import Deployed
from fewlink.tasks import open_benchmark
from fewlink.training import open_run
from fewlink.training.trainer import train_run


@pytest.fixture(autouse=True)
def without_fsync() -> Iterator[None]:
    with quickly():
        yield


def test_a_run_opens_after_its_benchmark_was_extended(tmp_path: Path) -> None:
    place, random = tmp_path / "bench", torch.Generator().manual_seed(0)
    open_benchmark("umls").save(place)
    benchmark = open_benchmark(place)
    sizes = (len(benchmark.graph.entities), 8), (2 * len(benchmark.graph.relations), 8)
    vectors = Embeddings(*(torch.randn(size, generator=random) for size in sizes), "transe")
    settings = FewShotSettings(batch=8, steps=2, evaluate_every=2, neighbours=4)
    train_run(benchmark, vectors, settings, tmp_path / "run")
    new = [("moss", "isa", "plant"), ("moss", "eaten_by", "human")]
    appended = append(place, [written(new, tmp_path / "new.tsv")])
    assert appended.growth.entities == 1
    extended = open_benchmark(place)
    assert extended.fingerprint == appended.benchmark.fingerprint != benchmark.fingerprint
    assert evaluate(extended, open_run(tmp_path / "run", extended), Protocol("dev")).queries
    linker = Linker.load(tmp_path / "run")
    assert linker.predict([("virus", "cell"), ("fungus", "plant")], ["moss"], k=3)
    other = benchmark_of(graph_of("ann lives oslo", "bob lives rome"))
    with pytest.raises(FewlinkError, match="small"):
        open_run(tmp_path / "run", other)
    append(place, [written([("fern", "isa", "moss")], tmp_path / "more.tsv")])  # a second time
    assert Linker.load(tmp_path / "run").predict([("virus", "cell")], ["fern"], k=3)


def test_a_fit_makes_predictions_for_appended_entities(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    measured = open_benchmark(run / "benchmark").fingerprint
    new = [("newcomer", "lives in", "t3"), ("newcomer", "knows", "p1"), ("newcomer", "writes", "p2")]
    append(run, [written([*new, *town_lines()[:5]], tmp_path / "new.tsv")])
    before, after = Linker.load(fitted().run), Linker.load(run)
    assert set(named(after.graph)) == {*town_lines(), *new}
    assert list(after.graph.entities)[: len(before.graph.entities)] == list(before.graph.entities)
    predictions = after.predict([("p1", "t1"), ("p3", "t3")], ["newcomer"], k=3)
    assert len(predictions) == 3 and predictions.trust is not None
    assert open_benchmark(run / "benchmark").fingerprint == measured  # the metrics are still those of this benchmark
    append(run, [written([("second", "knows", "newcomer")], tmp_path / "more.tsv")])
    assert Linker.load(run).predict([("p1", "t1")], ["second"], k=1)


def test_known_triples_change_nothing_and_a_crash_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    shutil.copytree(fitted().run, run)
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    appended = append(run, [written(town_lines(), tmp_path / "same.tsv")])
    assert not appended.growth and appended.growth.duplicates == len(town_lines())

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FewlinkError, match=run.name):
        append(run, [written([("a", "b", "c")], tmp_path / "new.tsv")])
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files
    assert Deployed.open(run)


def test_folders_and_files_that_cannot_be_used_raise(tmp_path: Path) -> None:
    new = written([("a", "b", "c")], tmp_path / "new.tsv")
    saved = Linker.load(fitted().run).save_pretrained(tmp_path / "saved")
    for place in (tmp_path / "nowhere", tmp_path, saved):
        with pytest.raises(FewlinkError, match=place.name):
            append(place, [new])
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\n")
    with pytest.raises(FewlinkError, match=r"bad\.tsv:1"):
        append(fitted().run, [bad])
    with pytest.raises(FewlinkError, match="1 bad"):
        append(fitted().run, [bad], on_error="skip")


def test_an_export_of_a_project_is_appended_with_the_ids_of_the_graph(tmp_path: Path) -> None:
    odd = "50%<of>ü/x"  # no IRI can hold it as it is
    rows = ("ann lives oslo", f"bob lives {odd}", f"{odd} near oslo", "http://x.org/a lives oslo")
    benchmark_of(graph_of(*rows)).save(tmp_path / "bench")
    with ProjectFile(tmp_path / "a.decisions") as file:
        file.add_project("is like", [("ann", "bob")])
        file.decide("is like", [("accepted", odd, "oslo"), ("accepted", "http://x.org/a", "new one")], "ann")
        out = write_export(file, "is like", tmp_path / "out.nt")
    assert "urn:fewlink:entity:" in out.read_text("utf-8")
    appended = append(tmp_path / "bench", [out])
    assert (appended.growth.triples, appended.growth.entities) == (3, 1)
    graph = open_benchmark(tmp_path / "bench").graph
    assert {*graph.entities} == {"ann", "bob", "oslo", odd, "http://x.org/a", "new one"}
    assert {*graph.relations} == {"lives", "near", "is like"}
