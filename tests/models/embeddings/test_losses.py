"""The loss of a batch: numbers by hand, and the fast step against a literal dense one in float64."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from fewlink.models.embeddings import EmbeddingSettings, interaction, interactions
from fewlink.models.embeddings.batches import Batches, batches_of
from fewlink.models.embeddings.interactions import LOSSES
from fewlink.models.embeddings.trainer import step_loss

ENTITIES, RELATIONS = 12, 3
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_by_hand() -> None:
    true, others = torch.tensor([1.0]), torch.tensor([[0.0, 2.0]])

    def value(loss: str, margin: float = 1.0) -> float:
        return LOSSES[loss](true, others.clone(), margin)[0].item()

    assert value("softmax") == pytest.approx(-math.log(math.e / (math.e + 1 + math.e**2)))
    logistic = math.log(1 + math.exp(-1)) + (math.log(2) + math.log(1 + math.e**2)) / 2
    assert value("logistic") == pytest.approx(logistic)
    assert value("margin", 0.5) == pytest.approx((0 + 1.5) / 2)


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_far_apart_give_finite_losses(loss: str) -> None:
    true, others = (
        torch.tensor([300.0, -300.0]),
        torch.tensor([[-300.0, interactions.EXCLUDED], [300.0, interactions.EXCLUDED]]),
    )
    values, *gradients = LOSSES[loss](true, others, 1.0)
    assert all(part.isfinite().all() for part in (values, *gradients))
    assert values[0] == pytest.approx(0.0, abs=1e-6) and values[1] > 250


@pytest.mark.parametrize("columns", [1, 1000, 8192, 70_001])  # torch has different kernels for these
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_softmax_equals_the_cross_entropy_at_any_width(columns: int, device: str) -> None:
    true, others = (torch.randn(7, n, generator=torch.Generator().manual_seed(n)) for n in (1, columns))
    scores = torch.cat([true, others], 1).double().requires_grad_()
    expected = functional.cross_entropy(scores, torch.zeros(7, dtype=torch.long), reduction="none")
    gradients = torch.autograd.grad(expected.sum(), scores)[0].float()
    computed = (part.cpu() for part in LOSSES["softmax"](true[:, 0].to(device), others.to(device), 1.0))
    for one, other in zip(computed, (expected.float(), gradients[:, 0], gradients[:, 1:]), strict=True):
        torch.testing.assert_close(one, other)


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
        if settings.loss == "softmax":
            total = total + functional.cross_entropy(torch.cat([true[None], rest])[None], torch.tensor([0]))
        elif settings.loss == "logistic":
            total = total + functional.softplus(-true) + functional.softplus(rest).sum() / len(pool)
        else:
            total = total + (settings.margin - true + rest).relu().sum() / len(pool)
        for weight, power in ((settings.n3, 3.0), (settings.lp, settings.lp_power)):
            for row in (entities[h], relations[r], entities[t]):
                numbers = torch.complex(*row.chunk(2)) if settings.model == "complex" else row
                total = total + weight * numbers.abs().pow(power).sum()
    return total / len(examples)


CASES = [
    {"model": model, "norm": norm, "loss": loss, "corrupt": corrupt}
    for model, norm in (("rescal", 2), ("transe", 1), ("transe", 2), ("distmult", 2), ("complex", 2))
    for loss in ("softmax", "logistic", "margin")
    for corrupt in ("shared", "each")
] + [{"model": model, "regime": "one-vs-all"} for model in ("rescal", "transe", "distmult", "complex")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_gradient_equals_a_dense_gradient(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactions, "slice_rows", lambda *_: 3)  # several slices, the last one short
    settings = EmbeddingSettings(dim=4, negatives=5, n3=0.1, lp=0.2, lp_power=2.0, **case)
    rule = interaction(settings.model, settings.norm)
    random = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (9,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES)], dim=1)
    batches = Batches(triples, ENTITIES, RELATIONS, settings)
    examples = torch.tensor([0, 3, 17, 9, 3, 8, 12, 1])
    batch = batches.arrange(examples, batches.negatives(0, 0, len(examples)))

    shapes = (ENTITIES, 4), (2 * RELATIONS, rule.relation_width(4))
    tables = [torch.randn(s, generator=random, dtype=torch.float64).requires_grad_() for s in shapes]
    order = sorted(range(8), key=lambda i: int(triples[examples[i] % 9, 1] + RELATIONS * (examples[i] >= 9)))
    if settings.regime == "one-vs-all":
        pools = [list(range(ENTITIES))] * 8
    elif settings.corrupt == "each":
        pools = batch.entities[16:].view(8, 5).tolist()
    else:
        pools = [batch.entities[16:].tolist()] * 8
    slow = slow_loss(settings, batches, examples[order].tolist(), pools, tables)
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
def test_k_vs_all_has_the_loss_and_gradient_of_one_vs_all(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactions, "slice_rows", lambda *_: 3)
    random = torch.Generator().manual_seed(1)
    triples = torch.stack([torch.randint(n, (30,), generator=random) for n in (ENTITIES, RELATIONS, ENTITIES)], dim=1)
    triples, results = triples.unique(dim=0), []
    rule = interaction(model)
    shapes = (ENTITIES, 4), (2 * RELATIONS, rule.relation_width(4))
    tables = [torch.randn(s, generator=random, dtype=torch.float64) for s in shapes]
    for regime in ("one-vs-all", "k-vs-all"):
        settings = EmbeddingSettings(model=model, dim=4, n3=0.1, lp=0.2, regime=regime)
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


def test_slices_stay_within_the_memory_limit() -> None:
    assert interactions.slice_rows(8192, 4, "cpu") * 8192 * 4 <= interactions.SLICE_BYTES["cpu"]
    assert interactions.slice_rows(5_000_000, 4, "cpu") * 5_000_000 * 4 <= interactions.SLICE_BYTES["cpu"]
    assert interactions.slice_rows(10**9, 4, "cpu") == 1
