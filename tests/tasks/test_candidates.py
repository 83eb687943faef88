from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ENTITIES, RELATIONS, compiled, graph_of, id_graph, id_triples, task_of

from fewlink.core.errors import UnknownName
from fewlink.core.seeds import scramble
from fewlink.graph import Graph
from fewlink.graph.types import RDF_TYPE, TypeTable
from fewlink.tasks import PROTOCOLS, candidates_of, competing_tails, likely_tails
from fewlink.tasks.candidates import PAPER_SIZE, SameTypeSampler, by_similarity
from fewlink.tasks.set_order import in_set_order

GRAPH = graph_of("ann lives oslo", "bob lives rome", "oslo in norway", "cy works norway")  # ann is 0, oslo 1, bob 2, …


def names(ids: np.ndarray) -> list[str]:
    return sorted(GRAPH.entities[i] for i in ids)


def test_without_types_the_range_is_the_entities_that_share_a_slot() -> None:
    assert names(likely_tails(GRAPH, GRAPH.entities.ids(["rome"]))) == ["oslo", "rome"]
    assert names(likely_tails(GRAPH, GRAPH.entities.ids(["ann", "norway"]))) == ["ann", "bob", "norway"]


def test_with_types_the_range_is_the_entities_that_share_a_type() -> None:
    graph, _ = compiled(b"concept:city:a\tr\tconcept:city:b\nconcept:lake:c\tr\tconcept:lake:d\n")
    assert likely_tails(graph, np.array([1])).tolist() == [0, 1]
    assert likely_tails(graph, np.array([1, 2])).tolist() == [0, 1, 2, 3]


def test_a_tail_without_a_type_uses_its_slots(tmp_path: Path) -> None:
    """Otherwise its range would be only itself and give the answer away."""
    (tmp_path / "types.tsv").write_text("ann\tperson\nbob\tperson\n")
    graph, _ = compiled(b"ann\tlives\toslo\nbob\tlives\trome\n", types=tmp_path / "types.tsv")
    assert likely_tails(graph, graph.entities.ids(["rome"])).tolist() == graph.entities.ids(["oslo", "rome"]).tolist()


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=3))
def test_the_slot_rule_equals_a_literal_one(triples: list[tuple[int, int, int]], tails: list[int]) -> None:
    slots: list[set[int]] = [set() for _ in range(ENTITIES)]
    for head, relation, tail in triples:
        slots[head].add(relation)
        slots[tail].add(relation + RELATIONS)
    shared = set.union(*(slots[t] for t in tails))
    expected = sorted({e for e in range(ENTITIES) if slots[e] & shared} | set(tails))
    assert likely_tails(id_graph(triples), np.array(tails)).tolist() == expected


@given(id_triples, st.lists(st.integers(0, ENTITIES - 1), min_size=1, max_size=3), st.integers(1, ENTITIES))
def test_sampled_entities_are_the_first_of_the_likely_tails_by_a_hash(
    triples: list[tuple[int, int, int]], ids: list[int], most: int
) -> None:
    graph, given = id_graph(triples), np.array(ids)
    everyone = likely_tails(graph, given)
    first = everyone[np.argsort(scramble(everyone), kind="stable")[:most]]
    for sampler in (SameTypeSampler(graph, most), SameTypeSampler(graph, ENTITIES)):
        for _ in range(2):  # the second time from the stored parts
            assert sampler.of(given, most).tolist() == sorted({*first.tolist(), *ids})


def test_sampled_entities_share_a_type() -> None:
    names = [f"concept:city:{i}" for i in range(50)]
    rows = "".join(f"{name}\tr\tconcept:lake:a\n" for name in names)
    graph, _ = compiled(rows.encode())
    sample = SameTypeSampler(graph, 10).of(graph.entities.ids([names[3]]), 10)
    assert 10 <= len(sample) <= 11 and {graph.entities[i].split(":")[1] for i in sample} == {"city"}


def test_full_is_the_whole_range() -> None:
    task = task_of([(0, 1), (2, 3)], range=[1, 3, 4])
    candidates = candidates_of("full", task, task.pairs[:1], GRAPH)
    assert candidates.ids.tolist() == [1, 3, 4]
    assert candidates.counted.all()
    assert candidates.outside == 0


def test_open_uses_only_the_references_and_the_background() -> None:
    task = task_of([(0, 1), (2, 4)], range=[1, 3, 4])
    candidates = candidates_of("open", task, task.pairs[:1], GRAPH)
    assert names(candidates.ids) == ["oslo", "rome"]  # oslo is also the head of `in`, but alone there
    assert candidates.counted.all()
    assert candidates.outside == 4
    other_queries = task_of([(0, 1), (2, 0)], range=[0, 1])
    assert np.array_equal(candidates.ids, candidates_of("open", other_queries, task.pairs[:1], GRAPH).ids)


