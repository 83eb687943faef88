"""Ranks with ties and the metrics made from them: by hand, and against literal loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewlink.evaluation import METRICS, realistic_ranks, summarise
from fewlink.evaluation.evaluator import average

NOTHING = (torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
SCORES = torch.tensor([[5.0, 3.0, 3.0, 1.0, 3.0]])


def rank(true: int, excluded: list[int] | None = None, counted: list[bool] | None = None) -> tuple[float, int]:
    columns = torch.tensor(excluded or [], dtype=torch.int64)
    mask = None if counted is None else torch.tensor(counted)
    ranks, counts = realistic_ranks(
        SCORES, torch.tensor([0]), torch.tensor([true]), (torch.zeros_like(columns), columns), mask
    )
    return float(ranks[0]), int(counts[0])


def test_ranks_without_ties_start_at_one() -> None:
    assert rank(0) == (1, 5)
    assert rank(3) == (5, 5)


def test_ties_have_their_mean_rank() -> None:
    assert rank(1) == (3, 5)  # one higher, two tied: places 2, 3 and 4
    assert rank(2) == rank(4) == (3, 5)


def test_other_known_answers_do_not_compete() -> None:
    assert rank(3, excluded=[0, 1]) == (3, 3)
    assert rank(1, excluded=[2]) == (2.5, 4)
    assert rank(1, excluded=[1, 2]) == (2.5, 4)  # the true tail may be among them


def test_uncounted_columns_do_not_compete() -> None:
    assert rank(3, counted=[False, True, True, True, False]) == (3, 3)
    assert rank(3, counted=[False, True, True, False, False]) == (3, 3)  # the true tail always counts
    assert rank(3, excluded=[0, 1], counted=[False, True, True, True, False]) == (2, 2)


def test_a_single_candidate_has_rank_one() -> None:
    assert rank(0, excluded=[1, 2, 3, 4]) == (1, 1)


class Problem(NamedTuple):
    scores: torch.Tensor
    rows: list[int]
    true: list[int]
    known: list[set[int]]
    counted: list[bool] | None


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    heads, columns, queries = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    values = st.lists(st.integers(0, 3), min_size=columns, max_size=columns)
    scores = torch.tensor(draw(st.lists(values, min_size=heads, max_size=heads)), dtype=torch.float32)
    rows = draw(st.lists(st.integers(0, heads - 1), min_size=queries, max_size=queries))
    true = draw(st.lists(st.integers(0, columns - 1), min_size=queries, max_size=queries))
    known = [draw(st.sets(st.integers(0, columns - 1))) for _ in range(queries)]
    counted = draw(st.none() | st.lists(st.booleans(), min_size=columns, max_size=columns))
    return Problem(scores, rows, true, known, counted)


@given(problems())
def test_ranks_equal_a_literal_loop(problem: Problem) -> None:
    scores, rows, true, known, counted = problem
    excluded = [(q, c) for q, columns in enumerate(known) for c in sorted(columns)]
    pairs = tuple(torch.tensor([e[i] for e in excluded], dtype=torch.int64) for i in (0, 1))
    mask = None if counted is None else torch.tensor(counted)
    ranks, counts = realistic_ranks(scores, torch.tensor(rows), torch.tensor(true), pairs, mask)
    for query, (row, answer) in enumerate(zip(rows, true, strict=True)):
        rivals = [
            float(scores[row, c])
            for c in range(scores.shape[1])
            if c != answer and c not in known[query] and (counted is None or counted[c])
        ]
        true_score = float(scores[row, answer])
        assert ranks[query] == 1 + sum(s > true_score for s in rivals) + sum(s == true_score for s in rivals) / 2
        assert counts[query] == len(rivals) + 1
    assert (ranks.dtype, counts.dtype) == (torch.float64, torch.int64)


@given(problems(), st.data())
def test_ranks_do_not_depend_on_the_order_of_the_candidates(problem: Problem, data: st.DataObject) -> None:
    scores, rows, true, *_ = problem
    order = data.draw(st.permutations(range(scores.shape[1])))
    moved = torch.tensor([order.index(c) for c in true])
    before = realistic_ranks(scores, torch.tensor(rows), torch.tensor(true), NOTHING)
    after = realistic_ranks(scores[:, order], torch.tensor(rows), moved, NOTHING)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_nearly_equal_scores_are_not_ties_in_any_precision() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        scores = torch.tensor([[1.0, 1.0 + torch.finfo(dtype).eps]], dtype=dtype)
        ranks, _ = realistic_ranks(scores, torch.tensor([0]), torch.tensor([0]), NOTHING)
        assert ranks.tolist() == [2]


rankings = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(2, 2 * n).map(lambda k: k / 2), st.just(n)))


def test_metrics_of_four_queries() -> None:
    metrics = summarise(np.array([1, 2.5, 5, 11]), np.array([11, 11, 21, 21]))
    assert list(metrics) == list(METRICS)
    assert metrics["mrr"] == pytest.approx((1 + 0.4 + 0.2 + 1 / 11) / 4)
    assert [metrics[f"hits@{k}"] for k in (1, 5, 10)] == [0.25, 0.75, 0.75]
    assert metrics["mr"] == 4.875
    assert metrics["amri"] == pytest.approx(1 - 3.875 / 7.5)  # by chance (6 + 6 + 11 + 11) / 4 = 8.5


def test_amri_of_perfect_random_and_worst_ranks() -> None:
    counts = np.array([9, 5])
    assert summarise(np.array([1, 1]), counts)["amri"] == 1
    assert summarise((counts + 1) / 2, counts)["amri"] == 0
    assert summarise(counts, counts)["amri"] == -1


def test_amri_of_queries_with_a_single_candidate_is_zero() -> None:
    assert summarise(np.array([1.0]), np.array([1])) == {
        "mrr": 1, "hits@1": 1, "hits@5": 1, "hits@10": 1, "mr": 1, "amri": 0
    }  # fmt: skip


@given(st.lists(rankings, min_size=1))
def test_metrics_equal_a_literal_loop(ranked: list[tuple[float, int]]) -> None:
    ranks, counts = zip(*ranked, strict=True)
    metrics = summarise(np.array(ranks), np.array(counts))
    n = len(ranked)
    assert metrics["mrr"] == pytest.approx(sum(1 / r for r in ranks) / n)
    for k in (1, 5, 10):
        assert metrics[f"hits@{k}"] == pytest.approx(sum(r <= k for r in ranks) / n)
    assert metrics["mr"] == pytest.approx(sum(ranks) / n)
    chance = sum((c + 1) / 2 for c in counts) / n
    assert metrics["amri"] == pytest.approx(1 - (sum(ranks) / n - 1) / (chance - 1) if chance > 1 else 0)
    assert -1 - 1e-9 <= metrics["amri"] <= 1
    assert all(isinstance(v, float) for v in metrics.values())


def test_the_macro_average_gives_each_relation_the_same_weight() -> None:
    rows = [summarise(np.array([1, 1, 1]), np.array([5, 5, 5])), summarise(np.array([4]), np.array([5]))]
    assert average(rows)["mrr"] == 0.625
    assert average(rows)["mr"] == 2.5
    assert average(rows)["hits@1"] == 0.5
