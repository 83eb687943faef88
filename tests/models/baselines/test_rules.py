"""The rules scorer against an enumeration of all walks."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, graph_of, id_graph, id_triples

from fewlink.models.baselines import ANY_EDGE, ANY_PATH, DEGREE, SAME_TAIL, RulesScorer
from fewlink.models.contract import Question

entities = st.integers(0, ENTITIES - 1)
Walks = dict[tuple[int, ...], list[int]]


def scores(
    scorer: RulesScorer, references: list[tuple[int, int]], heads: list[int], candidates: list[int]
) -> np.ndarray:
    arrays = (np.array(a, np.int32) for a in (references, heads, candidates))
    return scorer(Question("t", *arrays))


def walks(triples: list[tuple[int, int, int]], head: int) -> Walks:
    """The ends of all walks of one and two hops from a head, by their relations."""
    steps = [*triples, *((t, r + RELATIONS, h) for h, r, t in triples)]
    ends: Walks = defaultdict(list)
    for start, first, middle in steps:
        if start == head:
            ends[first,].append(middle)
            for begin, second, end in steps:
                if begin == middle:
                    ends[first, second].append(end)
    return ends


def literal_score(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]], head: int, tail: int
) -> float:
    degree = sum((h == tail) + (t == tail) for h, _, t in triples)
    total = DEGREE * math.log(1 + degree) + SAME_TAIL * sum(t == tail for _, t in references) / len(references)
    for path, ends in walks(triples, head).items():
        joined = sum(t in walks(triples, h).get(path, ()) for h, t in references) / len(references)
        any_path = ANY_EDGE if len(path) == 1 else ANY_PATH
        total += (joined + any_path) * ends.count(tail) / len(ends)
    return total


def test_a_path_that_joins_the_reference_finds_the_answer() -> None:
    graph = graph_of("ann lives oslo", "oslo in norway", "bob lives rome", "rome in italy", "bob likes norway")
    ann, norway, bob, italy = graph.entities.ids(["ann", "norway", "bob", "italy"]).tolist()
    given_ann = scores(RulesScorer(graph), [(ann, norway)], [bob], [norway, italy])[0]
    degrees = DEGREE * np.log1p([2, 1])
    # bob → italy: the path (lives, in). bob → norway: an edge that joins no reference; norway is the reference's tail
    assert given_ann[1] == pytest.approx(1 + ANY_PATH + degrees[1])
    assert given_ann[0] == pytest.approx(ANY_EDGE + SAME_TAIL + degrees[0])


def test_the_worth_of_a_path_is_divided_by_its_ends() -> None:
    graph = graph_of("a r b", "x r y", "x r z", "x r w")
    row = scores(RulesScorer(graph), [(0, 1)], [2], [3, 4, 5])[0]
    assert row == pytest.approx([(1 + ANY_EDGE) / 3 + DEGREE * math.log(2)] * 3)


def test_paths_that_join_a_reference_are_learnt() -> None:
    graph = graph_of("a r b", "b q c", "a q c", "c r a")  # R = 2: r 0, q 1, r⁻¹ 2, q⁻¹ 3
    one, keys, weights = RulesScorer(graph)._learn(np.array([(0, 2)]))
    assert one.tolist() == [ANY_EDGE, 1 + ANY_EDGE, 1 + ANY_EDGE, ANY_EDGE]
    assert (keys.tolist(), weights.tolist()) == ([0 * 4 + 1], [1.0])


@given(
    id_triples,
    st.lists(st.tuples(entities, entities), min_size=1, max_size=3),
    st.lists(entities, min_size=1, max_size=3),
)
def test_scores_are_those_of_an_enumeration_of_walks(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]], heads: list[int]
) -> None:
    got = scores(RulesScorer(id_graph(triples)), references, heads, list(range(ENTITIES)))
    expected = [[literal_score(triples, references, h, t) for t in range(ENTITIES)] for h in heads]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@given(id_triples, st.lists(st.tuples(entities, entities), min_size=1, max_size=4))
def test_a_path_weighs_as_much_as_the_share_of_references_it_joins(
    triples: list[tuple[int, int, int]], references: list[tuple[int, int]]
) -> None:
    scorer = RulesScorer(id_graph(triples))
    one, keys, weights = scorer._learn(np.array(references))
    joined = Counter(path for head, tail in references for path, ends in walks(triples, head).items() if tail in ends)
    shares = {path: count / len(references) for path, count in joined.items()}
    learnt = {divmod(key, scorer.signed): weight for key, weight in zip(keys.tolist(), weights.tolist(), strict=True)}
    assert learnt == pytest.approx({path: share for path, share in shares.items() if len(path) == 2})
    assert one == pytest.approx([shares.get((relation,), 0) + ANY_EDGE for relation in range(scorer.signed)])
