"""The loss of a batch: numbers by hand, and the fast step against a literal dense one in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.nn import functional

from fewlink.models.embeddings import EmbeddingSettings, interaction
from fewlink.models.embeddings.batches import Batches, batches_of
from fewlink.models.embeddings.trainer import step_loss

ENTITIES, RELATIONS = 12, 3


def slow_loss(
    settings: EmbeddingSettings,
    batches: Batches,
    examples: list[int],
    pools: list[list[int]],
    tables: list[torch.Tensor],
) -> torch.Tensor:
    """One example after the other, from the definitions."""
    rule = interaction(settings.model, settings.norm)
    entities, relations = tables
    total = entities.new_zeros(())
    for example, pool in zip(examples, pools, strict=True):
        h, r, t = batches.triples[example % len(batches.triples)].tolist()
        if example >= len(batches.triples):
            h, r, t = t, r + RELATIONS, h
        q = rule.query(entities[h : h + 1], relations[r : r + 1])[0]
        true = rule.compare(q, entities[t])
        rest = torch.stack([rule.compare(q, entities[e]) for e in pool if e != t])
        total = total + functional.cross_entropy(torch.cat([true[None], rest])[None], torch.tensor([0]))
        for row in (entities[h], relations[r], entities[t]):
            numbers = torch.complex(*row.chunk(2)) if settings.model == "complex" else row
            total = total + settings.n3 * numbers.abs().pow(3).sum()
    return total / len(examples)


CASES = [
    {"model": model, "norm": norm, "regime": regime}
    for model, norm in (("rescal", 2), ("transe", 1), ("transe", 2), ("distmult", 2), ("complex", 2))
    for regime in ("sampled", "one-vs-all")
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_gradient_equals_a_dense_gradient(case: dict[str, Any]) -> None:
    settings = EmbeddingSettings(dim=4, negatives=5, n3=0.1, **case)
    rule = interaction(settings.model, settings.norm)
    random = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (9,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES)], dim=1)
    batches = Batches(triples, ENTITIES, RELATIONS, settings)
    examples = torch.tensor([0, 3, 17, 9, 3, 8, 12, 1])
    batch = batches.arrange(examples, batches.negatives(0, 0))

    shapes = (ENTITIES, 4), (2 * RELATIONS, rule.relation_width(4))
    tables = [torch.randn(s, generator=random, dtype=torch.float64).requires_grad_() for s in shapes]
    order = sorted(range(8), key=lambda i: int(triples[examples[i] % 9, 1] + RELATIONS * (examples[i] >= 9)))
    pool = list(range(ENTITIES)) if settings.regime == "one-vs-all" else batch.entities[16:].tolist()
    slow = slow_loss(settings, batches, examples[order].tolist(), [pool] * 8, tables)
    expected = torch.autograd.grad(slow, tables)

    rows = tables[0].detach()[batch.entities].requires_grad_()
    relation_rows = tables[1].detach()[batch.relations].requires_grad_()
    all_rows = tables[0].detach().requires_grad_() if settings.regime == "one-vs-all" else None
    batch = type(batch)(**{**vars(batch), "penalty": batch.penalty.double()})
    value, penalty = step_loss(rule, settings, batch, rows, relation_rows, all_rows)
    leaves = [rows, relation_rows, *([] if all_rows is None else [all_rows])]
    gradients = torch.autograd.grad(value + penalty, leaves)
    dense = torch.zeros_like(tables[0]).index_add_(0, batch.unique[batch.slots], gradients[0])
    if all_rows is not None:
        dense += gradients[2]
    torch.testing.assert_close(value + penalty, slow)
    torch.testing.assert_close(dense, expected[0], atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(torch.zeros_like(tables[1]).index_copy_(0, batch.relations, gradients[1]), expected[1])


@pytest.mark.parametrize("model", ["rescal", "transe", "distmult", "complex"])
def test_k_vs_all_has_the_loss_and_gradient_of_one_vs_all(model: str) -> None:
    random = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (30,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES)], dim=1)
    triples, results = triples.unique(dim=0), []
    rule = interaction(model)
    shapes = (ENTITIES, 4), (2 * RELATIONS, rule.relation_width(4))
    tables = [torch.randn(s, generator=random, dtype=torch.float64) for s in shapes]
    for regime in ("one-vs-all", "k-vs-all"):
        settings = EmbeddingSettings(model=model, dim=4, n3=0.1, regime=regime)
        batches = batches_of(settings.regime)(triples, ENTITIES, RELATIONS, settings)
        batch = batches.arrange(torch.arange(batches.examples), torch.empty(0, dtype=torch.int64))
        assert batch.size == 2 * len(triples) and (regime == "one-vs-all") == (len(batch) == batch.size)
        batch = dataclasses.replace(batch, penalty=batch.penalty.double())
        leaves = [tables[0][batch.entities], tables[1][batch.relations], tables[0].clone()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        value, penalty = step_loss(rule, settings, batch, *leaves)
        rows, relation_rows, all_rows = torch.autograd.grad(value + penalty, leaves)
        all_rows = all_rows.index_add(0, batch.entities, rows)
        results.append(
            (value, penalty, all_rows, torch.zeros_like(tables[1]).index_copy(0, batch.relations, relation_rows))
        )
    torch.testing.assert_close(*results, atol=1e-7, rtol=1e-6)
