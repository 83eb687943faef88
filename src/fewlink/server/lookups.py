"""Lookups in a linker's graph that need no model: limits, entities, their edges, and examples."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import fewlink
from fewlink.core.errors import FewlinkError
from fewlink.linker import Linker
from fewlink.linker.constraints import KINDS
from fewlink.linker.names import Names, entity_of
from fewlink.linker.query import find_relation
from fewlink.scorers import capabilities
from fewlink.server.schema import ServerSettings

MAX_LISTED_RELATIONS = 2_000  # in /about
EXAMPLE_HEADS = 4
MAX_SEARCHED_EDGES = 100_000  # of one entity


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
            "base": calibration.base,
            "count": calibration.count,
            "relations": calibration.relations,
            "rough": calibration.rough,
        },
        "limits": {
            "heads": settings.heads,
            "k": settings.k,
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


def example(linker: Linker, number: int) -> dict[str, Any]:
    """References and heads of a relation to try, a different one for each number.

    Test relations come first, then dev and train relations. A graph without tasks offers its own relations.
    """
    graph = linker.measured.graph
    offered = functools.partial(offer, Names(graph))
    tasks = [task for split in ("test", "dev", "train") for task in linker.measured.tasks.get(split, [])]
    names = [task.name for task in tasks if len(task.pairs) > linker.shots]
    if not tasks:
        sizes = np.bincount(graph.relation_ids, minlength=len(graph.relations))[: len(graph.relations)]
        names = [graph.relations[relation] for relation in np.flatnonzero(sizes > linker.shots).tolist()]
    if not names:
        raise FewlinkError(
            f"{linker.measured.name} has no relation with more than {linker.shots} pairs: enter references of your own"
        )
    relation = find_relation(linker.measured, names[number % len(names)])
    pairs = relation.pairs()
    references, rest = pairs[: linker.shots], pairs[linker.shots :]
    heads = list(dict.fromkeys(rest[:, 0].tolist()))[:EXAMPLE_HEADS]
    return {
        "relation": relation.name,
        "references": [[offered(entity) for entity in pair] for pair in references.tolist()],
        "heads": [offered(head) for head in heads],
    }


def entity(linker: Linker, name: str, text: str, first: int, count: int) -> dict[str, Any]:
    """An entity with a page of its edges that have a text in the name of the relation or of the other end."""
    graph = linker.graph
    number = linker.names.find(name)
    begin, end = graph.offsets[number : number + 2].tolist()
    searched = slice(begin, min(end, begin + MAX_SEARCHED_EDGES))
    edges = []
    for relation, other in zip(graph.relation_ids[searched].tolist(), graph.tail_ids[searched].tolist(), strict=True):
        inverse, forward = divmod(relation, len(graph.relations))
        edges.append((graph.relation_name(forward), bool(inverse), graph.name(other), graph.entities[other]))
    typed = text.strip().casefold()
    matching = [edge for edge in edges if typed in f"{edge[0]}\n{edge[2]}\n{edge[3]}".casefold()]
    rows = [
        {"relation": relation, "inverse": inverse, "other": {"id": other, "name": readable}}
        for relation, inverse, readable, other in matching[first : first + count]
    ]
    found = entity_of(graph, number)
    return {
        "id": found.id,
        "name": found.name,
        "types": types_of(linker, np.array([number])).get(found.id, []),
        "edges_in_all": end - begin,
        "matching": len(matching),
        "edges": rows,
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
