"""Batches cover every triple in both directions; the loss of a batch equals a literal one in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from fewlink.models.embeddings import EmbeddingSettings, interaction
from fewlink.models.embeddings.batches import Batches, EmbeddingBatch
from fewlink.models.embeddings.trainer import batch_loss

TRIPLES = torch.tensor([[0, 0, 1], [2, 1, 3], [4, 0, 5], [1, 1, 1]])
ENTITIES, RELATIONS = 12, 3


def examples(batch: EmbeddingBatch) -> list[list[int]]:
    """The triples of a batch: head, relation (inverse ones from R on) and tail."""
    heads, relations = batch.heads[batch.owners], batch.relations[batch.owners]
    found: list[list[int]] = torch.stack([heads, relations, batch.tails], 1).tolist()
    return found


@given(st.sampled_from(["sampled", "one-vs-all", "k-vs-all"]), st.integers(0, 1000), st.integers(1, 9))
def test_an_epoch_has_every_triple_in_both_directions_once(regime: str, epoch: int, size: int) -> None:
    settings = EmbeddingSettings(regime=regime, batch_size=size, negatives=2)
    batches = list(Batches(TRIPLES, 6, 2, settings).epoch(epoch))
    assert all(len(batch.heads) <= size for batch in batches)
    forward = TRIPLES.tolist()
    found = sorted(example for batch in batches for example in examples(batch))
    assert found == sorted(forward + [[t, r + 2, h] for h, r, t in forward])


def literal_loss(settings: EmbeddingSettings, batch: EmbeddingBatch, tables: list[torch.Tensor]) -> torch.Tensor:
    """One example after the other, from the definitions."""
    rule = interaction(settings.model, settings.norm)
    entities, relations = tables
    others = range(ENTITIES) if batch.negatives is None else batch.negatives.tolist()
    total = entities.new_zeros(())
    for h, r, t in examples(batch):
        q = rule.query(entities[h : h + 1], relations[r : r + 1])[0]
        rest = [rule.compare(q, entities[e]) for e in others if e != t]
        scores = torch.stack([rule.compare(q, entities[t]), *rest])
        total = total + functional.cross_entropy(scores[None], torch.tensor([0]))
        for row in (entities[h], relations[r], entities[t]):
            numbers = torch.complex(*row.chunk(2)) if settings.model == "complex" else row
            total = total + settings.n3 * numbers.abs().pow(3).sum()
    return total / len(batch.tails)


@pytest.mark.parametrize("regime", ["sampled", "one-vs-all", "k-vs-all"])
@pytest.mark.parametrize(
    "model",
    [{"model": "rescal"}, {"model": "transe", "norm": 1}, {"model": "transe"}, {"model": "distmult"}, {}],
    ids=str,
)
def test_loss_and_gradient_equal_a_literal_one(regime: str, model: dict[str, Any]) -> None:
    settings = EmbeddingSettings(dim=4, negatives=5, n3=0.1, regime=regime, **model)
    rule = interaction(settings.model, settings.norm)
    random = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (30,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES)], 1)
    batches = Batches(triples.unique(dim=0), ENTITIES, RELATIONS, settings)
    batch = batches.arrange(torch.tensor([0, 3, 17, 9, 8, 12, 1]), batches.negatives(0, 0))
    shapes = (ENTITIES, 4), (2 * RELATIONS, rule.relation_width(4))
    tables = [torch.randn(s, generator=random, dtype=torch.float64).requires_grad_() for s in shapes]
    columns = tables[0] if batch.negatives is None else tables[0][batch.negatives]
    loss = batch_loss(
        rule, settings, batch, (tables[0][batch.heads], tables[0][batch.tails], columns), tables[1], batch.relations
    )
    literal = literal_loss(settings, batch, tables)
    torch.testing.assert_close(loss, literal)
    gradients = (torch.autograd.grad(value, tables) for value in (loss, literal))
    torch.testing.assert_close(*gradients, atol=1e-7, rtol=1e-6)
