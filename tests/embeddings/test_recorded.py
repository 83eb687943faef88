"""Epochs as a GPU goes through them: every step sees its own examples, negatives and rate. Here without recording."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewlink.embeddings import EmbeddingSettings, recorded
from fewlink.embeddings.recorded import RecordedEpochs
from fewlink.embeddings.trainer import Run


@pytest.fixture(autouse=True)
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(RecordedEpochs, "_advance", RecordedEpochs._step)
    monkeypatch.setattr(recorded, "AT_ONCE", 3)  # several blocks, the last one short


@pytest.mark.parametrize("corrupt", ["shared", "each"])
@pytest.mark.parametrize("batch", [7, 10, 100])  # with a short last batch, without, and with no other
def test_an_epoch_is_that_of_the_cpu(batch: int, corrupt: str) -> None:
    random = np.random.default_rng(0)
    triples = np.stack([random.integers(n, size=40) for n in (12, 3, 12)], 1)
    settings = EmbeddingSettings(
        dim=4, batch_size=batch, negatives=5, corrupt=corrupt, epochs=3, schedule="linear", init_scale=0.1
    )
    one, other = (Run(triples, 12, 3, settings) for _ in range(2))
    epochs, looks = RecordedEpochs(other.batches), list[int]()
    steps = len(other.batches)
    for epoch in range(3):
        trace = one.epoch()
        rates = [settings.rate_at(epoch * steps + index, 3 * steps) for index in range(steps)]
        losses, _ = epochs.epoch(epoch, rates, other.step, lambda seen: looks.append(len(seen)))
        assert len(losses) == steps and looks[-1] == steps
        assert float(losses.mean()) == pytest.approx(trace["loss"], rel=1e-5)
        for name in ("entities", "relations"):
            torch.testing.assert_close(other.tables.vectors[name], one.tables.vectors[name])
