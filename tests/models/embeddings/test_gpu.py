"""A GPU trains the vectors of the CPU, from a step that is captured once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings import trainer as trainers
from fewlink.models.embeddings.interactions import INTERACTIONS
from fewlink.models.embeddings.trainer import EmbeddingTrainer
from fewlink.tasks import open_benchmark
from fewlink.tasks.benchmark import training_triples


class Eager:
    """A stand-in for a captured step, which runs its steps one after the other, and some to warm up."""

    def __init__(self, step: Any, ids: torch.Tensor, terms: int) -> None:
        self.step = step
        self.replay(0, ids[:, :1])

    def replay(self, first: int, ids: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.step(torch.tensor([first + i]), ids[:, i]) for i in range(ids.shape[1])])


@pytest.mark.parametrize("batch", [7, 10, 100])  # with a short last batch, without, and with no other
@pytest.mark.parametrize("regime", ["sampled", "one-vs-all"])
def test_blocks_of_steps_equal_single_steps(batch: int, regime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "CapturedStep", Eager)
    random = np.random.default_rng(0)
    triples = np.stack([random.integers(n, size=40) for n in (12, 3, 12)], 1)
    settings = EmbeddingSettings(
        dim=4, batch_size=batch, negatives=5, epochs=3, schedule="linear", init_scale=0.1, regime=regime
    )
    one, other = (EmbeddingTrainer(triples, 12, 3, settings) for _ in range(2))
    for _ in range(3):
        losses, _ = other._steps_on_gpu()
        other.done += 1
        assert float(losses.mean()) == pytest.approx(one.epoch()["loss"], rel=1e-5)
        for name in ("entities", "relations"):
            torch.testing.assert_close(other.vectors[name], one.vectors[name])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("regime", ["sampled", "one-vs-all"])
@pytest.mark.parametrize("model", INTERACTIONS)
def test_a_gpu_trains_the_vectors_of_the_cpu(model: str, regime: str) -> None:
    benchmark = open_benchmark("umls")
    data, entities = training_triples(benchmark), len(benchmark.graph.entities)
    values = {"model": model, "dim": 16, "batch_size": 500, "negatives": 60, "learning_rate": 0.05, "init_scale": 0.1}
    settings = EmbeddingSettings(**values, regime=regime, epochs=3)
    both = [
        EmbeddingTrainer(data.triples, entities, len(data.relations), settings.replace(device=device))
        for device in ("cpu", "cuda")
    ]
    losses = [[trainer.epoch()["loss"] for _ in range(3)] for trainer in both]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for name in ("entities", "relations"):
        on_cpu, on_gpu = (trainer.vectors[name].cpu() for trainer in both)
        torch.testing.assert_close(on_gpu, on_cpu, atol=1e-3, rtol=1e-3)
