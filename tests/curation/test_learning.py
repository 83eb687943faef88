"""Decisions teach: what resembles a rejected pair scores lower, and nothing changes without one."""

from __future__ import annotations

import numpy as np
import pytest

from fewlink.curation.learning import (
    ANSWERED_LOGIT,
    TRAIL_SCALE,
    LearningScorer,
    Units,
    covariance,
    informative,
    learn,
    likeness,
    profiles,
    spread_over_tails,
    suggest,
    units_of,
)
from fewlink.graph import Graph, Vocabulary
from fewlink.models.contract import Capabilities, Question

UNITS = Units(4.0, 12.0)
NAMES = ("ann", "bob", "cy", "rome", "oslo", "dog", "cat", "odd")
RELATIONS = ("lives", "born", "owns")


@pytest.fixture
def graph() -> Graph:
    """People live in cities and own pets; `odd` has no edge."""
    triples = [(0, 0, 3), (1, 0, 4), (2, 0, 4), (0, 1, 4), (1, 1, 3), (0, 2, 5), (1, 2, 6)]
    return Graph.of(Vocabulary.of(NAMES), Vocabulary.of(RELATIONS), np.array(triples, np.int32))


class ByTail:
    """Scores tails by their number, whatever the head."""

    name = "by tail"
    capabilities = Capabilities(scores_are_logits=True)

    def __call__(self, question: Question) -> np.ndarray:
        return np.repeat(question.candidates[None].astype(np.float32), len(question.heads), 0)


def question(*heads: int) -> Question:
    everyone = np.arange(len(NAMES), dtype=np.int32)
    return Question("", np.array([[0, 3]], np.int32), np.array(heads, np.int32), everyone)


def test_entities_are_alike_by_relations_and_neighbours_and_rare_ones_count_more(graph: Graph) -> None:
    relations, neighbours = (each.cosines(np.arange(8), np.arange(8)) for each in profiles(graph))
    rare = {r: np.log1p(8 / n) for r, n in {"lives": 3, "born": 2, "owns": 2}.items()}
    person = np.array([rare["lives"], rare["born"], rare["owns"]])  # ann, bob
    assert relations[0, 1] == pytest.approx(1, abs=1e-6)
    assert relations[0, 2] == pytest.approx(rare["lives"] / np.linalg.norm(person), abs=1e-6)  # cy only lives somewhere
    assert relations[3, 5] == relations[7].max() == 0
    assert neighbours[1, 2] == pytest.approx(1, abs=1e-6)  # both live in oslo; no other neighbour is shared by anyone
    assert neighbours[0, 1] == 0
    both = likeness(graph, np.arange(8), np.arange(8))
    assert both == pytest.approx((relations + neighbours) / 2)
    assert np.allclose(both, both.T)


def test_covariance_of_a_pair_with_itself_and_with_others(graph: Graph) -> None:
    pairs = np.array([[0, 3], [1, 3], [0, 5], [1, 6], [7, 7]])
    table = covariance(graph, pairs, pairs)
    like = likeness(graph, pairs.ravel(), pairs.ravel())  # heads at even places, tails at odd ones
    for i, j in np.ndindex(5, 5):
        heads, tails = like[2 * i, 2 * j], like[2 * i + 1, 2 * j + 1]
        same = pairs[i, 0] == pairs[j, 0]
        assert table[i, j] == pytest.approx(1 + same + heads / 4 + 4 * heads * tails, abs=1e-5)
    assert np.linalg.eigvalsh(table).min() > -1e-6


def test_a_rejected_pair_lowers_what_resembles_it(graph: Graph) -> None:
    learned = learn(graph, np.array([[0, 3]]), np.array([[1, 5]]))
    pet, city, nothing = learned.logits(np.array([[2, 6], [2, 4], [7, 7]]))
    assert pet < nothing < city
    assert learned.logits(np.array([[1, 6]]))[0] < pet  # the head was rejected itself


def test_logits_of_a_table_are_those_of_its_pairs(graph: Graph) -> None:
    learned = learn(graph, np.array([[0, 3], [1, 4]]), np.array([[1, 5], [2, 6]]))
    heads, tails = np.array([2, 0, 7]), np.arange(8)
    pairs = np.stack(np.meshgrid(heads, tails, indexing="ij"), -1).reshape(-1, 2)
    assert learned.table(heads, tails).ravel() == pytest.approx(learned.logits(pairs), abs=1e-5)


def test_the_mode_of_the_posterior_is_found(graph: Graph) -> None:
    """At the mode, each decision adds what its probability lacks."""
    learned = learn(graph, np.array([[0, 3]]), np.array([[1, 5], [0, 4]]))
    prior = np.array([1.0, 0.0, ANSWERED_LOGIT])
    shift = covariance(graph, learned.pairs, learned.pairs) @ learned.weights
    probable = 1 / (1 + np.exp(-(prior + shift)))
    assert learned.weights == pytest.approx(np.array([1, 0, 0]) - probable, abs=1e-4)


def test_a_head_with_a_true_tail_needs_another_one_less(graph: Graph) -> None:
    learned = learn(graph, np.array([[0, 3]]), np.zeros((0, 2)))
    without = covariance(graph, np.array([[0, 4]]), learned.pairs) @ learned.weights
    assert learned.logits(np.array([[0, 4]])) == pytest.approx(without + ANSWERED_LOGIT)


