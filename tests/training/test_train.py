"""One call from a file of triples to a trained run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.conftest import quickly
from tests.fitting.fits import graph_file, town_lines, written

from fewlink.core.errors import FewlinkError
from fewlink.graph import compile_graph
from fewlink.linker import Linker
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings
from fewlink.models.family import NoVectors
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.trail.settings import TrailSettings
from fewlink.tasks import SPLITS, Benchmark, open_benchmark
from fewlink.training import RunConfig
from fewlink.training.train import train

QUICK = [
    "width=8",
    "layers=2",
    "relation_layers=1",
    "steps=2",
    "evaluate_every=2",
    "relations=1",
    "queries=2",
    "candidates=32",
]


def test_a_file_of_triples_becomes_a_run_and_the_same_call_continues_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with quickly():
        train(graph_file(), "trail", out=run, change=QUICK)
        weights = (run / "best" / "weights.safetensors").read_bytes()
        train(graph_file(), "trail", out=run, change=QUICK)
    assert (run / "best" / "weights.safetensors").read_bytes() == weights
    benchmark = open_benchmark(run / "benchmark")
    config = RunConfig.read(run).benchmark
    assert (config["source"], config["fingerprint"]) == (benchmark.source, benchmark.fingerprint)
    assert len(Linker.load(run).predict([("p1", "t1")], ["p2"], k=3)) == 3


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    run, other = tmp_path / "run", written(town_lines()[:-3], tmp_path / "other.tsv")
    with quickly():
        train(graph_file(), "trail", out=run, change=QUICK)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(FewlinkError, match=r"other\.tsv"):
        train(other, "trail", out=run, change=QUICK)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_text("dear …")
    with pytest.raises(FewlinkError, match="precious"):
        train(graph_file(), "trail", out=tmp_path / "precious", change=QUICK)
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["letter.txt"]


def test_settings_are_those_of_the_model_with_their_seed(tmp_path: Path) -> None:
    settings = FewShotSettings(model="fsrl", batch=8, steps=2, evaluate_every=2, neighbours=4, seed=5)
    with quickly():
        result = train("umls", "fsrl", out=tmp_path / "run", settings=settings)
    assert RunConfig.read(result.run).settings.seed == 5
    with pytest.raises(FewlinkError, match=r"fsrl.*trail"):
        train("umls", "trail", out=tmp_path / "other", settings=settings)
    with pytest.raises(FewlinkError, match="'seed'"):
        train("umls", "fsrl", out=tmp_path / "other", change=["seed=3"])


SMALL_TRAIL = TrailSettings(
    width=8, layers=2, relation_layers=1, steps=2, evaluate_every=2, relations=1, queries=2, candidates=32
)


def test_trail_learns_from_several_graphs(tmp_path: Path) -> None:
    with quickly():
        two = train(["umls", graph_file()], out=tmp_path / "two", settings=SMALL_TRAIL)
        one = train("umls", out=tmp_path / "one", settings=SMALL_TRAIL)
        again = train([open_benchmark("umls"), str(graph_file())], out=tmp_path / "two", settings=SMALL_TRAIL)
    config = RunConfig.read(two.run)
    assert (config.settings.model, config.benchmark["name"]) == ("trail", "umls")
    assert config.settings.as_dict()["also"] == str(graph_file())
    first, second = ((result.run / "best" / "weights.safetensors").read_bytes() for result in (one, two))
    assert first != second and again.step == 2
    assert not (tmp_path / "two-vectors").exists()
    with pytest.raises(FewlinkError, match="also = "):
        train("umls", out=tmp_path / "two", settings=SMALL_TRAIL)
    assert Linker.load(two.run).predict([("virus", "cell")], ["alga"], k=1)


def test_the_memory_of_training_counts_all_graphs() -> None:
    umls, family = open_benchmark("umls"), trained_family("trail")
    one = family.training_memory(umls, NoVectors(), SMALL_TRAIL)
    two = family.training_memory(umls, NoVectors(), SMALL_TRAIL.adjusted([f"also={graph_file()}"]))
    assert two["edges"] > one["edges"] and two["relations"] > one["relations"] and two["states"] >= one["states"]


def test_a_step_that_does_not_fit_in_memory_is_refused(tmp_path: Path) -> None:
    umls = open_benchmark("umls")
    vectors = Embeddings(
        torch.zeros(len(umls.graph.entities), 8), torch.zeros(2 * len(umls.graph.relations), 8), "complex"
    )
    with pytest.raises(FewlinkError, match="GB for episodes"):
        train(umls, out=tmp_path / "run", vectors=vectors, settings=FewShotSettings(batch=10**12))


def test_several_graphs_that_cannot_be_learnt_from_raise(tmp_path: Path) -> None:
    out, few = tmp_path / "run", written([("a", "r", "b")], tmp_path / "few.tsv")
    wrong = {
        "fsrl": (["umls", graph_file()], "fsrl"),
        "a,b.tsv": (["umls", "a,b.tsv"], "trail"),
        "nowhere.tsv": (["umls", tmp_path / "nowhere.tsv"], "trail"),
        "few.tsv": (["umls", few], "trail"),
        "benchmark": (["umls", Benchmark("x", compile_graph([few]), {s: [] for s in SPLITS})], "trail"),
        "no benchmark": ([], "trail"),
    }
    for problem, (graphs, model) in wrong.items():
        with pytest.raises(FewlinkError, match=problem):
            train(graphs, model, out=out)
    with pytest.raises(FewlinkError, match="'also'"):
        train(["umls", few], out=out, change=["also=umls"])
    assert not out.exists()


def test_a_fit_that_was_stopped_keeps_its_benchmark(tmp_path: Path) -> None:
    compiled = compile_graph([graph_file()])
    place = tmp_path / "run" / "benchmark"
    with quickly():
        Benchmark("run", compiled, {split: [] for split in SPLITS}).save(place)
        before = open_benchmark(place).fingerprint
        with pytest.raises(FewlinkError, match=graph_file().name):
            train(graph_file(), "trail", out=tmp_path / "run", change=QUICK)
    assert open_benchmark(place).fingerprint == before


def test_vectors_for_a_model_that_needs_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FewlinkError, match=r"trail.*vectors"):
        train(open_benchmark("umls"), "trail", out=tmp_path / "run", vectors=tmp_path / "nowhere")
    assert not (tmp_path / "run").exists()
