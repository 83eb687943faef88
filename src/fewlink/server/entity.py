"""The facts about an entity: its neighbours by relation, some of each, as the page lists and draws them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from starlette.responses import Response

from fewlink.core.errors import UnknownName
from fewlink.graph import Graph
from fewlink.linker import Linker
from fewlink.linker.names import entity_of, without_kinds
from fewlink.server.errors import as_json
from fewlink.server.schema import MAX_NAME_LENGTH, EntityAnswer

MAX_RELATIONS = 100
MAX_NEIGHBOURS = 100
MAX_SEARCHED_EDGES = 100_000  # of one entity
Name = Annotated[str, Query(max_length=MAX_NAME_LENGTH)]
First = Annotated[int, Query(ge=0)]


def install_entity(app: FastAPI, linker: Linker) -> None:
    """Add the route /entity."""

    @app.get("/entity", response_model=EntityAnswer)
    def entity(
        id: Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="An id or a name.")],
        q: Annotated[Name, Query(description="Only edges with this text in the relation or neighbour.")] = "",
        first_relation: Annotated[First, Query(description="The position of the first relation to return.")] = 0,
        relations: Annotated[int, Query(ge=1, le=MAX_RELATIONS)] = 12,
        first: Annotated[First, Query(description="The position of the first neighbour of each relation.")] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_NEIGHBOURS, description="Neighbours of each relation.")] = 5,
        relation: Annotated[Name | None, Query(description="Only this relation, by its id.")] = None,
        inverse: Annotated[bool, Query(description="With `relation`: the heads of its edges to the entity.")] = False,
    ) -> Response:
        """An entity, its types, and its neighbours by relation, those with the most edges first."""
        graph = linker.graph
        number = linker.names.find(id)
        found = groups_of(graph, number, q)
        only = None if relation is None else directed(graph, relation, inverse)
        chosen = [group for group in found if group[0] == only] if only is not None else found[first_relation:]
        return as_json(
            {
                **described(linker, number),
                "types": linker.names.types_of(number),
                "edges_in_all": int(graph.degrees_of(number)),
                "matching": sum(len(others) for _, others in found),
                "relations_in_all": len(found),
                "relations": [
                    group_facts(linker, number, each, others, first, count) for each, others in chosen[:relations]
                ],
            }
        )


def groups_of(graph: Graph, entity: int, text: str = "") -> list[tuple[int, np.ndarray]]:
    """The relations of an entity's edges, each with its neighbours (n,); relation r + R is the inverse of r.

    With a text, only edges that have it in the name of the relation, or in the name or id of the neighbour.
    """
    begin, end = graph.offsets[entity : entity + 2].tolist()
    typed = text.strip().casefold()
    edges = slice(begin, min(end, begin + MAX_SEARCHED_EDGES) if typed else end)
    relations = graph.relation_ids[edges]
    others = graph.tail_ids[edges]
    if typed:
        ends = zip(relations.tolist(), others.tolist(), strict=True)
        matches = np.array([typed in edge_text(graph, relation, other) for relation, other in ends], bool)
        relations = relations[matches]
        others = others[matches]
    numbers, begins = np.unique(relations, return_index=True)
    return list(zip(numbers.tolist(), np.split(others, begins[1:]), strict=False))


def edge_text(graph: Graph, relation: int, other: int) -> str:
    """What a search compares with: the names of the relation and of the other end, and its id."""
    names = (graph.relation_name(relation % len(graph.relations)), graph.name(other), graph.entities[other])
    return "\n".join(names).casefold()


def directed(graph: Graph, relation: str, inverse: bool) -> int:
    """The number of a relation, or of its inverse."""
    number = graph.relations.find(relation)
    if number is None:
        raise UnknownName(f"unknown relation '{relation}'")
    return number + inverse * len(graph.relations)


def described(linker: Linker, entity: int) -> dict[str, Any]:
    """An entity with its kind: the first of its types."""
    kinds = linker.names.types_of(entity)
    return {**vars(entity_of(linker.graph, entity)), "kind": kinds[0] if kinds else None}


def group_facts(
    linker: Linker, entity: int, relation: int, others: np.ndarray, first: int, count: int
) -> dict[str, Any]:
    """A relation of an entity and some of its neighbours (n,) in it, those with the most edges first."""
    graph = linker.graph
    types_of = linker.names.types_of
    order = np.argsort(-graph.degrees_of(others), kind="stable")
    inverse, forward = divmod(relation, len(graph.relations))
    ends = (int(others[0]), entity) if inverse else (entity, int(others[0]))
    return {
        "relation": graph.relations[forward],
        "relation_name": graph.relation_name(forward),
        "words": without_kinds(graph.relation_name(forward), *map(types_of, ends)),
        "inverse": bool(inverse),
        "count": len(others),
        "neighbours": [described(linker, other) for other in others[order[first : first + count]].tolist()],
    }
