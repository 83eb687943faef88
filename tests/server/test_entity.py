"""/entity: the neighbours of an entity by relation, searched and paged, those with the most edges first."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.conftest import benchmark_of, graph_of
from tests.server.servers import Known, asking, small

from fewlink.graph import Graph, TypeTable
from fewlink.linker import Linker
from fewlink.server import schema


def neighbours(linker: Linker, **query: Any) -> Any:
    with asking(linker) as client:
        answer = client.get("/entity", params=query)
    assert answer.status_code == 200, answer.text
    schema.EntityAnswer(**answer.json())
    return answer.json()


def hub() -> Linker:
    """A hub with seven spokes, of which s3 has two more edges."""
    return Linker(benchmark_of(graph_of(*(f"hub has s{i}" for i in range(7)), "s3 near s4", "s3 likes s5")), Known())


def test_neighbours_are_grouped_by_relation_and_direction() -> None:
    oslo = neighbours(small(), id="oslo")
    assert (oslo["name"], oslo["kind"], oslo["edges_in_all"], oslo["relations_in_all"]) == ("oslo", "city", 3, 2)
    found = {(group["relation"], group["inverse"]): group for group in oslo["relations"]}
    assert {one["id"] for one in found["lives", True]["neighbours"]} == {"ann", "cy"}
    assert found["near", False] == {
        "relation": "near",
        "relation_name": "near",
        "words": "near",
        "inverse": False,
        "count": 1,
        "neighbours": [{"id": "rome", "name": "rome", "kind": "city"}],
    }


def test_neighbours_with_the_most_edges_come_first_and_pages_hold_all() -> None:
    (has,) = neighbours(hub(), id="hub", count=3)["relations"]
    assert has["count"] == 7 and [one["id"] for one in has["neighbours"]] == ["s3", "s4", "s5"]
    pages = [neighbours(hub(), id="hub", relation="has", first=first, count=3) for first in (0, 3, 6, 9)]
    listed = [[one["id"] for one in page["relations"][0]["neighbours"]] for page in pages]
    assert [len(page) for page in listed] == [3, 3, 1, 0]
    assert sorted(one for page in listed for one in page) == [f"s{i}" for i in range(7)]


def test_relations_are_paged_and_chosen_by_direction() -> None:
    s3 = neighbours(hub(), id="s3", relations=2)
    rest = neighbours(hub(), id="s3", first_relation=2)
    groups = [(group["relation"], group["inverse"]) for group in [*s3["relations"], *rest["relations"]]]
    assert groups == [("near", False), ("likes", False), ("has", True)] and s3["relations_in_all"] == 3
    assert neighbours(hub(), id="s3", relation="has")["relations"] == []
    (has,) = neighbours(hub(), id="s3", relation="has", inverse=True)["relations"]
    assert has["neighbours"][0] == {"id": "hub", "name": "hub", "kind": None}


def test_relations_are_read_without_the_kinds_of_their_ends() -> None:
    plain = graph_of("ann person_lives_in_city oslo")
    types = TypeTable.of([b"person", b"city"], np.arange(2), np.arange(2), 2)
    linker = Linker(benchmark_of(Graph.of(plain.entities, plain.relations, plain.triples(), types=types)), Known())
    for name in ("ann", "oslo"):
        (group,) = neighbours(linker, id=name)["relations"]
        assert (group["words"], group["relation"]) == ("lives in", "person_lives_in_city")


def test_unknown_names_and_sizes_over_the_limits_are_refused() -> None:
    with asking(hub()) as client:

        def status(**query: Any) -> int:
            return client.get("/entity", params=query).status_code

        assert status(id="hbu") == status(id="hub", relation="hsa") == 404
        assert status(id="hub", count=1000) == status(id="hub", relations=1000) == status(id="hub", first=-1) == 422
        assert status() == 422


def test_an_entity_has_types_and_edges_that_are_searched() -> None:
    ann = neighbours(small(), id="ann")
    assert (ann["name"], ann["types"], ann["edges_in_all"], ann["matching"]) == ("ann", ["person"], 2, 2)
    for text in ("ANN", "know"):
        bob = neighbours(small(), id="bob", q=text)
        assert (bob["edges_in_all"], bob["matching"], bob["relations_in_all"]) == (2, 1, 1)
        (knows,) = bob["relations"]
        assert knows["inverse"] and [one["id"] for one in knows["neighbours"]] == ["ann"]
    assert neighbours(small(), id="bob", q="nothing")["relations"] == []
    (lives,) = neighbours(small(), id="oslo", q="lives", relation="lives", inverse=True, first=1)["relations"]
    assert lives["count"] == 2 and len(lives["neighbours"]) == 1
