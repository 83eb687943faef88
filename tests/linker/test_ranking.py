"""The best tails of a head, with the ranks of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core.errors import ScoreError
from fewlink.evaluation import realistic_ranks
from fewlink.linker.ranking import BACKGROUND, rank_head, score_heads
from fewlink.models.contract import Question

TAILS = np.array([3, 5, 7, 9, 11], np.int32)


def test_ranks_by_hand() -> None:
    rows = rank_head(0, TAILS, np.array([1.0, 4.0, 2.0, 2.0, 3.0]), np.array([5]), 4, with_known=True)
    assert rows.tails.tolist() == [5, 11, 7, 9] and rows.known.tolist() == [True, False, False, False]
    assert rows.ranks.tolist() == [1.0, 1.0, 2.5, 2.5]  # the known answer does not compete; two tails share a rank
    total = np.log(np.exp([1, 2, 2, 3]).sum())
    np.testing.assert_allclose(rows.log_softmax, [4 - np.logaddexp(total, 4), 3 - total, 2 - total, 2 - total])


def test_known_tails_are_excluded_and_may_not_be_candidates() -> None:
    rows = rank_head(0, TAILS, np.array([1.0, 4.0, 2.0, 2.0, 3.0]), np.array([5, 6, 100, 5]), 10, with_known=False)
    assert rows.tails.tolist() == [11, 7, 9, 3] and rows.ranks.tolist() == [1, 2.5, 2.5, 4] and not rows.known.any()


def test_a_head_with_only_known_candidates_has_no_row() -> None:
    assert len(rank_head(0, TAILS, np.arange(5.0), TAILS, 3, with_known=False)) == 0
    shown = rank_head(0, TAILS, np.arange(5.0), TAILS, 3, with_known=True)
    assert shown.ranks.tolist() == [1, 1, 1] and np.isfinite(shown.log_softmax).all()


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=12),
    st.sets(st.integers(0, 14)),
    st.integers(1, 14),
    st.booleans(),
)
def test_ranks_equal_the_evaluators(values: list[int], known: set[int], k: int, with_known: bool) -> None:
    scores, candidates = np.array(values, np.float32), np.arange(len(values), dtype=np.int32)
    rows = rank_head(0, candidates, scores, np.array(sorted(known), np.int32), k, with_known)
    others = torch.tensor([t for t in sorted(known) if t < len(values)], dtype=torch.long)
    for tail, rank in zip(rows.tails, rows.ranks, strict=True):
        where = torch.zeros(len(others), dtype=torch.long), others
        expected, _ = realistic_ranks(torch.tensor(scores)[None], torch.tensor([0]), torch.tensor([int(tail)]), where)
        assert rank == float(expected)
    open_to = [t for t in range(len(values)) if with_known or t not in known]
    assert rows.tails.tolist() == sorted(open_to, key=lambda t: (-values[t], t))[:k]


def test_non_finite_or_missing_scores_raise() -> None:
    class Invalid:
        name = "invalid"

        def __init__(self, scores: np.ndarray) -> None:
            self.scores = scores

        def __call__(self, question: Question) -> np.ndarray:
            return self.scores

    question = Question("", TAILS[None, :2], np.array([0]), TAILS)
    for scores in (np.full((1, 5), np.nan), np.zeros((1, 4))):
        with pytest.raises(ScoreError, match="invalid"):
            list(score_heads(Invalid(scores), question))


def test_moved_scores_have_their_own_ranks_and_softmax() -> None:
    """All tails are listed, so that they are those of a new ranking."""
    scores, by = np.array([1.0, 4.0, 2.0, 2.0, 3.0]), np.array([2.0, -2.0, 0.0, 1.0, 0.0])  # 3, 2, 2, 3, 3
    rows = rank_head(0, TAILS, scores, TAILS[:0], 5, with_known=False)
    moved = rows.moved(by[np.searchsorted(TAILS, rows.tails)])
    expected = rank_head(0, TAILS, scores + by, TAILS[:0], 5, with_known=False)
    assert dict(zip(moved.tails.tolist(), moved.ranks.tolist(), strict=True)) == {3: 2, 9: 2, 11: 2, 5: 4.5, 7: 4.5}
    order = np.argsort(moved.tails)[np.argsort(np.argsort(expected.tails))]
    for name in ("scores", "ranks", "log_softmax"):
        np.testing.assert_allclose(getattr(moved, name)[order], getattr(expected, name))


def test_leads_are_over_the_background() -> None:
    count = 2 * BACKGROUND + 10
    tails, scores = np.arange(count, dtype=np.int32), np.arange(count) / 4
    rows = rank_head(0, tails, scores, tails[-1:], 2, with_known=False)  # the best is known and does not compete
    np.testing.assert_allclose(rows.leads, [(BACKGROUND - 1) / 4, (BACKGROUND - 2) / 4])
    few = rank_head(0, TAILS, np.array([1.0, 4.0, 2.0, 2.0, 3.0]), TAILS[:0], 2, with_known=False)  # over the second
    assert few.leads.tolist() == [1.0, 0.0] and few.moved(np.array([1.0, 0.0])).leads.tolist() == [2.0, 0.0]
    assert not few.alone.any() and rank_head(0, TAILS, np.zeros(5), TAILS[1:], 5, with_known=True).alone.sum() == 1
