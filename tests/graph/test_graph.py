from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, graph_of, id_graph, id_triples, named

from fewlink.base import storage
from fewlink.base.errors import InputError
from fewlink.graph import Graph, Vocabulary
from fewlink.graph.csr import offsets_of, spans
from fewlink.graph.graph import EDGE_ARRAYS


def edges(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    return {
        e: list(zip(graph.relation_ids[a:b].tolist(), graph.tail_ids[a:b].tolist(), strict=True))
        for e, (a, b) in enumerate(itertools.pairwise(graph.offsets.tolist()))
    }


def test_two_triples_make_four_edges() -> None:
    graph = graph_of("a likes b", "b knows a")
    assert graph.offsets.tolist() == [0, 2, 4]
    assert edges(graph) == {0: [(0, 1), (3, 1)], 1: [(1, 0), (2, 0)]}
    assert graph.head_ids.tolist() == [0, 0, 1, 1]
    assert graph.degrees.tolist() == [2, 2]
    assert graph.positions.tolist() == [0, 1, 1, 0]
    assert graph.triple_count == 2


def test_a_self_loop_is_an_edge_both_ways() -> None:
    assert edges(graph_of("a likes a")) == {0: [(0, 0), (1, 0)]}


def test_repeated_triples_are_kept_once_where_they_came_first() -> None:
    graph = id_graph([(0, 1, 2), (1, 0, 1), (0, 1, 2), (0, 0, 0), (1, 0, 1)])
    assert graph.triples().tolist() == [[0, 1, 2], [1, 0, 1], [0, 0, 0]]


def test_a_graph_without_triples_has_entities_without_edges() -> None:
    graph = id_graph([], entities=3)
    assert graph.degrees.tolist() == [0, 0, 0]
    assert graph.triples().shape == (0, 3)
    assert graph.find_edges(np.array([0, 1]), np.array([0, 5]), np.array([2, 1])).tolist() == [-1, -1]


def test_spans_lists_every_position_with_its_owner() -> None:
    at, owners = spans(np.array([5, 2, 9]), np.array([7, 2, 10]))
    assert at.tolist() == [5, 6, 9]
    assert owners.tolist() == [0, 0, 2]
    assert offsets_of(np.array([0, 0, 2]), 4).tolist() == [0, 2, 2, 3, 3]


@given(id_triples)
def test_edges_are_those_of_a_dictionary_of_sorted_lists(triples: list[tuple[int, int, int]]) -> None:
    literal: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for head, relation, tail in triples:
        literal[head].append((relation, tail))
        literal[tail].append((relation + RELATIONS, head))
    graph = id_graph(triples)
    assert edges(graph) == {e: sorted(literal[e]) for e in range(ENTITIES)}
    assert graph.triples().tolist() == [list(t) for t in triples]
    assert [array.dtype for array in (graph.offsets, graph.relation_ids, graph.tail_ids)] == ["int64", "int32", "int32"]


@given(id_triples)
def test_every_position_says_which_triple_an_edge_comes_from(triples: list[tuple[int, int, int]]) -> None:
    graph = id_graph(triples)
    rows = zip(graph.head_ids, graph.relation_ids, graph.tail_ids, graph.positions, strict=True)
    for head, relation, tail, place in rows:
        forward = (head, relation, tail) if relation < RELATIONS else (tail, relation - RELATIONS, head)
        assert triples[place] == forward


@given(id_triples)
def test_find_edges_is_membership(triples: list[tuple[int, int, int]]) -> None:
    graph = id_graph(triples)
    every = np.array(list(itertools.product(range(ENTITIES), range(2 * RELATIONS), range(ENTITIES))))
    there = {*triples, *((t, r + RELATIONS, h) for h, r, t in triples)}
    found = graph.find_edges(*every.T)
    assert [tuple(e) in there for e in every.tolist()] == (found >= 0).tolist()
    at = found[found >= 0]
    assert np.stack([graph.head_ids[at], graph.relation_ids[at], graph.tail_ids[at]], 1).tolist() == [
        list(e) for e in every.tolist() if tuple(e) in there
    ]


@given(id_triples)
def test_slots_are_the_entities_of_each_relation(triples: list[tuple[int, int, int]]) -> None:
    slots = id_graph(triples).slots
    for relation in range(RELATIONS):
        assert slots[relation].tolist() == sorted({h for h, r, _ in triples if r == relation})
        assert slots[relation + RELATIONS].tolist() == sorted({t for _, r, t in triples if r == relation})


def test_find_edges_broadcasts() -> None:
    graph = graph_of("a r b", "a r c", "b r c")
    assert (graph.find_edges(0, 0, np.arange(3)) >= 0).tolist() == [False, True, True]
    assert (graph.find_edges(np.arange(3)[:, None], 0, np.arange(3)) >= 0).sum() == 3


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1)))
def test_edges_of_some_entities_are_their_edges_in_turn(triples: list[tuple[int, int, int]], some: list[int]) -> None:
    graph = id_graph(triples)
    at, owners = graph.edges_of(np.array(some, int))
    got = list(zip(owners.tolist(), graph.relation_ids[at].tolist(), graph.tail_ids[at].tolist(), strict=True))
    assert got == [(i, *edge) for i, e in enumerate(some) for edge in edges(graph)[e]]