def test_scores_are_corrected_in_units_of_the_scorer(graph: Graph) -> None:
    accepted, rejected = np.array([[0, 3]], np.int32), np.array([[1, 5]], np.int32)
    scorer = LearningScorer(ByTail(), graph, accepted, rejected)
    shift = scorer(question(0, 2)) - ByTail()(question(0, 2))
    learned = learn(graph, accepted, rejected).table(np.array([0, 2]), np.arange(8))
    assert shift == pytest.approx(TRAIL_SCALE * learned, abs=1e-4)


def test_a_scorer_without_a_known_unit_is_measured_by_its_spread(graph: Graph) -> None:
    class Wide(ByTail):
        capabilities = Capabilities()

        def __call__(self, question: Question) -> np.ndarray:
            return 1000 * super().__call__(question)

    class Narrow(Wide):
        def __call__(self, question: Question) -> np.ndarray:
            return super().__call__(question) / 1000

    pairs = np.array([[0, 3]], np.int32), np.array([[1, 5]], np.int32)
    wide, narrow = (LearningScorer(scorer, graph, *pairs)(question(0, 2)) for scorer in (Wide(), Narrow()))
    assert wide == pytest.approx(1000 * narrow, rel=1e-4)


def test_units_do_not_depend_on_the_heads_that_are_asked_about(graph: Graph) -> None:
    class ByHead(ByTail):
        capabilities = Capabilities()

        def __call__(self, question: Question) -> np.ndarray:
            return super().__call__(question) * (1 + question.heads[:, None])

    pairs = np.array([[0, 3]], np.int32), np.array([[1, 5]], np.int32)
    for first in (0, 1, 6):
        scorer = LearningScorer(ByHead(), graph, *pairs)
        scorer(question(first))
        assert scorer(question(2)) == pytest.approx(LearningScorer(ByHead(), graph, *pairs)(question(2)))


def test_the_next_pair_is_unsure_and_tells_about_others(graph: Graph) -> None:
    learned = learn(graph, np.array([[0, 3]]), np.zeros((0, 2)))
    pairs = np.array([[1, 3], [1, 4], [7, 7], [2, 4]])
    values = informative(learned, pairs, np.full(4, 12.0), UNITS)
    assert values.argmin() == 2  # resembles no other pair
    sure = informative(learned, pairs, np.array([60.0, 12.0, 12.0, 12.0]), UNITS)
    assert sure[0] < 1e-3 < sure[1]


def test_what_a_pair_tells_by_hand(graph: Graph) -> None:
    learned = learn(graph, np.array([[0, 3]]), np.array([[1, 5]]))
    pairs, scores = np.array([[1, 3], [1, 4], [2, 4]]), np.array([12.0, 14.0, 9.0])
    probable = 1 / (1 + np.exp(-((scores - 12) / 4 + learned.logits(pairs))))
    unsure, left = probable * (1 - probable), learned.spread(pairs)
    for i, value in enumerate(informative(learned, pairs, scores, UNITS)):
        influence = sum(unsure[j] * left[i, j] ** 2 for j in range(3)) / (1 + unsure[i] * left[i, i])
        assert value == pytest.approx(unsure[i] * influence)


def test_suggestions_are_ordered_by_corrected_score_or_by_what_they_teach(graph: Graph) -> None:
    pairs, scores = np.array([[1, 3], [2, 6], [2, 4]]), np.array([9.0, 12.0, 11.0])
    order, corrected = suggest(None, pairs, scores, UNITS)
    assert order.tolist() == [1, 2, 0]
    assert corrected is scores
    learned = learn(graph, np.array([[0, 3]]), np.array([[1, 5]]))
    order, corrected = suggest(learned, pairs, scores, UNITS)
    assert corrected == pytest.approx(scores + 4 * learned.logits(pairs))
    assert order.tolist() == np.argsort(-corrected).tolist()
    values = informative(learned, pairs, scores, UNITS)
    spread = spread_over_tails(values, pairs[:, 1], learned.pairs[:, 1])
    assert suggest(learned, pairs, scores, UNITS, teach=True)[0].tolist() == spread.tolist()


def test_informative_pairs_are_spread_over_tails() -> None:
    values, tails = np.array([9.0, 8.0, 7.0, 5.0, 1.0]), np.array([3, 3, 3, 4, 5])
    assert spread_over_tails(values, tails, np.zeros(0, int)).tolist() == [0, 3, 1, 2, 4]  # 9, 5, 8 / 2, 7 / 3, 1
    assert spread_over_tails(values, tails, np.array([3, 3])).tolist() == [3, 0, 1, 2, 4]  # 5, 9 / 3, 8 / 4, 7 / 5, 1
    assert spread_over_tails(values[:0], tails[:0], tails).tolist() == []


def test_units_are_estimated_from_the_best_scores() -> None:
    scores = [np.array([1.0, 5.0, 3.0]), np.array([9.0, 9.0]), np.array([7.0]), np.zeros(0)]
    assert units_of(ByTail(), scores) == (TRAIL_SCALE, 7.0)
