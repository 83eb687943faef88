"""Answer sets: sizes by hand, coverage of relations that were not seen, and sentences."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import graph_of

from calibration import Ranks, fit_coverage
from fewlink.linker.probability import LONGEST, Coverage, answer_set, answer_sets

# the odds that the first s answers contain a right one: s times those of the first answer
PLAIN = Coverage((0.0, 1.0, 1.0, 0.0))


def sample(relations: int, seed: int) -> Ranks:
    """Relations of different difficulty: the rank is 1 with the probability of the first answer, else anything."""
    random = np.random.default_rng(seed)
    first = np.repeat(random.uniform(0.05, 0.95, relations), 20)
    best = np.where(random.random(len(first)) < first, 1, np.ceil(1000 ** random.random(len(first))))
    return Ranks(first, best, np.repeat(np.arange(relations), 20))


def test_sizes_by_hand() -> None:
    first = np.array([0.95, 0.52, 0.42, 0.11])
    np.testing.assert_allclose(PLAIN.probabilities(np.array([0.5]))[0, :3], [1 / 2, 2 / 3, 3 / 4])
    assert PLAIN.sizes(first, 0.5).tolist() == [1, 1, 2, 9]
    assert PLAIN.sizes(first, 0.8).tolist() == [1, 4, 6, 0]  # the last would take 33


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_new_relations_are_covered_as_often_as_promised(level: float) -> None:
    fitted, new = fit_coverage(sample(100, 0)), sample(200, 1)
    sizes = fitted.sizes(new.first, level)
    given = sizes > 0
    assert given.mean() > 0.1 and sizes.max() <= LONGEST
    assert (new.best <= sizes)[given].mean() > level - 0.01
    assert (np.diff(sizes[given][np.argsort(new.first[given])]) <= 0).all()


def test_the_sentence_names_the_highest_level_that_is_listed() -> None:
    near = answer_set(PLAIN, ("a", "A"), 0.52, 49, 10)
    assert near is not None and near.sentence == "one of the first 9 tails is right in 9 of 10 such questions"
    assert (near.size, near.level, near.unlikely) == (9, 0.9, False)
    far = answer_set(PLAIN, ("a", "A"), 0.52, 49, 5, "head")
    assert far is not None and (far.size, far.level) == (4, 0.8)
    expected = "one of the first 4 heads is right in 8 of 10 such questions; for 9 of 10 it takes the first 9"
    assert far.sentence == expected
    sure = answer_set(PLAIN, ("a", "A"), 0.99, 100, 10)
    assert sure is not None and sure.sentence == "the first tail is right in 9 of 10 such questions"
    long = answer_set(PLAIN, ("a", "A"), 0.42, 100, 2)
    assert long is not None and (long.size, long.level) == (2, 0.5)


def test_nothing_is_promised_that_takes_too_many_answers() -> None:
    assert answer_set(PLAIN, ("a", "A"), 0.01, 1000, 1000) is None
    few = answer_set(PLAIN, ("a", "A"), 0.52, 5, 5)
    assert few is not None and (few.size, few.level) == (4, 0.8) and "9 of 10" not in few.sentence


def test_the_first_answer_is_probably_wrong() -> None:
    found = answer_set(PLAIN, ("a", "A"), 0.11, 10, 10)
    assert found is not None and found.unlikely
    expected = "the first tail is probably wrong: one of the first 9 tails is right in half of such questions"
    assert found.sentence == expected


def test_the_sets_of_several_entities() -> None:
    graph = graph_of("a r b", "c r d")
    asked = np.array([0, 0, 1, 2])
    new = np.array([True, True, True, False])
    sets = answer_sets(PLAIN, graph, asked, np.array([0.3, 0.5, 0.01, 0.4]), new, 49)
    assert [(each.asked, each.size, each.level) for each in sets] == [(graph.entities[0], 1, 0.5)]
    assert answer_sets(None, graph, asked, np.ones(4), np.ones(4, bool), 49) == ()
