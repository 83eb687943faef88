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
    refreshed = 0 if policy in ("frozen", "decisions") else course.accepted(30) // curation.REFRESH * curation.REFRESH
    assert len(course.references) == min(curation.SHOTS + refreshed, 16)


def test_the_summary_compares_with_the_frozen_ranking() -> None:
    rows = [
        {"bench": "a", "relation": "r", **{f"frozen {n}": 2.0 for n in (10, 20, 30)}, "frozen MRR": 0.5}
        | {f"learning {n}": value for n, value in ((10, 1.0), (20, 3.0), (30, 3.0))},
        {"bench": "a", "relation": "s", **{f"{p} {n}": 4.0 for p in ("frozen", "learning") for n in (10, 20, 30)}},
    ]
    frozen, learning = curation.summary(rows, ["frozen", "learning"])
    assert (frozen["accepted of 30"], frozen["gain"], frozen["MRR"]) == (3.0, 0.0, 0.5)
    assert (learning["accepted of 30"], learning["relations with fewer"]) == (3.5, 0)
    assert learning["gain"] == pytest.approx(1 / 6)
