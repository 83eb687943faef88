"""What is counted of a large graph and stored, against what is computed of a small one."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import id_graph

from fewlink.graph import Graph, counted
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.shipped import shipped_scorer
from fewlink.propagation.edges import edge_fans, graph_part
from fewlink.tasks import candidates
from fewlink.tasks.candidates import open_candidates


def random_graph(seed: int, entities: int = 60, relations: int = 5, triples: int = 400) -> Graph:
    chance = random.Random(seed)
    rows = [
        (int(entities ** chance.random()) - 1, chance.randrange(relations), chance.randrange(entities))
        for _ in range(triples)
    ]
    return id_graph(rows, entities, relations)


@pytest.fixture(params=range(3))
def both(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Graph, Graph]:
    """A graph in memory, and the same as a large one is opened; parts are small, and few edges are many."""
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr("fewlink.graph.graph.FEW_EDGES", 5)
    monkeypatch.setattr(counted, "EDGES_AT_ONCE", 30)
    monkeypatch.setattr(counted, "MEMBERS_AT_ONCE", 7)
    monkeypatch.setattr("fewlink.graph.graph.count", lambda *what: counted.count(*what, memory=8 * 90))
    graph = random_graph(request.param)
    return graph, Graph.open(graph.save(tmp_path / "graph"))


def test_slots_fans_and_sizes_are_those_of_the_edges(both: tuple[Graph, Graph]) -> None:
    graph, large = both
    assert large.counted is not None and large.index is not None
    assert large.slots.offsets.tolist() == graph.slots.offsets.tolist()
    assert large.slots.members.tolist() == graph.slots.members.tolist()
    assert large.relation_sizes.tolist() == graph.relation_sizes.tolist()
    assert (1 / large.counted.fans).astype(np.float32).tolist() == edge_fans(graph)[1].tolist()
    assert large.popular.tolist() == graph.popular.tolist()


def test_a_small_graph_counts_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    graph = id_graph([(0, 0, 1), (0, 0, 2), (3, 0, 2), (0, 1, 3)], 4, 2)
    large = Graph.open(graph.save(tmp_path / "graph"))
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


def test_of_many_pairs_a_sample_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr(counted, "MAX_PAIRS", 0)
    monkeypatch.setattr(counted, "SAMPLE", 2)
    graph = id_graph([(0, 0, 4), (1, 0, 4), (2, 0, 4), (0, 1, 4), (2, 1, 4)], 5, 2)
    large = Graph.open(graph.save(tmp_path / "graph"))
    assert large.counted is not None
    assert large.counted.together[0].tolist() == [0.5, 0.5, 0, 0]  # of the entities 0, 1 and 2, the first and the last


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


@pytest.mark.parametrize("near", [False, True])
def test_a_hidden_relation_does_not_choose_what_is_read_of_a_large_graph(
    near: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relation 0 alone joins the head 0 to its answer 1, which relation 1 joins to 2, and 3 to 7."""
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr("fewlink.models.trail.scorer.MAX_WHOLE_EDGES", 0)
    others = [(0, 1, 3), (3, 2, 4), (4, 1, 5), (5, 2, 6)]
    hidden = [(0, 0, 1), (4, 0, 5), (3, 0, 7), *((0, 0, tail) for tail in range(8, 30))]
    graph = id_graph([*hidden, (1, 1, 2), *others], 30, 3)
    large = Graph.open(graph.save(tmp_path / "graph"))
    scorer = shipped_scorer(large, names=False).without(large.relations[0])
    (known,) = scorer.known_tasks([np.array([[4, 5]])])
    assert known.part is not None and set(known.part.nodes.tolist()) == {0, 3, 4, 5, 6}
    reasons = scorer.explain(np.array([[4, 5]]), 0, 5)
    assert not {1, 2} & {entity for path in reasons.entities for entity in path}
    if near:
        scorer.near_edges = 60
        assert set(scorer._surroundings(known).near(0)[0].tolist()) == {0, 3, 4, 5, 6}
    parts, grown = [], graph_part
    monkeypatch.setattr(
        "fewlink.models.trail.scorer.graph_part", lambda *given: parts.append(grown(*given)) or parts[-1]
    )
    scorer(Question("", np.array([[4, 6]]), np.array([0]), np.arange(30)))
    assert parts and not any({1, 2, 7, 8} & set(part.nodes.tolist()) for part in parts)


@pytest.mark.parametrize("near", [False, True])
def test_a_large_graph_is_asked_without_reading_all_edges(
    both: tuple[Graph, Graph], near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that has a value for each edge or each entity is derived from the graph."""
    from fewlink.linker import Linker
    from fewlink.tasks import Benchmark

    monkeypatch.setattr("fewlink.models.trail.scorer.MAX_WHOLE_EDGES", 0)
    monkeypatch.setattr("fewlink.models.trail.scorer.PART_EDGES", 50)
    _, large = both
    linker = Linker.shipped(Benchmark("large", large, {"train": [], "dev": [], "test": []}))
    if near:
        linker.scorer.near_edges = 3
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


def test_components_beyond_a_size_are_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr("fewlink.graph.graph.MANY_EDGES", 4)
    ring = [(i, 0, (i + 1) % 6) for i in range(6)]
    graph = id_graph([*ring, (6, 0, 7), (8, 0, 9), *((i, 0, i + 1) for i in range(10, 15))], 17, 1)
    large = Graph.open(graph.save(tmp_path / "graph"))
    heads = np.array([3, 6, 7, 8, 12, 16])
    for references in ([[0, 1]], [[6, 8]], [[6, 6], [2, 2]]):
        exact = graph.joined(np.array(references), heads)
        found = large.joined(np.array(references), heads)
        assert found[[0, 1, 2, 3, 5]].tolist() == exact[[0, 1, 2, 3, 5]].tolist()
        assert found[4] == (references != [[6, 8]])  # joined to another large component, for all that is known


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


def test_edges_of_hidden_relations_do_not_make_a_component_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fewlink.graph.graph.LARGE", 0)
    monkeypatch.setattr("fewlink.graph.graph.MANY_EDGES", 4)
    stars = [(center, 1, leaf) for center, leaves in ((0, range(4, 12)), (2, range(12, 20))) for leaf in leaves]
    graph = id_graph([(0, 0, 1), (2, 0, 3), *stars], 20, 2)
    large = Graph.open(graph.save(tmp_path / "graph"))
    visible = np.array([True, False, True, False])
    assert large.joined(np.array([[2, 3]]), np.array([0]), visible).tolist() == [False]


def test_open_candidates_are_those_of_the_rarest_kinds(
    both: tuple[Graph, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, large = both
    references = np.array([[0, 7], [1, 9]])
    assert open_candidates(large, references).tolist() == open_candidates(graph, references).tolist()
    sizes = np.sort([len(graph.slots[slot]) for slot in np.unique(graph.relation_ids[graph.edges_of([7, 9])[0]])])
    monkeypatch.setattr(candidates, "MOST", int(sizes[:2].sum()))
    assert set(open_candidates(large, references)) <= set(open_candidates(graph, references))
    monkeypatch.setattr(candidates, "MOST", 3)
    few = open_candidates(large, references)
    assert {7, 9} <= set(few.tolist()) and len(few) <= 5
