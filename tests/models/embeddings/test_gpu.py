"""Epochs of a GPU: each step has its own examples, negatives and learning rate, captured or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import EmbeddingSettings, gpu
from fewlink.models.embeddings.gpu import CUDAGraphEpochs
from fewlink.models.embeddings.interactions import INTERACTIONS
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import training_triples


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(CUDAGraphEpochs, "_advance", CUDAGraphEpochs._step)
    monkeypatch.setattr(gpu, "STEPS_AT_ONCE", 3)  # several blocks, the last one short


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("batch", [7, 10, 100])  # with a short last batch, without, and with no other
def test_an_epoch_equals_that_of_the_cpu(batch: int) -> None:
    random = np.random.default_rng(0)
    triples = np.stack([random.integers(n, size=40) for n in (12, 3, 12)], 1)
    settings = EmbeddingSettings(dim=4, batch_size=batch, negatives=5, epochs=3, schedule="linear", init_scale=0.1)
    one, other = (EmbeddingTrainer(triples, 12, 3, settings) for _ in range(2))
    epochs, checked = CUDAGraphEpochs(other.batches), list[int]()
    steps = len(other.batches)
    for epoch in range(3):
        trace = one.epoch()
        rates = [settings.rate_at(epoch * steps + index, 3 * steps) for index in range(steps)]
        losses, _ = epochs.epoch(epoch, rates, other.step, lambda losses: checked.append(len(losses)))
        assert len(losses) == steps and checked[-1] == steps
        assert float(losses.mean()) == pytest.approx(trace["loss"], rel=1e-5)
        for name in ("entities", "relations"):
            torch.testing.assert_close(other.tables.vectors[name], one.tables.vectors[name])


def test_a_loss_that_is_not_finite_raises() -> None:
    trainer = EmbeddingTrainer(np.zeros((4, 3), dtype=int), 1, 1, EmbeddingSettings(dim=2))
    trainer.device = "cuda"  # where many losses are checked together
    trainer._check_losses(torch.ones(3))
    with pytest.raises(FewlinkError, match="batch 2"):
        trainer._check_losses(torch.tensor([1.0, float("nan"), 1.0]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"regime": "one-vs-all"},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", INTERACTIONS)
def test_a_gpu_trains_the_vectors_of_the_cpu(model: str, case: dict[str, Any]) -> None:
    benchmark = open_benchmark("umls")
    data, entities = training_triples(benchmark), len(benchmark.graph.entities)
    values = {"model": model, "dim": 16, "batch_size": 500, "negatives": 60, "learning_rate": 0.05, "init_scale": 0.1}
    settings = EmbeddingSettings(**{**values, **case}, epochs=3)
    trainers = [
        EmbeddingTrainer(data.triples, entities, len(data.relations), settings.replace(device=device))
        for device in ("cpu", "cuda")
    ]
    losses = [[trainer.epoch()["loss"] for _ in range(3)] for trainer in trainers]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name in ("entities", "relations"):
        on_cpu, on_gpu = (trainer.tables.vectors[name].cpu() for trainer in trainers)
        torch.testing.assert_close(on_gpu, on_cpu, atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_deleted_trainer_frees_its_memory() -> None:
    def allocated() -> int:
        triples = np.random.default_rng(0).integers(300, size=(2000, 3))
        settings = EmbeddingSettings(dim=16, batch_size=256, negatives=64, device="cuda")
        EmbeddingTrainer(triples, 10**5, 300, settings).epoch()
        return torch.cuda.memory_allocated()

    first = allocated()
    assert allocated() < first + 10**6
