"""Link prediction with early stopping: the MRR of held-out triples, and the best vectors by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import early_stopping
from early_stopping import HeldOut, train_with_validation
from fewlink.models.embeddings import EmbeddingSettings, interaction


def test_mrr_by_hand() -> None:
    # DistMult with one dimension and relation 1: a score is h·t
    entities, relations = torch.tensor([[1.0], [2.0], [3.0], [2.0]]), torch.ones(2, 1)
    held, known = np.array([[0, 0, 1]]), np.array([[0, 0, 1], [0, 0, 2]])
    # tails of 0: entity 2 is known, 1 ties with 3: rank 1.5. heads of 1: 1, 2 and 3 score higher than 0: rank 4
    mrr = HeldOut(held, known, 1, 0).mrr(interaction("distmult"), entities, relations)
    assert mrr == pytest.approx((1 / 1.5 + 1 / 4) / 2)


@pytest.mark.parametrize("name", ["complex", "transe"])
def test_mrr_equals_a_slow_one(name: str) -> None:
    rng = np.random.default_rng(0)
    triples = np.unique(np.stack([rng.integers(0, 8, 60), rng.integers(0, 2, 60), rng.integers(0, 8, 60)], 1), axis=0)
    held = triples[::5]
    rule = interaction(name)
    entities, relations = torch.from_numpy(rng.normal(size=(8, 4))), torch.from_numpy(rng.normal(size=(4, 4)))
    both = {(h, r, t) for h, r, t in triples.tolist()} | {(t, r + 2, h) for h, r, t in triples.tolist()}
    total = 0.0
    forward = held.tolist()
    for h, r, t in forward + [[b, kind + 2, a] for a, kind, b in forward]:
        scores = rule.against(rule.query(entities[[h]], relations[[r]]), entities)[0].tolist()
        rest = [s for e, s in enumerate(scores) if (h, r, e) not in both]
        total += 1 / (1 + sum(s > scores[t] for s in rest) + sum(s == scores[t] for s in rest) / 2)
    assert HeldOut(held, triples, 2, 0).mrr(rule, entities, relations) == pytest.approx(total / (2 * len(held)))


def test_training_stops_early_with_the_best_vectors() -> None:
    steps = enumerate(((1, 0), (0, 1), (1, 1)))  # on a grid of 8 by 8
    triples = np.array([[8 * x + y, r, 8 * (x + a) + y + b] for r, (a, b) in steps for x in range(7) for y in range(7)])
    valid = np.random.default_rng(0).permutation(len(triples)) < 20
    parts = triples[~valid], triples[valid], 64, 3
    settings = EmbeddingSettings(dim=16, batch_size=64, negatives=50, epochs=200, learning_rate=0.5, n3=0.0)
    best, measured = train_with_validation(*parts, settings)
    assert len(measured) == measured.index(max(measured)) + 1 + early_stopping.PATIENCE < 200
    mrr = HeldOut(parts[1], triples, 3, 0).mrr(best.interaction, best.entities, best.relations)
    assert mrr == max(measured)
