"""Names as relations of the graph: which names are equal, which contain another, and when names say nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tests.conftest import graph_of
from tests.models.trail.cases import network_of

from fewlink.graph import Graph
from fewlink.graph.vocabulary import Vocabulary
from fewlink.models.contract import Question
from fewlink.models.trail.features import ReadGraph
from fewlink.models.trail.names import (
    NAME_RELATIONS,
    contain_pairs,
    entity_names,
    made_of_names,
    name_vectors,
    normalised,
    read_names,
    same_pairs,
    with_name_relations,
)
from fewlink.models.trail.scorer import TrailScorer
from fewlink.tasks.catalogue import attack_graph


def groups(*names: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for entity, name in enumerate(names):
        found.setdefault(normalised(name), []).append(entity)
    return found


def labelled(*names: str) -> Graph:
    """A graph whose entities e0, e1, … have these names and form a chain."""
    graph = graph_of(*(f"e{i} next e{i + 1}" for i in range(len(names) - 1)))
    order = [names[int(name[1:])] for name in graph.entities]
    return Graph.of(graph.entities, graph.relations, graph.triples(), labels=Vocabulary.of([*order, "next"]))


def test_names_are_compared_in_lower_case_without_accents_and_punctuation() -> None:
    assert normalised("  São_Paulo (city) ") == "sao paulo city"
    assert same_pairs(groups("Tiger Woods", "tiger_woods", "Wood")).tolist() == [[0, 1]]


def test_large_groups_of_one_name_are_not_joined() -> None:
    assert len(same_pairs(groups("a", "a", "a"))) == 3
    assert len(same_pairs(groups(*["a"] * 200))) == 0


def test_a_name_contains_the_longest_names_within_it() -> None:
    found = contain_pairs(groups("new york city hall", "new york", "york", "city hall", "hall", "of", "42"))
    assert found.tolist() == [[0, 1], [0, 3], [1, 2], [3, 4]]
    assert contain_pairs(groups("42 of", "42", "of")).tolist() == []


def test_a_name_within_very_many_is_left_out() -> None:
    assert len(contain_pairs(groups("red bank", "blue bank", "bank"))) == 2
    assert len(contain_pairs(groups(*(f"red{number} bank" for number in range(200)), "bank"))) == 0


def test_they_are_the_last_two_relations_of_the_graph() -> None:
    graph = labelled("Springfield", "springfield", "Springfield Town Hall", "Main Street")
    named = with_name_relations(graph)
    assert list(named.relations)[-2:] == list(NAME_RELATIONS) and with_name_relations(graph) is named
    added = {(named.name(h), named.relation_name(r), named.name(t)) for h, r, t in named.triples().tolist() if r > 0}
    assert added == {
        ("Springfield", "has the same name as", "springfield"),
        ("Springfield Town Hall", "contains the name of", "Springfield"),
        ("Springfield Town Hall", "contains the name of", "springfield"),
    }
    read = ReadGraph.of(graph)
    half = len(named.relations)
    assert read.reads_names and read.flags.nonzero().tolist() == [
        [r, i] for h in (0, half) for i, r in enumerate((h + 1, h + 2))
    ]
    degrees = read.degrees_of(np.arange(4), read.visible)
    assert np.array_equal(degrees, graph.degrees)  # names are no edges of the user's


def test_what_is_stored_of_attack_is_what_its_names_give() -> None:
    graph = attack_graph()
    made = made_of_names(graph)
    read = read_names(graph)
    assert made is not None and read is not None
    assert np.array_equal(made.same, read.same) and np.array_equal(made.contain, read.contain)
    assert np.allclose(made.vectors.astype(np.float32), read.vectors.astype(np.float32), atol=1e-3)


@pytest.mark.parametrize("names", [["Q1", "Q2", "Q3", "Q4"], ["/m/0a1", "/m/0b2", "/m/0c3", "/m/0d4"]])
def test_codes_say_nothing(names: list[str]) -> None:
    graph = labelled(*names)
    assert entity_names(graph) is None and with_name_relations(graph) is graph and name_vectors(graph) is None
    read = ReadGraph.of(graph)
    assert not read.reads_names and read.vectors is None and read.without_names() is read


def test_without_names_the_graph_is_the_users() -> None:
    graph = labelled("Springfield", "springfield", "Springfield Town Hall", "Main Street")
    rest, plain = ReadGraph.of(graph).without_names(), ReadGraph.of(graph, names=False)
    assert rest.shown.tolist() == 2 * [True, False, False] and rest.vectors is None
    assert not rest.reads_names and not plain.with_vectors(np.ones((4, 2))).without_names().reads_names
    assert np.array_equal(rest.degrees_of(np.arange(4), rest.visible), graph.degrees)
    scores = []
    for read in (rest, plain):
        scorer = TrailScorer("trail", network_of(seed=1), read)
        scores.append(scorer(Question("", np.array([[0, 1]]), np.array([2]), np.arange(4))))
    torch.testing.assert_close(*scores)


def test_kinds_before_a_colon_and_numbers_of_nell_are_left_out() -> None:
    rows = ["concept:city:paris", "concept:person:paris", "concept:river:seine", "concept:city:paris002"]
    graph = graph_of(*(f"{a} r {b}" for a, b in itertools.pairwise(rows)))
    names = entity_names(graph)
    assert names is not None
    assert [len(own) for own in names.groups().values()] in ([3, 1], [1, 3])


def test_vectors_have_length_one_and_like_names_are_close() -> None:
    graph = labelled("football stadium", "soccer stadium", "organic chemistry", "inorganic chemistry", "123")
    vectors = name_vectors(graph)
    assert vectors is not None and vectors.shape == (5, 96)
    place = {graph.name(e): e for e in range(5)}
    own = vectors.astype(np.float32)
    assert np.allclose(np.linalg.norm(own[[place["football stadium"]]], axis=1), 1, atol=1e-2)
    near = own[place["football stadium"]] @ own[place["soccer stadium"]]
    assert near > own[place["football stadium"]] @ own[place["organic chemistry"]] + 0.5
