from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, graph_of, id_graph, id_triples

from fewlink.base.errors import UnknownName
from fewlink.graph import Graph, neighbour_table

STAR = [(0, i % 2, 1 + i) for i in range(20)]  # entity 0 has twenty edges


def rows(graph: Graph, **options: object) -> list[list[tuple[int, int]]]:
    table = neighbour_table(graph, **options)  # type: ignore[arg-type]
    return [table.of(entity) for entity in range(len(graph.entities))]


def literal_edges(triples: list[tuple[int, int, int]], entity: int, relations: int) -> list[tuple[int, int]]:
    """Edges of an entity in file order, a triple before its own inverse."""
    found = []
    for head, relation, tail in triples:
        found += [(relation, tail)] if head == entity else []
        found += [(relation + relations, head)] if tail == entity else []
    return found


def test_few_edges_are_all_there() -> None:
    table = neighbour_table(graph_of("a r b", "c r a"), most=3)
    assert (table.offsets.tolist(), table.most) == ([0, 2, 3, 4], 3)
    assert table.relations.tolist() == [0, 1, 1, 0]
    assert table.entities.tolist() == [1, 2, 0, 0]


def test_the_first_rule_keeps_the_order_of_the_file() -> None:
    graph = graph_of("a z d", "b y a", "a y c", "a z b")
    assert rows(graph, most=3, rule="first")[0] == [(0, 1), (3, 2), (1, 3)]


@given(id_triples, st.integers(1, 5))
def test_the_first_rule_is_a_literal_walk_through_the_file(triples: list[tuple[int, int, int]], most: int) -> None:
    expected = [literal_edges(triples, e, RELATIONS)[:most] for e in range(ENTITIES)]
    assert rows(id_graph(triples), most=most, rule="first") == expected


@given(id_triples, st.integers(1, 5), st.integers(0, 9))
def test_a_draw_holds_distinct_edges_and_every_smaller_draw(
    triples: list[tuple[int, int, int]], most: int, seed: int
) -> None:
    graph = id_graph(triples)
    drawn, smaller = rows(graph, most=most, seed=seed), rows(graph, most=most - 1, seed=seed)
    for entity in range(ENTITIES):
        edges = literal_edges(triples, entity, RELATIONS)
        assert set(smaller[entity]) <= set(drawn[entity]) <= set(edges)
        assert drawn[entity] == sorted(set(drawn[entity]))
        assert len(drawn[entity]) == min(most, len(edges))


@given(id_triples, st.data())
def test_a_draw_depends_on_the_seed_and_not_on_the_file_order(
    triples: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(triples))
    assert rows(id_graph(triples), most=2, seed=4) == rows(id_graph(shuffled), most=2, seed=4)


def test_another_seed_is_another_draw() -> None:
    graph = id_graph(STAR, entities=21)
    draws = {tuple(rows(graph, most=5, seed=s)[0]) for s in range(10)}
    assert len(draws) == 10


def test_edges_elsewhere_do_not_change_a_draw() -> None:
    before = rows(id_graph(STAR, entities=30, relations=2), most=5)[0]
    after = rows(id_graph([(22, 0, 23), (24, 1, 1), *STAR, (25, 1, 26)], entities=30, relations=2), most=5)[0]
    assert before == after


def test_a_new_relation_elsewhere_does_not_change_a_draw() -> None:
    turned = [(t, r, h) for h, r, t in STAR]  # all edges of entity 0 are inverse ones
    before = rows(id_graph(turned, entities=30, relations=2), most=5)[0]
    after = rows(id_graph([*turned, (22, 2, 23)], entities=30, relations=3), most=5)[0]
    assert [e for _, e in before] == [e for _, e in after]


def test_every_edge_is_drawn_about_equally_often() -> None:
    graph = id_graph(STAR, entities=21)
    drawn = np.zeros(21)
    for seed in range(400):
        for _, entity in rows(graph, most=5, seed=seed)[0]:
            drawn[entity] += 1
    assert drawn.sum() == 2000
    assert (abs(drawn[1:] - 100) < 45).all()  # 5 standard deviations of a binomial with n = 400, p = 1/4


def test_an_unknown_rule_names_the_choices() -> None:
    with pytest.raises(UnknownName, match=r"unknown neighbour rule 'fist'; did you mean 'first'?"):
        neighbour_table(graph_of("a r b"), rule="fist")
