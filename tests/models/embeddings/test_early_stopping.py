"""Held-out triples: their choice, and their MRR against a literal slow version."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewlink.core.errors import FewlinkError
from fewlink.models.embeddings import interaction
from fewlink.models.embeddings.held_out import HeldOut, choose_held_out


def test_protected_and_only_triples_stay_in_training() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 2], [3, 0, 1], [1, 1, 2]])
    protected = np.array([True, False, False, False, False])
    for seed in range(20):
        mask = choose_held_out(triples, 0.5, seed, protected)
        assert mask.sum() == 2  # of rows 1 and 2: entity 3 and relation 1 occur once, row 0 is protected
        assert not mask[[0, 3, 4]].any()


def test_nothing_to_hold_out_raises() -> None:
    with pytest.raises(FewlinkError, match=r"held_out is 0\.5"):
        choose_held_out(np.array([[0, 0, 1], [2, 1, 3]]), 0.5, 0)


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
