"""Rules: two relations that join a pair as they join its references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import graph_of, id_graph

from fewlink.graph import Graph
from fewlink.models.trail.explain import joining, paths_by_rule
from fewlink.models.trail.features import ReadGraph

FAMILY = graph_of(
    *("ann father bob", "bob father carl", "dan father eric", "eric father fred", "gus father hal", "hal father ian"),
    *("ann gender female", "carl gender male", "dan gender male", "fred gender male", "gus gender male"),
    *("ian gender male", "hal gender male", "jim gender male"),
)


def asked(graph: Graph, *references: tuple[str, str], head: str, tail: str, most: int = 3) -> list[str]:
    entity, count = graph.entities.id, len(graph.relations)
    pairs = np.array([[entity(a), entity(b)] for a, b in references])
    found = paths_by_rule(ReadGraph.of(graph, names=False), pairs, entity(head), entity(tail), most)
    names = [(graph.entities[between], [divmod(r, count) for r in rule]) for rule, between in found]
    return [
        f"{' '.join('-' * inverse + graph.relations[forward] for inverse, forward in rule)} by {between}"
        for between, rule in names
    ]


def test_rules_that_join_most_references_come_first_then_those_that_lead_to_fewest_entities() -> None:
    both = asked(FAMILY, ("ann", "carl"), ("dan", "fred"), head="gus", tail="ian")
    assert both == ["father father by hal", "gender -gender by male"]
    assert asked(FAMILY, ("dan", "fred"), head="gus", tail="ian", most=1) == ["father father by hal"]
    assert asked(FAMILY, ("jim", "fred"), head="gus", tail="ian") == ["gender -gender by male"]
    assert asked(FAMILY, ("ann", "bob"), head="gus", tail="ian") == []
    assert asked(FAMILY, ("gus", "ian"), head="gus", tail="ian") == []  # the pair is no reason for itself
    assert asked(FAMILY, ("ann", "carl"), head="gus", tail="gus") == []


def test_the_order_of_references_changes_no_rule() -> None:
    lines = [f"a{i} {'by' if i < 6 else 'at'} m{i}" for i in range(12)] + [f"m{i} of b{i}" for i in range(12)]
    graph = graph_of("h by x", "x of t", "h at y", "y of t", *lines)
    pairs = [(f"a{i}", f"b{i}") for i in range(12)]
    assert asked(graph, *pairs, head="h", tail="t") == asked(graph, *pairs[::-1], head="h", tail="t")


def test_relations_that_are_hidden_make_no_rules() -> None:
    graph = ReadGraph.of(FAMILY, names=False)
    graph.visible[FAMILY.relations.id("father")] = 0
    gus, ian = (FAMILY.entities.id(name) for name in ("gus", "ian"))
    gender = FAMILY.relations.id("gender")
    assert joining(graph, gus, ian) == {(gender, gender + 2): FAMILY.entities.id("male")}


triples = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5))


@given(st.lists(triples, min_size=1, max_size=25, unique=True))
def test_rules_are_all_paths_of_two_hops(edges: list[tuple[int, int, int]]) -> None:
    graph = id_graph(edges)
    every = list(zip(*(ids.tolist() for ids in (graph.head_ids, graph.relation_ids, graph.tail_ids)), strict=True))
    for head, tail in {(h, t) for h, *_ in every for *_, t in every}:
        found = joining(ReadGraph.of(graph, names=False), head, tail)
        wanted: dict[tuple[int, int], set[int]] = {}
        for a, r, b in every:
            for c, s, d in every:
                if a == head and b == c and d == tail and len({a, b, d}) == 3:
                    wanted.setdefault((r, s), set()).add(b)
        assert found.keys() == wanted.keys() and all(found[rule] in wanted[rule] for rule in found)
        fewest = {rule: min(map(int, map(graph.degrees_of, between))) for rule, between in wanted.items()}
        assert {rule: int(graph.degrees_of(found[rule])) for rule in found} == fewest


def test_an_entity_with_very_many_edges_has_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewlink.models.trail.explain.MAX_EDGES", 3)
    assert asked(FAMILY, ("ann", "carl"), head="gus", tail="ian") == ["father father by hal"]
    assert FAMILY.degrees_of(FAMILY.entities.id("male")) > 3
    assert not asked(FAMILY, ("ann", "male"), head="gus", tail="male")
