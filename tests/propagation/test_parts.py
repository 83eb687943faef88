"""The part of a graph around some entities: true edges with their constants in the whole graph, and not too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, id_graph, id_triples

from fewlink.graph import Graph
from fewlink.propagation.edges import SHARE, EdgeTable, GraphPart, graph_part

Edge = tuple[int, int, int]


def edges_in(part: GraphPart) -> dict[Edge, tuple[float, float]]:
    """The edges of a part by the ids of the whole graph, with their constants."""
    order, nodes = part.edges.by_tail, part.nodes
    columns = (order.first, order.second, order.row, order.fan_out, order.fan_in)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    found = {(int(nodes[h]), r, int(nodes[t])): (out, into) for h, r, t, out, into in rows}
    assert len(found) == len(rows)  # each once
    return found


def whole(graph: Graph) -> GraphPart:
    return GraphPart(np.arange(len(graph.entities)), EdgeTable.of(graph))


def random_graph(seed: int, entities: int = 60, triples: int = 150) -> Graph:
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, [entities, 3, entities], (triples, 3)).tolist()
    return id_graph([tuple(row) for row in rows], entities, 3)


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=4), st.integers(1, 200))
def test_edges_are_those_of_the_graph_with_their_inverses(triples: list[Edge], sources: list[int], most: int) -> None:
    graph = id_graph(triples)
    part = graph_part(graph, np.array(sources), most)
    found, every = edges_in(part), edges_in(whole(graph))
    assert set(sources) <= set(part.nodes.tolist()) and (np.diff(part.nodes) > 0).all()
    for (head, relation, tail), constants in found.items():
        assert every[head, relation, tail] == constants
        assert (tail, (relation + RELATIONS) % (2 * RELATIONS), head) in found
    assert len(found) <= 2 * most


@given(id_triples, st.integers(0, ENTITIES - 1))
def test_with_enough_edges_all_within_four_hops_is_there(triples: list[Edge], source: int) -> None:
    graph = id_graph(triples)
    found = set(edges_in(graph_part(graph, np.array([source]), 100_000)))
    near = {source}
    for _ in range(4):
        expanded = set(near)
        near |= {t for h, _, t in edges_in(whole(graph)) if h in near}
    assert {edge for edge in edges_in(whole(graph)) if edge[0] in expanded} <= found


@given(id_triples, st.integers(0, ENTITIES - 1), st.sets(st.integers(0, RELATIONS - 1)), st.integers(1, 100))
def test_relations_that_are_not_visible_give_no_edges_and_no_walks(
    triples: list[Edge], source: int, hidden: set[int], most: int
) -> None:
    visible = np.array([relation not in hidden for relation in range(RELATIONS)] * 2)
    graph, rest = id_graph(triples), id_graph([edge for edge in triples if edge[1] not in hidden])
    every = {(h, r, t) for h, r, t in edges_in(whole(graph)) if visible[r]}
    assert set(edges_in(graph_part(graph, np.array([source]), most, visible))) <= every
    large = [graph_part(graph, np.array([source]), 100_000, visible), graph_part(rest, np.array([source]), 100_000)]
    assert set(edges_in(large[0])) == set(edges_in(large[1]))
    assert large[0].nodes.tolist() == large[1].nodes.tolist()


@pytest.mark.parametrize("most", [8, 40, 120])
def test_a_part_grows_with_what_it_may_take(most: int) -> None:
    graph = random_graph(0)
    sizes = [len(edges_in(graph_part(graph, np.array([1, 2]), count))) for count in (most, 2 * most, 10_000)]
    assert sizes[0] <= 2 * most and sizes[0] <= sizes[1] <= sizes[2]


def test_entities_with_too_many_edges_are_not_expanded() -> None:
    hub = [(h, 0, 0) for h in range(1, 60)]
    graph = id_graph([*hub, (1, 1, 2), (2, 1, 3)], 60, 2)
    most = 40
    assert graph.degrees[0] > SHARE * most
    found = edges_in(graph_part(graph, np.array([1]), most))
    assert (1, 0, 0) in found and (1, 1, 2) in found and (30, 0, 0) not in found


def test_places_of_entities() -> None:
    graph = id_graph([(2, 0, 4), (4, 0, 7), (5, 0, 6)], 8, 1)
    part = graph_part(graph, np.array([2, 2]), 100)
    assert part.nodes.tolist() == [2, 4, 7]
    assert part.places(np.array([7, 0, 2, 5, 4])).tolist() == [2, -1, 0, -1, 1]


def test_a_source_without_edges_is_there() -> None:
    part = graph_part(id_graph([(1, 0, 2)], 4, 1), np.array([0, 3]), 10)
    assert part.nodes.tolist() == [0, 3] and part.edges.edges == 0


def test_a_source_with_too_many_edges_gives_those_of_its_rarer_relations() -> None:
    hub = [(0, 0, n) for n in range(2, 60)]
    graph = id_graph([(0, 1, 1), (1, 0, 60), *hub], 61, 2)
    part = graph_part(graph, np.array([0]), 40)
    assert {0, 1, 60} <= set(part.nodes.tolist()) and len(part.nodes) <= 13
    assert part.edges.edges <= 80


def test_a_source_with_too_many_edges_gives_none_of_a_hidden_relation() -> None:
    hub = [(0, 0, n) for n in range(3, 60)]
    graph = id_graph([(0, 1, 1), (0, 2, 2), *hub], 60, 3)
    visible = np.array([True, False, True] * 2)
    nodes = graph_part(graph, np.array([0]), 40, visible).nodes.tolist()
    assert 2 in nodes and 1 not in nodes and 1 < len(nodes) <= 13


def test_a_hub_that_would_still_fit_is_not_expanded() -> None:
    """A quarter of the edges is the most that one entity may take."""
    hub = [(0, 0, n) for n in range(3, 18)]  # 16 edges with the one below, more than a quarter of 60
    graph = id_graph([(1, 1, 0), (1, 1, 2), *hub], 18, 2)
    assert graph_part(graph, np.array([1]), 60).nodes.tolist() == [0, 1, 2]
    assert len(graph_part(graph, np.array([1]), 100).nodes) == 18
