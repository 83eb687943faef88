"""What is counted of a large graph and stored, against what is computed of a small one."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import id_graph

from fewlink.graph import Graph
from fewlink.graph.counted import Counted
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.scorer import TrailScorer
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.propagation.edges import edge_fans, graph_part
from fewlink.tasks.candidates import of_rare_kinds, open_candidates


def random_graph(seed: int, entities: int = 60, relations: int = 5, triples: int = 400) -> Graph:
    chance = random.Random(seed)
    rows = [
        (int(entities ** chance.random()) - 1, chance.randrange(relations), chance.randrange(entities))
        for _ in range(triples)
    ]
    return id_graph(rows, entities, relations)


@pytest.fixture(params=range(3))
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Graph, Graph]:
    """A graph in memory, and the same as a large one is opened."""
    graph = random_graph(request.param)
    return graph, as_large(graph, tmp_path)


def as_large(graph: Graph, folder: Path) -> Graph:
    """The graph as a large one is opened."""
    return Graph.open(graph.save(folder / "graph", large=0))


@pytest.mark.parametrize("memory", [720, 1 << 13, 1 << 14])
def test_what_is_counted_does_not_depend_on_the_memory(both: tuple[Graph, Graph], memory: int, tmp_path: Path) -> None:
    graph, large = both
    graph.write_counted(tmp_path, memory=memory)
    found = Counted.open(tmp_path, len(graph.entities), len(graph.relations), len(graph.tail_ids))
    for field in dataclasses.fields(Counted):
        assert np.array_equal(getattr(found, field.name), getattr(large.counted, field.name))


def test_slots_fans_and_sizes_are_those_of_the_edges(both: tuple[Graph, Graph]) -> None:
    graph, large = both
    assert large.counted is not None and large.index is not None
    assert large.slots.offsets.tolist() == graph.slots.offsets.tolist()
    assert large.slots.members.tolist() == graph.slots.members.tolist()
    assert large.relation_sizes.tolist() == graph.relation_sizes.tolist()
    assert (1 / large.counted.fans).astype(np.float32).tolist() == edge_fans(graph)[1].tolist()
    assert large.popular.tolist() == graph.popular.tolist()


def test_a_small_graph_counts_by_hand(tmp_path: Path) -> None:
    large = as_large(id_graph([(0, 0, 1), (0, 0, 2), (3, 0, 2), (0, 1, 3)], 4, 2), tmp_path)
    assert large.counted is not None
    # edges: 0 -0-> 1, 0 -0-> 2, 0 -1-> 3; 1 -2-> 0; 2 -2-> 0, 2 -2-> 3; 3 -0-> 2, 3 -3-> 0
    assert large.counted.fans.tolist() == [1, 2, 1, 2, 2, 1, 2, 1]
    assert large.counted.sizes.tolist() == [3, 1, 3, 1]
    assert [large.slots[slot].tolist() for slot in range(4)] == [[0, 3], [0], [1, 2], [3]]
    # entity 0 has the relations 0 and 1, entity 3 has 0 and 3
    assert large.counted.together.tolist() == [[0.5, 0.25, 0, 0.25], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 0.5]]


def test_what_trail_reads_of_relations_is_the_same(both: tuple[Graph, Graph]) -> None:
    read, of_large = (ReadGraph.of(graph, names=False) for graph in both)
    assert torch.equal(read.sizes, of_large.sizes) and torch.equal(read.together, of_large.together)


def test_of_many_pairs_a_sample_is_counted(tmp_path: Path) -> None:
    graph = id_graph([(0, 0, 4), (1, 0, 4), (2, 0, 4), (0, 1, 4), (2, 1, 4)], 5, 2)
    graph.write_counted(tmp_path, max_pairs=0, sample=2)
    found = Counted.open(tmp_path, 5, 2, 10)
    assert found.together[0].tolist() == [0.5, 0.5, 0, 0]  # of the entities 0, 1 and 2, the first and the last


@pytest.mark.parametrize("hidden", [(), (0,), (1, 6), (0, 5)])
def test_the_slots_and_degrees_of_entities(both: tuple[Graph, Graph], hidden: tuple[int, ...]) -> None:
    visible = np.isin(np.arange(10), hidden, invert=True)
    graph = both[0]
    for each, entities in itertools.product(both, (np.arange(60), np.array([7, 3, 3]), np.array([], np.int64))):
        firsts, counts, owners = each.slots_of(entities, visible)
        for place, entity in enumerate(entities.tolist()):
            own = graph.relation_ids[graph.offsets[entity] : graph.offsets[entity + 1]]
            relations, sizes = np.unique(own[visible[own]], return_counts=True)
            assert each.relation_ids[firsts[owners == place]].tolist() == relations.tolist()
            assert counts[owners == place].tolist() == sizes.tolist()
            assert each.degrees_of(entities, visible)[place] == sizes.sum()


def test_the_slots_of_an_entity_with_very_many_edges(tmp_path: Path) -> None:
    graph = id_graph([(0, tail % 3, tail) for tail in range(1, 5_000)], 5_000, 3)
    for each in (graph, as_large(graph, tmp_path)):
        firsts, counts, owners = each.slots_of(np.array([1, 0]), np.array([True, False, *[True] * 4]))
        assert each.relation_ids[firsts].tolist() == [4, 0, 2] and owners.tolist() == [0, 1, 1]
        assert counts.tolist() == [1, 1_666, 1_666]


def test_the_edges_of_a_relation(both: tuple[Graph, Graph]) -> None:
    graph, large = both
    for relation in range(10):
        edges = large.edges_with(relation)
        assert edges.tolist() == np.flatnonzero(graph.relation_ids == relation).tolist()
        assert large.heads_of(edges).tolist() == graph.head_ids[edges].tolist()


@pytest.mark.parametrize("most", [10, 40, 10_000])
def test_parts_are_the_same(both: tuple[Graph, Graph], most: int) -> None:
    for sources in ([0], [5, 9, 0], [3]):
        one, other = (graph_part(graph, np.array(sources), most) for graph in both)
        assert one.nodes.tolist() == other.nodes.tolist()
        for name in ("row", "first", "second", "fan_out", "fan_in"):
            for order in ("by_tail", "by_head", "by_relation"):
                assert torch.equal(getattr(getattr(one.edges, order), name), getattr(getattr(other.edges, order), name))


def test_scores_are_the_same(both: tuple[Graph, Graph]) -> None:
    references, everyone = np.array([[0, 7], [1, 9], [5, 8]]), np.arange(60)
    question = Question("", references, np.array([2, 3]), everyone)
    scores = []
    for graph in both:
        scorer = shipped_scorer(graph, names=False)
        scorer.near_edges = 120
        scores.append(scorer(question))
    assert torch.equal(*scores)


@pytest.mark.parametrize("near_edges", [60, 1_000])
def test_a_hidden_relation_does_not_choose_what_is_read_of_a_large_graph(near_edges: int, tmp_path: Path) -> None:
    """Relation 0 alone joins the head 0 to its answer 1, which relation 1 joins to 2, and 3 to 7."""
    others = [(0, 1, 3), (3, 2, 4), (4, 1, 5), (5, 2, 6)]
    hidden = [(0, 0, 1), (4, 0, 5), (3, 0, 7), *((0, 0, tail) for tail in range(8, 30))]
    graph = id_graph([*hidden, (1, 1, 2), *others], 30, 3)
    question = Question("", np.array([[4, 5], [4, 6]]), np.array([0, 3]), np.arange(30))
    scores = []
    for number, triples in enumerate((graph.triples(), graph.triples()[len(hidden) :])):
        part = Graph.of(graph.entities, graph.relations, triples)
        scorer = shipped_scorer(as_large(part, tmp_path / str(number)), names=False)
        scorer.part_edges = 100
        scorer.near_edges = near_edges
        if not number:
            scorer = scorer.without(graph.relations[0])
            reasons = scorer.explain(np.array([[4, 5]]), 0, 5)
            assert not {1, 2} & {entity for path in reasons.entities for entity in path}
        scores.append(scorer(question))
    torch.testing.assert_close(*scores)


@pytest.mark.parametrize("near_edges", [3, 50])
def test_a_large_graph_is_asked_without_reading_all_edges(both: tuple[Graph, Graph], near_edges: int) -> None:
    """Nothing that has a value for each edge or each entity is derived from the graph."""
    from fewlink.linker import Linker
    from fewlink.tasks import Benchmark

    _, large = both
    linker = Linker.shipped(Benchmark("large", large, {"train": [], "dev": [], "test": []}))
    assert isinstance(linker.scorer, TrailScorer)
    linker.scorer.part_edges = 50
    linker.scorer.near_edges = near_edges
    heads = large.slots[0][:5].tolist()
    pairs = [(large.entities[head], large.entities[int(large.tail_ids[large.offsets[head]])]) for head in heads[:3]]
    linker.predict(pairs, heads=[large.entities[heads[3]]], k=3, explain=True)
    linker.predict(relation=large.relations[1], heads=[large.entities[heads[3]]], k=3)
    linker.names.complete("1")
    derived = {
        "head_ids",
        "slot_starts",
        "degrees",
        *(f"_{name}" for name in ("edge_fans", "inverse_edges", "triples")),
    }
    made = set(vars(large)) | {key[0].__name__ for key in vars(large).get("_derived", {})}
    assert not derived & made


def two_stars(*more: tuple[int, int, int]) -> Graph:
    """A graph whose entities 0 and 1 have very many edges of the relation 0, in components of their own."""
    stars = [(leaf % 2, 0, leaf) for leaf in range(10, 110_000)]
    return id_graph([*stars, *more], 110_000, 2)


def test_components_beyond_a_size_are_taken_for_one(tmp_path: Path) -> None:
    graph = two_stars((4, 1, 5), (6, 1, 7))
    large = as_large(graph, tmp_path)
    heads = np.array([12, 4, 5, 6, 8, 13])  # the last one is of the star around 1
    for references in ([[0, 10]], [[4, 6]], [[4, 4], [14, 14]]):
        exact = graph.joined(np.array(references), heads)
        found = large.joined(np.array(references), heads)
        assert found[:5].tolist() == exact[:5].tolist()
        assert found[5] == (references != [[4, 6]]) and not exact[5]  # two large ones are joined, for all that is known


def test_paths_and_edges_of_hidden_relations_are_left_out(both: tuple[Graph, Graph]) -> None:
    graph, large = both
    entities, count = np.arange(len(graph.entities)), len(graph.relations)
    for hidden in itertools.combinations(range(count), count - 1):
        visible = ~np.isin(np.arange(2 * count) % count, hidden)
        rest = graph.without(np.array(hidden))
        for references in ([[0, 1]], [[40, 41], [50, 3]]):
            found = large.joined(np.array(references), entities, visible)
            assert found.tolist() == rest.joined(np.array(references), entities).tolist()
        for each in (graph, large):
            at, owners = each.edges_of(entities, visible)
            kept = visible[graph.relation_ids]
            assert at.tolist() == np.flatnonzero(kept).tolist()
            assert owners.tolist() == graph.head_ids[kept].tolist()


def test_edges_of_hidden_relations_do_not_make_a_component_large(tmp_path: Path) -> None:
    large = as_large(two_stars((0, 1, 4), (1, 1, 5)), tmp_path)
    visible = np.array([False, True, False, True])
    assert large.joined(np.array([[1, 5]]), np.array([0]), visible).tolist() == [False]


def test_open_candidates_are_those_of_the_rarest_kinds(both: tuple[Graph, Graph]) -> None:
    graph, large = both
    references = np.array([[0, 7], [1, 9]])
    assert open_candidates(large, references).tolist() == open_candidates(graph, references).tolist()
    tails = np.array([7, 9])
    sizes = np.sort([len(graph.slots[slot]) for slot in np.unique(graph.relation_ids[graph.edges_of(tails)[0]])])
    rarest = of_rare_kinds(large, tails, int(sizes[:2].sum()))
    assert set(rarest) <= set(open_candidates(graph, references))
    few = of_rare_kinds(large, tails, 3)
    assert {7, 9} <= set(few.tolist()) and len(few) <= 5
