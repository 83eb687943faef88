"""Batches are a pure function of (seed, epoch, batch) and cover every triple in both directions."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlink.embeddings import EmbeddingSettings
from fewlink.embeddings.batches import Batch, Batches
from fewlink.embeddings.losses import OUT

TRIPLES = torch.tensor([[0, 0, 1], [2, 1, 3], [4, 0, 5], [1, 1, 1]])


def examples(batch: Batch) -> list[tuple[int, int, int]]:
    size = len(batch)
    relations = batch.relations.repeat_interleave(batch.counts)
    return list(
        zip(batch.entities[:size].tolist(), relations.tolist(), batch.entities[size : 2 * size].tolist(), strict=True)
    )


def test_an_epoch_is_every_triple_in_both_directions() -> None:
    settings = EmbeddingSettings(batch_size=3, negatives=2)
    seen = [e for batch in Batches(TRIPLES, 6, 2, settings).epoch(0) for e in examples(batch)]
    forward = [tuple(t) for t in TRIPLES.tolist()]
    assert sorted(seen) == sorted(forward + [(t, r + 2, h) for h, r, t in forward])


def test_the_same_epoch_is_the_same_and_another_differs() -> None:
    batches = Batches(TRIPLES, 6, 2, EmbeddingSettings(batch_size=3, negatives=2, seed=5))
    first, again, other = (torch.cat([b.entities for b in batches.epoch(e)]) for e in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.tolist() != other.tolist()


@given(st.integers(0, 1000), st.integers(1, 30), st.sampled_from(["shared", "each"]))
def test_the_true_tail_is_never_a_negative(epoch: int, negatives: int, corrupt: str) -> None:
    settings = EmbeddingSettings(batch_size=3, negatives=negatives, corrupt=corrupt)
    for batch in Batches(TRIPLES, 6, 2, settings).epoch(epoch):
        size = len(batch)
        tails, rest = batch.entities[size : 2 * size], batch.entities[2 * size :]
        assert torch.equal(batch.unique[batch.slots], batch.entities)
        if corrupt == "each":
            marked = rest.view(size, negatives) == tails[:, None]
            assert torch.equal(marked, batch.penalty == OUT)
        else:
            assert len(rest.unique()) == len(rest)
            marked = torch.zeros(size, len(rest), dtype=torch.bool)
            marked.scatter_(1, batch.position[:, None], (batch.penalty == OUT)[:, None])
            assert torch.equal(marked, rest == tails[:, None])