def test_paper_counts_a_thousand_and_includes_every_answer() -> None:
    graph = id_graph([(0, 0, 1)], entities=5000)
    task = task_of([(i, 17 * i) for i in range(200)], range=range(5000))
    candidates = candidates_of("paper", task, task.pairs[:3], graph)
    assert candidates.counted.sum() == PAPER_SIZE == 1000
    assert np.isin(task.pairs[:, 1], candidates.ids).all()
    assert set(candidates.ids[~candidates.counted].tolist()) <= set(task.pairs[:, 1].tolist())
    assert (np.diff(candidates.ids) > 0).all()


def test_the_thousand_depend_on_the_relation_only() -> None:
    graph = id_graph([(0, 0, 1)], entities=5000)
    pairs = [(i, i) for i in range(10)]
    task, other = (task_of(pairs, range=range(5000), name=n) for n in ("one", "two"))
    first = candidates_of("paper", task, task.pairs[:1], graph)
    again = candidates_of("paper", task, task.pairs[4:9], graph)
    assert np.array_equal(first.ids, again.ids)
    assert not np.array_equal(first.ids, candidates_of("paper", other, task.pairs[:1], graph).ids)


def test_released_counts_the_first_thousand_of_a_set() -> None:
    graph = id_graph([(0, 0, 1)], entities=5000)
    task = task_of([(i, 17 * i) for i in range(200)], range=range(5000))
    candidates = candidates_of("released", task, task.pairs[:3], graph)
    first = in_set_order(graph, np.arange(5000))[:PAPER_SIZE]
    assert candidates.ids[candidates.counted].tolist() == sorted(first.tolist())
    assert competing_tails("released", task, graph).tolist() == sorted(first.tolist())
    assert candidates.ids.tolist() == sorted({*first.tolist(), *task.pairs[:, 1].tolist()})
    renamed = task_of([(i, 17 * i) for i in range(200)], range=range(5000), name="another")
    assert np.array_equal(candidates.ids, candidates_of("released", renamed, task.pairs[:3], graph).ids)


@pytest.mark.parametrize("protocol", ["paper", "released"])
def test_a_small_range_is_the_same_under_paper_and_full(protocol: str) -> None:
    graph = id_graph([(0, 0, 1)], entities=1000)
    task = task_of([(0, 1), (1, 2)], range=range(1000))
    candidates = candidates_of(protocol, task, task.pairs[:1], graph)
    assert np.array_equal(candidates.ids, task.range)
    assert candidates.counted.all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(id_triples, st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=2, unique=True))
def test_candidates_are_sorted_and_include_the_true_tails(
    protocol: str, triples: list[tuple[int, int, int]], pairs: list[tuple[int, int]]
) -> None:
    graph = id_graph(triples)
    task = task_of(pairs, range=likely_tails(graph, np.array([t for _, t in pairs])).tolist())
    candidates = candidates_of(protocol, task, task.pairs[:1], graph)
    assert (np.diff(candidates.ids) > 0).all()
    assert len(candidates.ids) + candidates.outside <= ENTITIES
    if protocol == "open":
        assert len(candidates.ids) + candidates.outside == ENTITIES
        assert pairs[0][1] in candidates.ids
    else:
        assert np.isin([t for _, t in pairs], candidates.ids).all()


def test_an_unknown_protocol_names_the_choices() -> None:
    task = task_of([(0, 1)], range=[1])
    with pytest.raises(UnknownName, match=r"'ful'.*'full'"):
        candidates_of("ful", task, task.pairs, GRAPH)


def test_entities_by_what_they_share_with_some() -> None:
    graph = graph_of("a likes b", "a eats c", "d likes b", "d eats c", "e likes b", "f likes a", "f owns g", "g near h")
    order, similar = by_similarity(graph, graph.entities.ids(["a"]))
    names = [graph.entities[entity] for entity in order.tolist()]
    # a is liked, likes and eats; d likes and eats; b is only liked, e and f only like: f has more edges
    assert names[:2] == ["a", "d"] and set(names[2:5]) == {"b", "e", "f"} and similar == 5
    assert names.index("f") < names.index("e") and sorted(names) == sorted(graph.entities)
    likes = graph.relations.find("likes")
    assert likes is not None
    assert by_similarity(graph, graph.entities.ids(["a"]), ignored=likes)[1] == 3  # a and d eat, b is liked


def test_having_a_type_does_not_make_entities_alike() -> None:
    rows = [f"{name} {RDF_TYPE} {kind}" for name, kind in (("oslo", "City"), ("rome", "City"), ("italy", "State"))]
    plain = graph_of(*rows, "ann lives oslo")
    kinds = plain.triples()[plain.triples()[:, 1] == plain.relations.id(RDF_TYPE)]
    types = TypeTable.of([b"City", b"State"], kinds[:, 0], np.array([0, 0, 1]), len(plain.entities))
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=types)
    ids = graph.entities.index()
    task = task_of([(ids["ann"], ids["oslo"])], [ids["oslo"]])
    found = candidates_of("open", task, task.pairs, graph).ids
    assert {graph.entities[entity] for entity in found} == {"oslo", "rome"}
