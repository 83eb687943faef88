"""Entities of the same kind: by types, or by relation slots; equal to a literal version of naive Bayes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.conftest import graph_of
from tests.linker.linkers import umls

from fewlink.graph import Graph, TypeTable
from fewlink.tasks.candidates import PRIOR_ENTITIES, TYPICAL, of_kind

TOWNS = (  # fr and de have a language; no and it lack it; oslo and french are of other kinds
    *(f"{country} capital {city}" for country, city in zip(("fr", "de", "no", "it"), "pbor", strict=True)),
    *(f"{country} in europe" for country in ("fr", "de", "no", "it")),
    *(f"{city} lies_on {city}_river" for city in "pbor"),
    "fr language french",
    "de language german",
    "french family romance",
    "german family germanic",
    "at in europe",
)


def named(graph: Graph, same: np.ndarray) -> set[str]:
    return {graph.entities[int(entity)] for entity in np.flatnonzero(same)}


def test_entities_with_the_relations_of_the_given_ones_are_of_their_kind() -> None:
    graph = graph_of(*TOWNS)
    ids = graph.entities.ids(["fr", "de"])
    language = graph.relations.id("language")
    assert named(graph, of_kind(graph, ids, ignored=language)) == {"fr", "de", "no", "it", "at"}


def test_types_decide_where_they_say_something() -> None:
    plain = graph_of(*TOWNS)
    kinds = {"country": ("fr", "de", "no"), "city": ("p", "b", "at")}  # it has none; at is said to be a city
    entries = [(plain.entities.id(name), place) for place, names in enumerate(kinds.values()) for name in names]
    table = TypeTable.of(map(str.encode, kinds), *np.array(entries).T, len(plain.entities))
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=table)
    same = named(graph, of_kind(graph, graph.entities.ids(["fr", "de"]), ignored=graph.relations.id("language")))
    assert same == {"fr", "de", "no", "it"}


def test_a_type_of_all_entities_says_nothing() -> None:
    plain = graph_of(*TOWNS)
    entities = np.arange(len(plain.entities))
    table = TypeTable.of([b"thing"], entities, np.zeros_like(entities), len(entities))
    graph = Graph.of(plain.entities, plain.relations, plain.triples(), types=table)
    ids = graph.entities.ids(["fr", "de"])
    assert (of_kind(graph, ids) == of_kind(plain, ids)).all()


@pytest.mark.parametrize("relation", ["affects", "manages", "adjacent_to"])
def test_slots_are_weighed_as_in_a_literal_version(relation: str) -> None:
    graph = umls().graph
    number = graph.relations.id(relation)
    ids = {int(head) for head in graph.slots[number]}
    entities = range(len(graph.entities))
    have = [set(graph.slots[slot].tolist()) for slot in range(2 * len(graph.relations)) if slot != number]

    def likeness(entity: int) -> float:
        total = 0.0
        for members in have:
            q = min(max(len(members), 0.5), len(entities) - 0.5) / len(entities)
            p = (len(members & ids) + PRIOR_ENTITIES * q) / (len(ids) + PRIOR_ENTITIES)
            total += math.log(p / q) if entity in members else math.log((1 - p) / (1 - q))
        return total

    values = [likeness(entity) for entity in entities]
    least = min(-math.log(2), np.quantile([values[entity] for entity in ids], TYPICAL))
    shares = set().union(*(members for members in have if members & ids))
    expected = ids | {entity for entity in shares if values[entity] >= least - 1e-9}
    assert graph.types is None
    assert {*np.flatnonzero(of_kind(graph, np.array([*ids]), number)).tolist()} == expected


def test_no_entity_is_of_the_kind_of_none() -> None:
    assert not of_kind(graph_of(*TOWNS), np.zeros(0, np.int32)).any()
