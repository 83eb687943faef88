"""Lookups in a linker's graph that need no model: limits, entities with their neighbours, relations and examples."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import fewlink
from fewlink.core.errors import FewlinkError, UnknownName
from fewlink.graph import Graph
from fewlink.graph.name_index import fold
from fewlink.linker import Linker
from fewlink.linker.complete import plausible_heads
from fewlink.linker.names import Names, entity_of, without_kinds
from fewlink.linker.query import References
from fewlink.linker.ranking import KINDS
from fewlink.linker.relations import overview
from fewlink.models.contract import capabilities
from fewlink.server.schema import MAX_HEADS, MAX_K, ServerSettings

MAX_LISTED_RELATIONS = 2_000  # in /about
EXAMPLE_HEADS = 4  # heads of an example, whose answers fit on a screen
MAX_SEARCHED_EDGES = 100_000  # of one entity
README_RELATION = "attacks platform"
README_REFERENCES = [("APT38", "Windows"), ("TeamTNT", "Containers")]
README_HEADS = ["Sandworm Team"]


def about(linker: Linker, settings: ServerSettings) -> dict[str, Any]:
    """The model, its graph, its calibration, and the limits of one request."""
    graph = linker.graph
    calibration = linker.calibration
    names = [graph.relation_name(number) for number in range(min(len(graph.relations), MAX_LISTED_RELATIONS))]
    task_names = {split: [task.name for task in tasks] for split, tasks in linker.measured.tasks.items()}
    return {
        "version": fewlink.__version__,
        "model": linker.scorer.name,
        "shots": linker.shots,
        "graph": {
            "name": linker.benchmark.name,
            "entities": len(graph.entities),
            "relations": len(graph.relations),
            "triples": graph.triple_count,
            "types": len(graph.types.names) if graph.types is not None else 0,
        },
        "relations": {"graph": names, **task_names},
        "constraints": {**KINDS, "auto": "all constraints that the known pairs satisfy"},
        "evidence": dict(capabilities(linker.scorer).evidence),
        "calibration": calibration
        and {
            "error": calibration.measured_error,
            "relations": calibration.relations,
            "rough": calibration.rough,
        },
        "limits": {
            "heads": MAX_HEADS,
            "k": MAX_K,
            "rows": settings.rows,
            "explained": settings.explained,
            "seconds": settings.seconds,
        },
    }


def offer(names: Names, entity: int) -> dict[str, str]:
    """An entity with a hint that distinguishes it from others with the same name."""
    return {**vars(entity_of(names.graph, entity)), "hint": names.hint(entity)}


def entities(linker: Linker, typed: str, limit: int) -> list[dict[str, str]]:
    """Entities that complete the typed text, best first."""
    names = linker.names
    return [offer(names, names.find(entity.id)) for entity in names.complete(typed, limit)]


def relations(linker: Linker, typed: str, first: int, count: int, order: str) -> dict[str, Any]:
    """A page of the relations whose names contain the typed text, each with a pair and how complete it seems."""
    graph = linker.graph
    text = typed.strip().casefold()
    found = [
        one
        for one in linker.benchmark.once(overview)
        if text in f"{one.relation.readable_name()}\n{one.relation.name}".casefold()
    ]
    if order == "pairs":
        found.sort(key=lambda one: -one.pairs)
    elif order == "missing":
        found.sort(key=lambda one: -one.lacking)
    elif order == "name":
        found.sort(key=lambda one: fold(one.relation.readable_name()))
    rows = [
        {
            "relation": one.relation.name,
            "name": one.relation.readable_name(),
            "split": one.split,
            "pairs": one.pairs,
            "heads": one.heads,
            "example": {end: vars(entity_of(graph, id)) for end, id in zip(("head", "tail"), one.example, strict=True)},
            "of_kind": one.of_kind,
            "type": one.type,
        }
        for one in found[first : first + count]
    ]
    return {"matching": len(found), "relations": rows}


def example(linker: Linker, number: int) -> dict[str, Any]:
    """References and heads of a relation to try, a different one for each number.

    The example of the README comes first if the graph has its entities, then test, dev and train relations. A graph
    without tasks offers its own relations, which have no references beside their known pairs.
    """
    graph = linker.graph
    names = linker.names
    offered = functools.partial(offer, names)
    known = [end for pair in README_REFERENCES for end in pair] + README_HEADS
    if all(len(names.matches(name)) == 1 for name in known):
        if number == 0:
            return {
                "relation": README_RELATION,
                "in_graph": False,
                "references": [[offered(names.find(end)) for end in pair] for pair in README_REFERENCES],
                "heads": [offered(names.find(head)) for head in README_HEADS],
            }
        number -= 1
    order = {"test": 0, "dev": 1, "train": 2, None: 3}
    facts = sorted(
        (one for one in linker.benchmark.once(overview) if one.pairs > linker.shots), key=lambda one: order[one.split]
    )
    if any(one.split for one in facts):
        facts = [one for one in facts if one.split]
    if not facts:
        raise FewlinkError(
            f"{linker.benchmark.name} has no relation with more than {linker.shots} pairs: enter references of your own"
        )
    relation = facts[number % len(facts)].relation
    pairs = relation.pairs()
    references = pairs[: linker.shots]
    rest = pairs[linker.shots :]
    heads = list(dict.fromkeys(rest[:, 0].tolist()))[:EXAMPLE_HEADS]
    if relation.in_graph:
        references = references[:0]
        lacking = plausible_heads(graph, References((), relation))
        heads = lacking[~np.isin(lacking, pairs[:, 0])][:EXAMPLE_HEADS].tolist() or heads
    return {
        "relation": relation.name,
        "in_graph": relation.in_graph,
        "references": [[offered(entity) for entity in pair] for pair in references.tolist()],
        "heads": [offered(head) for head in heads],
    }


def types_of(linker: Linker, entities: np.ndarray) -> dict[str, list[str]]:
    """The types of these entities (n,) by entity id; empty if the graph has no types."""
    table = linker.graph.types
    if table is None:
        return {}
    types = {}
    for entity in entities.tolist():
        numbers = table.types[table.offsets[entity] : table.offsets[entity + 1]].tolist()
        types[linker.graph.entities[entity]] = [table.names[number] for number in numbers]
    return types


def entity(
    linker: Linker,
    name: str,
    typed: str,
    first_relation: int,
    relations: int,
    first: int,
    count: int,
    relation: str | None,
    inverse: bool,
) -> dict[str, Any]:
    """An entity, its types, and its neighbours by relation, those with the most edges first."""
    graph = linker.graph
    number = linker.names.find(name)
    found = groups_of(graph, number, typed)
    if relation is None:
        chosen = found[first_relation:]
    else:
        only = directed(graph, relation, inverse)
        chosen = [group for group in found if group[0] == only]
    return {
        **described(linker, number),
        "types": linker.names.types_of(number),
        "edges_in_all": int(graph.degrees_of(number)),
        "matching": sum(len(others) for _, others in found),
        "relations_in_all": len(found),
        "relations": [group_facts(linker, number, each, others, first, count) for each, others in chosen[:relations]],
    }


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
