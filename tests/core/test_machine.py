"""Long work reports how much memory it needs, and raises if less is free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.conftest import id_graph

from fewlink.core import machine
from fewlink.core.errors import FewlinkError
from fewlink.models import trained_family
from fewlink.models.embeddings import Embeddings, EmbeddingSettings
from fewlink.models.embeddings.trainer import train as train_vectors
from fewlink.models.fsrl.settings import FewShotSettings
from fewlink.models.vectors import pretrain
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import training_triples
from fewlink.training import open_run
from fewlink.training.trainer import train_run


def test_large_needs_are_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda device: 9_000_000_000)
    machine.ensure("training", {"vectors": 1.5e9, "neighbours": 1e9})
    told = capsys.readouterr().err
    assert all(token in told for token in ("training", "2.5 GB", "9.0 GB"))


def test_insufficient_memory_is_an_error_that_names_the_purposes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda device: 200_000_000)
    with pytest.raises(FewlinkError) as error:
        machine.ensure("training", {"vectors": 1e9, "neighbours": 2e9, "edges": 3e7}, advice="use a smaller dim")
    message = str(error.value)
    assert all(token in message for token in ("training", "3.0 GB", "0.2 GB", "use a smaller dim"))
    assert "2.0 GB for neighbours, 1.0 GB for vectors, 30 MB for edges" in message


def test_pretraining_raises_before_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    data = training_triples(open_benchmark("umls"))
    monkeypatch.setattr(machine, "free_bytes", lambda device: 1000)
    with pytest.raises(FewlinkError, match="pretraining"):
        train_vectors(data.triples, 135, len(data.relations), EmbeddingSettings(epochs=1))


def test_pretraining_on_a_missing_gpu_is_a_clear_error() -> None:
    data = training_triples(open_benchmark("umls"))
    with pytest.raises(FewlinkError, match="cuda:97"):
        train_vectors(data.triples, 135, len(data.relations), EmbeddingSettings(epochs=1, device="cuda:97"))


def test_training_and_opening_raise_if_memory_is_insufficient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    umls, settings = open_benchmark("umls"), FewShotSettings(model="fsrl", steps=1, evaluate_every=1)
    vectors = pretrain(umls, EmbeddingSettings(dim=8, epochs=1), out=tmp_path / "vectors")
    train_run(umls, vectors, settings, tmp_path / "run")
    monkeypatch.setattr(machine, "free_bytes", lambda device: 1000)
    with pytest.raises(FewlinkError, match="training fsrl"):
        train_run(umls, vectors, settings, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(FewlinkError, match="fsrl"):
        open_run(tmp_path / "run", umls)


def test_neighbours_need_memory_for_those_there_are_up_to_the_limit() -> None:
    graph = id_graph(
        [(0, 0, tail) for tail in range(1, 41)], entities=100
    )  # one entity has 40, 40 others have one each
    table = Embeddings(torch.zeros(100, 2), torch.zeros(6, 2), "complex")
    needed = [
        trained_family("fsrl").memory(graph, table, FewShotSettings(neighbours=most))["neighbours"]
        for most in (10, 30, 50)
    ]
    assert needed == [12 * (most + 40) + 8 * 100 for most in (10, 30, 40)]
