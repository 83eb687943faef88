"""Batches are a pure function of (seed, epoch, batch) and cover every triple in both directions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlink.models.embeddings import EmbeddingSettings
from fewlink.models.embeddings.batches import Batches, EmbeddingBatch, batches_of
from fewlink.models.embeddings.losses import EXCLUDED
from fewlink.models.embeddings.trainer import EmbeddingTrainer

TRIPLES = torch.tensor([[0, 0, 1], [2, 1, 3], [4, 0, 5], [1, 1, 1]])


def examples(batch: EmbeddingBatch) -> list[tuple[int, int, int]]:
    size = len(batch)
    relations = batch.relations.repeat_interleave(batch.counts)
    return list(
        zip(batch.entities[:size].tolist(), relations.tolist(), batch.entities[size : 2 * size].tolist(), strict=True)
    )


def test_an_epoch_has_every_triple_in_both_directions() -> None:
    settings = EmbeddingSettings(batch_size=3, negatives=2)
    seen = [e for batch in Batches(TRIPLES, 6, 2, settings).epoch(0) for e in examples(batch)]
    forward = [tuple(t) for t in TRIPLES.tolist()]
    assert sorted(seen) == sorted(forward + [(t, r + 2, h) for h, r, t in forward])


@given(st.integers(0, 1000), st.integers(1, 30))
def test_a_negative_that_is_the_true_tail_is_excluded(epoch: int, negatives: int) -> None:
    settings = EmbeddingSettings(batch_size=3, negatives=negatives)
    for batch in Batches(TRIPLES, 6, 2, settings).epoch(epoch):
        size = len(batch)
        tails, rest = batch.entities[size : 2 * size], batch.entities[2 * size :]
        assert torch.equal(batch.unique[batch.slots], batch.entities)
        assert len(rest.unique()) == len(rest)
        marked = torch.zeros(size, len(rest), dtype=torch.bool)
        marked.scatter_(1, batch.position[:, None], (batch.penalty == EXCLUDED)[:, None])
        assert torch.equal(marked, rest == tails[:, None])


@pytest.mark.parametrize("case", [{}, {"regime": "one-vs-all"}, {"model": "rescal"}], ids=str)
@pytest.mark.parametrize("size", [3, 5])
def test_a_batch_of_fixed_shape_gives_the_same_update(size: int, case: dict[str, Any]) -> None:
    settings = EmbeddingSettings(dim=4, batch_size=size, negatives=3, init_scale=0.1, **case)
    filled = 0
    trainers = [EmbeddingTrainer(TRIPLES.numpy(), 6, 2, settings) for _ in range(2)]
    for epoch in range(3):
        batches = trainers[0].batches
        for index, examples in enumerate(batches.order(epoch).split(size)):
            drawn = batches.negatives(epoch, index)
            exact, fixed = (batches.arrange(examples, drawn, fixed=fixed) for fixed in (False, True))
            assert fixed.unique.shape == fixed.entities.shape and len(fixed.relations) == min(len(examples), 4)
            assert torch.equal(fixed.unique[fixed.slots], fixed.entities)
            assert torch.equal(fixed.unique.unique(), exact.unique)
            assert torch.equal(
                fixed.relations.repeat_interleave(fixed.counts), exact.relations.repeat_interleave(exact.counts)
            )
            filled += int((fixed.counts == 0).sum())
            losses = trainers[0].step(exact, 0.1), trainers[1].step(fixed, torch.tensor(0.1))
            torch.testing.assert_close(*losses)
    assert filled or size == 5, "some batch must be padded with a relation"
    for name in ("entities", "relations"):
        torch.testing.assert_close(*(trainer.tables.vectors[name] for trainer in trainers))
        torch.testing.assert_close(*(trainer.tables.squares[name] for trainer in trainers))


@given(st.integers(0, 1000), st.integers(1, 9))
def test_k_vs_all_has_every_triple_in_both_directions_once(epoch: int, size: int) -> None:
    found = []
    settings = EmbeddingSettings(regime="k-vs-all", batch_size=size)
    for batch in batches_of(settings.regime)(TRIPLES, 6, 2, settings).epoch(epoch):
        assert len(batch) <= size and batch.answers is not None
        heads, relations = batch.entities[: len(batch)], batch.relations.repeat_interleave(batch.counts)
        assert torch.equal(batch.entities[len(batch) :], batch.answers.tails)
        assert torch.equal(batch.answers.owners.bincount(), batch.answers.counts)
        owners = batch.answers.owners
        found += torch.stack([heads[owners], relations[owners], batch.answers.tails], 1).tolist()
    forward = TRIPLES.tolist()
    assert sorted(found) == sorted(forward + [[t, r + 2, h] for h, r, t in forward])
