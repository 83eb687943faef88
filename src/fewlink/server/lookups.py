"""Facts about a linker and its graph that need no model: the limits, entities, their edges, and examples."""

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
from fewlink.server.schema import MAX_REFERENCES, ServerSettings

MAX_LISTED = 2_000  # relations that /about lists
EXAMPLE_HEADS = 4
MAX_SEARCHED = 100_000  # edges of one entity


def about(linker: Linker, settings: ServerSettings) -> dict[str, Any]:
    """The model, its graph, its calibration, and the limits of one request."""
    graph, calibration = linker.graph, linker.calibration
    names = [graph.relation_name(number) for number in range(min(len(graph.relations), MAX_LISTED))]
    tasks = {split: [task.name for task in of] for split, of in linker.measured.tasks.items()}
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
        "relations": {"graph": names, **tasks},
        "constraints": {**KINDS, "auto": "all of these that the known pairs satisfy"},
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
            "references": MAX_REFERENCES,
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
    """References and query heads of a relation, a different one for each number; relations not trained on come first.

    A graph without tasks offers its own relations.
    """
    graph = linker.measured.graph
    offered = functools.partial(offer, Names(graph))
    tasks = [task for split in ("test", "dev", "train") for task in linker.measured.tasks.get(split, [])]
    names = [task.name for task in tasks if len(task.pairs) > linker.shots]
    if not tasks:
        sizes = np.bincount(graph.relation_ids, minlength=len(graph.relations))[: len(graph.relations)]
        names = [graph.relations[relation] for relation in np.flatnonzero(sizes > linker.shots).tolist()]
    if not names:
        raise FewlinkError(f"{linker.measured.name} has no relation with more than {linker.shots} pairs")
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
    """An entity with `count` of its edges that have the text in the name of their relation or of their other end."""
    graph, number = linker.graph, linker.names.find(name)
    begin, end = graph.offsets[number : number + 2].tolist()
    at = slice(begin, min(end, begin + MAX_SEARCHED))
    edges = []
    for relation, other in zip(graph.relation_ids[at].tolist(), graph.tail_ids[at].tolist(), strict=True):
        inverse, forward = divmod(relation, len(graph.relations))
        edges.append((graph.relation_name(forward), bool(inverse), graph.name(other), graph.entities[other]))
    typed = text.strip().casefold()
    matching = [edge for edge in edges if typed in f"{edge[0]}\n{edge[2]}\n{edge[3]}".casefold()]
    rows = [
        {"relation": relation, "inverse": inverse, "other": {"id": other, "name": readable}}
        for relation, inverse, readable, other in matching[first : first + count]
    ]
    types = types_of(linker, np.array([number]))
    facts = {**vars(entity_of(graph, number)), "types": next(iter(types.values()), [])}
    return {**facts, "edges_in_all": end - begin, "matching": len(matching), "edges": rows}


def types_of(linker: Linker, entities: np.ndarray) -> dict[str, list[str]]:
    """The types of each of these entities (n,) by its id; empty if the graph has none."""
    types, ids = linker.graph.types, linker.graph.entities
    if types is None:
        return {}
    return {
        ids[one]: [types.names[kind] for kind in types.types[types.offsets[one] : types.offsets[one + 1]].tolist()]
        for one in entities.tolist()
    }
