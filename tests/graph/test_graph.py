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

from fewlink.core import files
from fewlink.core.errors import InputError, UnknownName
from fewlink.graph import Graph, neighbour_table
from fewlink.graph.graph import EDGE_ARRAYS
from fewlink.graph.groups import offsets_of, spans
from fewlink.graph.vocabulary import MAX_CHECKED_BYTES

LONG = "x" * (MAX_CHECKED_BYTES + 1)  # a name whose graph has a large file


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


def test_the_first_of_repeated_triples_is_kept() -> None:
    graph = id_graph([(0, 1, 2), (1, 0, 1), (0, 1, 2), (0, 0, 0), (1, 0, 1)])
    assert graph.triples().tolist() == [[0, 1, 2], [1, 0, 1], [0, 0, 0]]


def test_a_graph_without_triples_has_entities_without_edges() -> None:
    graph = id_graph([], entities=3)
    assert graph.degrees.tolist() == [0, 0, 0]
    assert graph.triples().shape == (0, 3)


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
def test_slots_are_the_entities_of_each_relation(triples: list[tuple[int, int, int]]) -> None:
    slots = id_graph(triples).slots
    for relation in range(RELATIONS):
        assert slots[relation].tolist() == sorted({h for h, r, _ in triples if r == relation})
        assert slots[relation + RELATIONS].tolist() == sorted({t for _, r, t in triples if r == relation})


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


def test_large_arrays_of_an_opened_graph_are_memory_mapped(tmp_path: Path) -> None:
    graph = Graph.open(graph_of(f"a r {LONG}", "b s a").save(tmp_path / "g"))
    graph.expect_questions()
    graph.check_files()
    assert isinstance(graph.entities.text, np.memmap) and not isinstance(graph.tail_ids, np.memmap)
    assert not graph.entities.text.flags.writeable and not graph.tail_ids.flags.writeable
    assert [name[:3] for name in graph.entities] == ["a", "xxx", "b"]


def test_a_graph_whose_file_was_cut_off_is_refused(tmp_path: Path) -> None:
    """To read the missing pages would end the process with SIGBUS."""
    folder = graph_of(f"a r {LONG}").save(tmp_path / "g")
    graph = Graph.open(folder)
    for name in ("relations.text", "entities.text"):
        graph.check_files()
        with (folder / f"{name}.npy").open("rb+") as file:
            file.truncate(100)
    with pytest.raises(InputError, match=r"entities.text.npy: was cut off"):
        graph.check_files()
    assert list(graph.relations) == ["r"]  # of a small file, nothing is missing


def test_a_graph_that_was_replaced_is_read_on(tmp_path: Path) -> None:
    graph = Graph.open(graph_of(f"a r {LONG}").save(tmp_path / "g"))
    graph_of("c r d").save(tmp_path / "g")
    graph.check_files()
    assert list(graph.entities) == ["a", LONG]


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
def test_a_damaged_graph_is_an_error(tmp_path: Path, array: str) -> None:
    file = graph_of("a r b").save(tmp_path / "g") / f"{array}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{array}.npy"):
        Graph.open(tmp_path / "g")
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match=f"{array}.npy"):
        Graph.open(tmp_path / "g")
    file.unlink()
    with pytest.raises(InputError, match=f"{array}.npy"):
        Graph.open(tmp_path / "g")


def test_a_folder_of_another_format_is_an_error(tmp_path: Path) -> None:
    with files.new_folder(tmp_path / "g", "fewlink-graph/0", {}):
        pass
    with pytest.raises(InputError, match="fewlink-graph/0"):
        Graph.open(tmp_path / "g")


def test_readable_names_have_no_prefix_and_no_underscores() -> None:
    graph = graph_of("concept:city:new_york lives_in concept:x")
    assert [graph.name(0), graph.name(1)] == ["new york", "x"]
    assert [graph.relation_name(0), graph.relation_name(1)] == ["lives in", "lives in⁻¹"]


def same(one: Graph, other: Graph) -> bool:
    arrays = all(np.array_equal(getattr(one, a), getattr(other, a)) for a in EDGE_ARRAYS)
    dtypes = all(getattr(one, a).dtype == getattr(other, a).dtype for a in EDGE_ARRAYS)
    return arrays and dtypes and one.fingerprint == other.fingerprint and named(one) == named(other)


