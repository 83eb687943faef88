from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlink.evaluation import METRICS, summarise
from fewlink.evaluation.metrics import average

queries = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(2, 2 * n).map(lambda k: k / 2), st.just(n)))


def test_figures_of_four_queries() -> None:
    figures = summarise(np.array([1, 2.5, 5, 11]), np.array([11, 11, 21, 21]))
    assert list(figures) == list(METRICS)
    assert figures["mrr"] == pytest.approx((1 + 0.4 + 0.2 + 1 / 11) / 4)
    assert [figures[f"hits@{k}"] for k in (1, 5, 10)] == [0.25, 0.75, 0.75]
    assert figures["mr"] == 4.875
    assert figures["amri"] == pytest.approx(1 - 3.875 / 7.5)  # by chance (6 + 6 + 11 + 11) / 4 = 8.5


def test_perfect_chance_and_worst() -> None:
    counts = np.array([9, 5])
    assert summarise(np.array([1, 1]), counts)["amri"] == 1
    assert summarise((counts + 1) / 2, counts)["amri"] == 0
    assert summarise(counts, counts)["amri"] == -1


def test_queries_with_a_single_candidate_say_nothing() -> None:
    assert summarise(np.array([1.0]), np.array([1])) == {
        "mrr": 1, "hits@1": 1, "hits@5": 1, "hits@10": 1, "mr": 1, "amri": 0
    }  # fmt: skip


@given(st.lists(queries, min_size=1))
def test_figures_are_those_of_a_literal_loop(made: list[tuple[float, int]]) -> None:
    ranks, counts = zip(*made, strict=True)
    figures = summarise(np.array(ranks), np.array(counts))
    n = len(made)
    assert figures["mrr"] == pytest.approx(sum(1 / r for r in ranks) / n)
    for k in (1, 5, 10):
        assert figures[f"hits@{k}"] == pytest.approx(sum(r <= k for r in ranks) / n)
    assert figures["mr"] == pytest.approx(sum(ranks) / n)
    chance = sum((c + 1) / 2 for c in counts) / n
    assert figures["amri"] == pytest.approx(1 - (sum(ranks) / n - 1) / (chance - 1) if chance > 1 else 0)
    assert -1 - 1e-9 <= figures["amri"] <= 1
    assert all(isinstance(v, float) for v in figures.values())


def test_the_macro_average_gives_each_relation_the_same_weight() -> None:
    rows = [summarise(np.array([1, 1, 1]), np.array([5, 5, 5])), summarise(np.array([4]), np.array([5]))]
    assert average(rows)["mrr"] == 0.625
    assert average(rows)["mr"] == 2.5
    assert average(rows)["hits@1"] == 0.5