@given(id_triples)
def test_a_saved_graph_opens_the_same(triples: list[tuple[int, int, int]]) -> None:
    graph = id_graph(triples)
    with tempfile.TemporaryDirectory() as place:
        opened = Graph.open(graph.save(Path(place) / "g"))
        assert opened.entities == graph.entities
        assert opened.relations == graph.relations
        assert all(np.array_equal(getattr(opened, a), getattr(graph, a)) for a in EDGE_ARRAYS)
        assert opened.fingerprint == graph.fingerprint == id_graph(triples).fingerprint
        del opened.__dict__["fingerprint"]  # the stored one is the one computed
        assert opened.fingerprint == graph.fingerprint


def test_an_opened_graph_is_mapped_and_not_read(tmp_path: Path) -> None:
    graph = Graph.open(graph_of("a r b").save(tmp_path / "g"))
    for array in (graph.tail_ids, graph.offsets, graph.entities.text, graph.entities.sums):
        assert isinstance(array, np.memmap)


def test_different_graphs_have_different_fingerprints() -> None:
    graphs = [
        graph_of("a r b", "b r c"),
        graph_of("a r b", "b r d"),
        graph_of("a q b", "b q c"),
        graph_of("a r b", "c r b"),
        graph_of("ab r c", "c r d"),
        graph_of("a r bc", "bc r d"),
    ]
    assert len({g.fingerprint for g in graphs}) == len(graphs)


def test_the_fingerprint_never_changes_between_versions() -> None:
    assert graph_of("a likes b", "b knows c").fingerprint.startswith("040c5cd383c86b33")


@pytest.mark.parametrize("array", ["tail_ids", "entities.text", "relations.order"])
def test_a_damaged_graph_is_refused(tmp_path: Path, array: str) -> None:
    file = graph_of("a r b").save(tmp_path / "g") / f"{array}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{array}.npy: was changed or damaged"):
        Graph.open(tmp_path / "g")
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match=f"{array}.npy: was changed or damaged"):
        Graph.open(tmp_path / "g", verify=False)
    file.unlink()
    with pytest.raises(InputError, match=f"{array}.npy: is missing"):
        Graph.open(tmp_path / "g", verify=False)


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with storage.new_folder(tmp_path / "g", "fewlink-graph/0", {}):
        pass
    with pytest.raises(InputError, match="has format 'fewlink-graph/0', this version of fewlink reads"):
        Graph.open(tmp_path / "g")


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Vocabulary, "save", disk_full)
    with pytest.raises(RuntimeError):
        graph_of("a r b").save(tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_names_are_shown_as_people_write_them() -> None:
    graph = graph_of("concept:city:new_york lives_in concept:x")
    assert [graph.name(0), graph.name(1)] == ["new york", "x"]
    assert [graph.relation_name(0), graph.relation_name(1)] == ["lives in", "lives in⁻¹"]


def test_triples_of_an_opened_graph_make_the_same_graph(tmp_path: Path) -> None:
    graph = graph_of("b r a", "a q b", "c r a")
    opened = Graph.open(graph.save(tmp_path / "g"))
    again = Graph.of(opened.entities, opened.relations, opened.triples())
    assert named(again) == named(graph)
    assert again.fingerprint == graph.fingerprint
