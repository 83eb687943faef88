"""Properties of every learning-free scorer, and the scores of random and popularity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, graph_of, id_graph, id_triples

from fewlink.core.errors import UnknownName
from fewlink.models.baselines import LEARNING_FREE, learning_free
from fewlink.models.contract import Question, best_tails

GRAPH = graph_of("a r b", "a r c", "b q c", "d r b", "e q e")
entities = st.integers(0, ENTITIES - 1)
references = st.lists(st.tuples(entities, entities), min_size=1, max_size=3)


def question(references: list[tuple[int, int]], heads: object, candidates: object, relation: str = "t") -> Question:
    return Question(relation, np.array(references, np.int32), np.array(heads, np.int32), np.array(candidates, np.int32))


def test_popularity_is_the_logarithm_of_the_degree() -> None:
    scores = learning_free("popularity", GRAPH)(question([(0, 1)], [0, 3], [0, 1, 4]))
    assert scores.shape == (2, 3)
    np.testing.assert_allclose(scores, [[math.log(3), math.log(4), math.log(3)]] * 2)


def test_random_scores_differ_by_seed_relation_head_and_candidate() -> None:
    scores = [
        float(learning_free("random", GRAPH, seed)(question([(0, 1)], [head], [tail], relation))[0, 0])
        for seed in (0, 1)
        for relation in ("t", "u")
        for head in (0, 1)
        for tail in (2, 3)
    ]
    assert len(set(scores)) == 16
    assert all(0 <= s < 1 for s in scores)


def test_random_scores_are_spread_evenly() -> None:
    scores = learning_free("random", GRAPH)(question([(0, 1)], np.arange(100), np.arange(100)))
    counts = np.histogram(scores, bins=10, range=(0, 1))[0]
    assert (abs(counts - 1000) < 150).all()
    assert abs(np.corrcoef(scores[0], scores[1])[0, 1]) < 0.4


@pytest.mark.parametrize("name", LEARNING_FREE)
@given(id_triples, references, st.lists(entities, min_size=1, unique=True), st.data())
def test_a_score_does_not_depend_on_the_rest_of_the_question(
    name: str, triples: list[tuple[int, int, int]], known: list[tuple[int, int]], heads: list[int], data: st.DataObject
) -> None:
    scorer = learning_free(name, id_graph(triples), seed=3)
    order = data.draw(st.permutations(range(ENTITIES)))
    together = np.asarray(scorer(question(known, heads, range(ENTITIES))))
    assert together.shape == (len(heads), ENTITIES)
    assert np.isfinite(together).all()
    assert np.array_equal(np.asarray(scorer(question(known, heads, order))), together[:, order])
    for row, head in enumerate(heads):
        assert np.array_equal(np.asarray(scorer(question(known, [head], order[:2])))[0], together[row, order[:2]])


@pytest.mark.parametrize("name", LEARNING_FREE)
def test_entities_without_edges_have_finite_scores(name: str) -> None:
    scorer = learning_free(name, id_graph([(0, 0, 1)], entities=4))
    assert np.isfinite(np.asarray(scorer(question([(2, 3)], [2, 3], [2, 3])))).all()


def test_best_tails_are_sorted_by_score_with_ties_in_candidate_order() -> None:
    scorer = learning_free("popularity", GRAPH)
    best = best_tails(scorer, question([(0, 1)], [0, 1], [4, 3, 0, 1]), 3)
    assert [[tail for tail, _ in row] for row in best] == [[1, 4, 0]] * 2
    assert best[0][0][1] == pytest.approx(math.log(4))


def test_an_unknown_scorer_names_the_choices() -> None:
    with pytest.raises(UnknownName, match="'rules'"):
        learning_free("rule", GRAPH)
