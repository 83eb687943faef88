"""The simulation of curators: every policy decides distinct pairs truthfully, and only learning ones learn."""

from __future__ import annotations

import numpy as np
import pytest

import curation
from fewlink.data import open_benchmark
from fewlink.prediction import Linker


@pytest.fixture(scope="module")
def pool() -> curation.Pool:
    benchmark = open_benchmark("umls")
    return curation.Pool.of(Linker.shipped(benchmark), benchmark.split("dev")[0], draw=1)


def test_a_pool_has_heads_of_the_relation_and_others_like_them(pool: curation.Pool) -> None:
    own = np.isin(pool.heads, pool.task.known[:, 0])
    assert own.sum() == curation.TRUE_HEADS
    assert 0 < (~own).sum() <= curation.OTHER_HEADS


@pytest.mark.parametrize("policy", curation.POLICIES)
def test_each_policy_decides_distinct_pairs_truthfully(pool: curation.Pool, policy: str) -> None:
    course = curation.curate(pool, policy, draw=1)
    known = set(map(tuple, pool.task.known.tolist()))
    assert len(course.decided) == len(set(course.decided)) == curation.STEPS
    assert course.right == [pair in known for pair in course.decided]
    assert not set(course.decided) & set(map(tuple, pool.references.tolist()))
    assert (course.learned is None) == (policy == "frozen")
    refreshed = 0 if policy in ("frozen", "decisions") else sum(course.right) // curation.REFRESH * curation.REFRESH
    assert len(course.references) == min(curation.SHOTS + refreshed, 16)


def test_the_summary_compares_with_the_frozen_ranking() -> None:
    rows = [
        {"bench": "a", "relation": "r", "frozen 30": 2.0, "learning 30": 3.0, "frozen MRR": 0.5},
        {"bench": "a", "relation": "s", "frozen 30": 4.0, "learning 30": 4.0},
    ]
    frozen, learning = curation.summary(rows)
    assert (frozen["accepted of 30"], frozen["gain"], frozen["MRR"]) == (3.0, 0.0, 0.5)
    assert (learning["accepted of 30"], learning["relations with fewer"]) == (3.5, 0)
    assert learning["gain"] == pytest.approx(1 / 6)
