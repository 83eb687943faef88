"""Answer sets: quantiles by hand, coverage of relations that were left out, and sentences."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of

from fewlink.linker.answer_sets import Ranks, SetSize, answer_set, answer_sets, fit_set_size, weighted_quantile

SIZES = (SetSize(0.5, (0.0, 0.0, 0.2)), SetSize(0.9, (0.0, 0.0, 1.0)))


def sample(relations: int, seed: int) -> Ranks:
    """Relations of different difficulty: the rank is 1 with the probability of the first answer, else anything."""
    random = np.random.default_rng(seed)
    first = np.repeat(random.uniform(0.05, 0.95, relations), 20)
    candidates = np.repeat(random.integers(50, 5000, relations), 20)
    best = np.where(random.random(len(first)) < first, 1, np.ceil(candidates ** random.random(len(first))))
    return Ranks(first, candidates, best, np.repeat(np.arange(relations), 20))


def test_weighted_quantiles() -> None:
    values = np.array([3.0, 1.0, 2.0])
    assert weighted_quantile(values, np.ones(3), 1 / 3) == 1
    assert weighted_quantile(values, np.ones(3), 0.5) == 2
    assert weighted_quantile(values, np.array([8.0, 1.0, 1.0]), 0.5) == 3


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_new_relations_are_covered_as_often_as_asked_for(level: float) -> None:
    fitted, new = fit_set_size(sample(100, 0), level), sample(200, 1)
    sizes = fitted.size(new.first, new.candidates)
    assert abs((new.best <= sizes).mean() - level) < 0.04
    sure, unsure = sizes[new.first > 0.8], sizes[new.first < 0.2]
    assert np.median(sure) < np.median(unsure) / 10


def test_sets_are_as_large_as_relations_that_were_not_seen_need() -> None:
    """Of two relations, one has its right answers at rank 1 and one at rank 10. Fitted to the first, sets of the second
    are ten times too small: so much larger they all become."""
    ranks = Ranks(np.full(40, 0.5), np.full(40, 1000), np.repeat([1.0, 10.0], 20), np.repeat([0, 1], 20))
    assert fit_set_size(ranks, 0.9).size(np.array([0.5]), np.array([1000])).tolist() == [pytest.approx(100, abs=2)]


def test_relations_count_the_same() -> None:
    ranks = Ranks(np.full(4, 0.5), np.full(4, 10), np.ones(4), np.array([0, 0, 0, 1]))
    assert ranks.counts.tolist() == [1 / 3, 1 / 3, 1 / 3, 1]


def test_a_right_answer_that_is_no_candidate_is_beyond_all() -> None:
    ranks = Ranks(np.full(2, 0.5), np.full(2, 10), np.array([np.inf, 2.0]), np.arange(2))
    assert ranks.logs.tolist() == [np.log(10) + 1, np.log(2)]


def test_sizes_are_at_least_one_and_at_most_all_candidates() -> None:
    size = SetSize(0.9, (5.0, -10.0, 1.0))
    assert size.size(np.array([0.0, 0.99]), np.array([7, 7])).tolist() == [7, 1]


def test_the_sentence_names_the_highest_level_that_is_listed() -> None:
    near = answer_set(SIZES, ("a", "A"), 0.5, 49, 10)
    assert near.sentence == "one of the first 7 tails is right in 9 of 10 such questions"
    assert (near.size, near.level, near.unlikely) == (7, 0.9, False)
    far = answer_set(SIZES, ("a", "A"), 0.5, 10_000, 10, "head")
    assert (
        far.sentence
        == "one of the first 2 heads is right in half of such questions; for 9 of 10 it takes the first 100"
    )
    assert (far.size, far.level) == (2, 0.5)
    sure = answer_set(SIZES, ("a", "A"), 0.99, 100, 10)
    assert sure.sentence == "the first tail is right in 9 of 10 such questions"


def test_probably_none() -> None:
    none = answer_set(SIZES, ("a", "A"), 0.1, 10, 10)
    assert none.unlikely and none.sentence.startswith("probably none of the first tails is right: ")


def test_the_sets_of_several_entities() -> None:
    graph = graph_of("a r b", "c r d")
    asked = np.array([0, 0, 2])
    sets = answer_sets(SIZES, graph, asked, np.array([0.3, 0.5, 0.4]), np.array([True, True, False]), 49)
    assert [(each.asked, each.size, each.level) for each in sets] == [(graph.entities[0], 1, 0.5)]
    assert answer_sets((), graph, asked, np.ones(3), np.ones(3, bool), 49) == ()
