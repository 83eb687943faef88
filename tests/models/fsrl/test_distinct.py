"""Equal rows of a table are found as one kind, whatever their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.models.fsrl.oracle import normal, parameters_of, random_surroundings, surroundings_of
from torch import Tensor

from fewlink.models.contract import Question
from fewlink.models.fsrl import distinct as distinct_room
from fewlink.models.fsrl.compositions import COMPOSITIONS, build
from fewlink.models.fsrl.distinct import distinct
from fewlink.models.fsrl.exact import ExactEncoder, encode_all
from fewlink.models.fsrl.scorer import FewShotScorer

every_precision = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, 1e-30, 3e30, float("inf")])
few_rows = st.lists(st.lists(few_values, min_size=3, max_size=3), min_size=1, max_size=12)


def assert_kinds(vectors: Tensor) -> None:
    """Rows share a kind exactly if they are equal, and each kind holds its row."""
    rows, owners = distinct(vectors)
    assert owners.shape == vectors.shape[:1] and rows.dtype == vectors.dtype
    assert torch.equal(rows[owners], vectors)
    literal = [tuple(row) for row in vectors.tolist()]
    assert len(rows) == len(set(literal)) == len(owners.unique())
    assert [[a == b for a in owners.tolist()] for b in owners.tolist()] == [[a == b for a in literal] for b in literal]


def same_keys(*args: Any, **options: Any) -> Tensor:
    """In place of `torch.randint`: factors of 1, so that a key is the sum of a row and no more."""
    return torch.zeros(args[1], dtype=torch.int64)


@every_precision
@given(rows=few_rows)
def test_equal_rows_share_a_kind_and_others_do_not(dtype: torch.dtype, rows: list[list[float]]) -> None:
    assert_kinds(torch.tensor(rows, dtype=dtype))


@every_precision
def test_rows_that_differ_in_the_last_bit_differ(dtype: torch.dtype) -> None:
    vectors = normal(1, 1, 5).to(dtype).repeat(6, 1)
    for i in range(5):
        vectors[i, i] = torch.nextafter(vectors[i, i], torch.tensor(9.0, dtype=dtype))
    assert_kinds(vectors)
    assert len(distinct(vectors)[0]) == 6


@every_precision
def test_many_rows_and_many_copies(dtype: torch.dtype) -> None:
    vectors = normal(1, 300, 20).to(dtype)[torch.arange(2000) % 300]
    rows, owners = distinct(vectors)
    assert len(rows) == 300 and torch.equal(rows[owners], vectors)


@every_precision
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_it_does_not_matter_how_many_rows_are_looked_at_at_once(
    at_once: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = normal(1, 9, 3).to(dtype)[torch.arange(40) * 5 % 9]
    whole = distinct(vectors)
    monkeypatch.setattr(distinct_room, "ROWS_AT_ONCE", at_once)
    assert all(torch.equal(a, b) for a, b in zip(distinct(vectors), whole, strict=True))
    monkeypatch.setattr(torch, "randint", same_keys)
    assert_kinds(torch.tensor([[1, 2, 3], [7, 0, 0], [3, 2, 1], [1, 2, 3], [2, 1, 3]], dtype=dtype))


@every_precision
def test_zero_has_no_sign(dtype: torch.dtype) -> None:
    rows, owners = distinct(torch.tensor([[0.0, 1.0], [-0.0, 1.0], [-0.0, -1.0], [0.0, -1.0]], dtype=dtype))
    assert len(rows) == 2 and owners[0] == owners[1] != owners[2] == owners[3]


@every_precision
def test_rows_with_the_same_key_are_told_apart(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randint", same_keys)
    rows = torch.tensor([[1, 2, 3], [3, 2, 1], [2, 1, 3], [1, 2, 3], [3, 2, 1], [7, 0, 0]], dtype=dtype)
    bits = rows.view(torch.int32 if dtype == torch.float32 else torch.int64).long().sum(1)
    assert len(bits[:5].unique()) == 1  # their keys collide
    assert_kinds(rows)
    assert_kinds(torch.cat([rows, torch.tensor([[-0.0, 0.0, 7.0], [0.0, -0.0, 7.0]], dtype=dtype)]))


def asked() -> Question:
    arrays = np.array([[0, 1], [2, 3]]), np.arange(4), np.arange(7)
    return Question("relation", *(ids.astype(np.int32) for ids in arrays))


@every_precision
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_scores_do_not_depend_on_the_keys(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model, s = parameters_of(build(name, 3), 1).to(dtype), random_surroundings(2, 3, 4).to(dtype)
    # entities that are each other's permutations, so that kinds collide where keys are sums
    encoded = encode_all(model.encoder, s)
    for turn in (1, 2, 3):
        encoded[turn] = encoded[0].unflatten(0, (3, -1)).roll(turn, 0).flatten()
    monkeypatch.setattr(ExactEncoder, "__call__", lambda self, ids: encoded[ids])
    kept = FewShotScorer(name, model, s)(asked())
    monkeypatch.setattr(torch, "randint", same_keys)
    torch.testing.assert_close(FewShotScorer(name, model, s)(asked()), kept, rtol=1e-5, atol=1e-5)
    assert kept.shape == (4, 7) and torch.equal(kept[:, 0], kept[:, 3])


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_zeros_of_either_sign_score_alike(name: str) -> None:
    entities = torch.tensor([[0.0, 0.5], [-0.0, 0.5], [1.0, -0.0], [1.0, 0.0]], dtype=torch.float64)
    neighbours = [[], [], [(0, 0), (1, 2)], [(0, 1), (1, 3)]]
    s = surroundings_of(entities, normal(1, 2, 2), neighbours)
    question = Question("relation", *(np.array(a, np.int32) for a in ([[0, 2]], [0, 1, 2, 3], [0, 1, 2, 3])))
    scores = FewShotScorer(name, parameters_of(build(name, 2), 1), s)(question)
    for one, other in ((0, 1), (2, 3)):
        assert torch.equal(scores[:, one], scores[:, other]) and torch.equal(scores[one], scores[other])