@given(id_triples, st.sets(st.integers(0, RELATIONS - 1)))
def test_a_graph_without_some_relations_equals_one_made_from_the_other_triples(
    triples: list[tuple[int, int, int]], hidden: set[int]
) -> None:
    rest = id_graph(triples).without(np.array(sorted(hidden), int))
    assert same(rest, id_graph([t for t in triples if t[1] not in hidden]))
    entities, relations = np.flatnonzero(rest.degrees), np.array([r for r in range(RELATIONS) if r not in hidden], int)
    new_entity, new_relation = (dict(zip(ids.tolist(), range(len(ids)), strict=True)) for ids in (entities, relations))
    ids = [(new_entity[h], new_relation[r], new_entity[t]) for h, r, t in rest.triples().tolist()]
    renumbered = Graph.of(
        rest.entities.take(entities), rest.relations.take(relations), np.array(ids, int).reshape(-1, 3)
    )
    assert same(rest.renumbered(entities, relations), renumbered)


@given(id_triples, st.integers(0, RELATIONS))
def test_a_graph_with_new_relations_equals_one_made_from_all_triples(
    triples: list[tuple[int, int, int]], old: int
) -> None:
    triples = sorted(triples, key=lambda triple: triple[1] >= old)
    new = np.array([t for t in triples if t[1] >= old], int).reshape(-1, 3)
    graph = id_graph([t for t in triples if t[1] < old], relations=old)
    assert same(graph.with_relations([f"r{i}" for i in range(old, RELATIONS)], new), id_graph(triples))


# samples of neighbours

STAR = [(0, i % 2, 1 + i) for i in range(20)]  # entity 0 has twenty edges


def rows(graph: Graph, **options: object) -> list[list[tuple[int, int]]]:
    table = neighbour_table(graph, **options)  # type: ignore[arg-type]
    return [table.of(entity) for entity in range(len(graph.entities))]


def literal_edges(triples: list[tuple[int, int, int]], entity: int, relations: int) -> list[tuple[int, int]]:
    """Edges of an entity in file order, a triple before its own inverse."""
    edges = []
    for head, relation, tail in triples:
        edges += [(relation, tail)] if head == entity else []
        edges += [(relation + relations, head)] if tail == entity else []
    return edges


@given(id_triples, st.integers(1, 5))
def test_the_rule_first_equals_a_literal_walk_through_the_file(
    triples: list[tuple[int, int, int]], max_neighbours: int
) -> None:
    expected = [literal_edges(triples, e, RELATIONS)[:max_neighbours] for e in range(ENTITIES)]
    assert rows(id_graph(triples), max_neighbours=max_neighbours, rule="first") == expected


@given(id_triples, st.integers(1, 5), st.integers(0, 9))
def test_a_sample_has_distinct_edges_and_contains_every_smaller_sample(
    triples: list[tuple[int, int, int]], max_neighbours: int, seed: int
) -> None:
    graph = id_graph(triples)
    drawn = rows(graph, max_neighbours=max_neighbours, seed=seed)
    smaller = rows(graph, max_neighbours=max_neighbours - 1, seed=seed)
    for entity in range(ENTITIES):
        edges = literal_edges(triples, entity, RELATIONS)
        assert set(smaller[entity]) <= set(drawn[entity]) <= set(edges)
        assert drawn[entity] == sorted(set(drawn[entity]))
        assert len(drawn[entity]) == min(max_neighbours, len(edges))


@given(id_triples, st.data())
def test_a_sample_does_not_depend_on_the_file_order(triples: list[tuple[int, int, int]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(triples))
    assert rows(id_graph(triples), max_neighbours=2, seed=4) == rows(id_graph(shuffled), max_neighbours=2, seed=4)


def test_a_new_relation_elsewhere_does_not_change_a_sample() -> None:
    inverse = [(t, r, h) for h, r, t in STAR]  # all edges of entity 0 are inverse ones
    before = rows(id_graph(inverse, entities=30, relations=2), max_neighbours=5)[0]
    after = rows(id_graph([*inverse, (22, 2, 23)], entities=30, relations=3), max_neighbours=5)[0]
    assert [e for _, e in before] == [e for _, e in after]


def test_every_edge_is_sampled_about_equally_often() -> None:
    graph = id_graph(STAR, entities=21)
    drawn = np.zeros(21)
    for seed in range(400):
        for _, entity in rows(graph, max_neighbours=5, seed=seed)[0]:
            drawn[entity] += 1
    assert drawn.sum() == 2000
    assert (abs(drawn[1:] - 100) < 45).all()  # 5 standard deviations of a binomial with n = 400, p = 1/4


def test_an_unknown_rule_names_the_choices() -> None:
    with pytest.raises(UnknownName, match=r"fist.*first"):
        neighbour_table(graph_of("a r b"), rule="fist")
