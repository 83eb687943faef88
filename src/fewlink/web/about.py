"""Facts about the model and the graph of a server, and examples of queries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import fewlink
from fewlink.base.errors import FewlinkError
from fewlink.prediction import Linker
from fewlink.prediction.names import entity_of, fold
from fewlink.web.schema import MOST_REFERENCES, Settings

LISTED = 2_000  # relations that are listed at most
HEADS = 4  # of an example


def about(linker: Linker, settings: Settings) -> dict[str, Any]:
    graph, calibration = linker.graph, linker.calibration
    names = [graph.relation_name(number) for number in range(min(len(graph.relations), LISTED))]
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
        "evidence": dict(getattr(linker.scorer, "evidence", {})),
        "calibration": calibration
        and {field: getattr(calibration, field) for field in ("error", "base", "count", "rough")},
        "limits": {
            "references": MOST_REFERENCES,
            "heads": settings.heads,
            "k": settings.k,
            "rows": settings.rows,
            "explained": settings.explained,
        },
    }


def types(linker: Linker, typed: str, limit: int) -> list[dict[str, Any]]:
    """Types that contain the typed text: first those that start with it, then by the number of members."""
    pattern = fold(typed.strip())
    matches = [
        (not folded.startswith(pattern), -members, name)
        for name, folded, members in _types(linker)
        if pattern in folded and members
    ]
    return [{"name": name, "members": -members} for _, members, name in sorted(matches)[:limit]]


@functools.lru_cache(maxsize=4)
def _types(linker: Linker) -> list[tuple[str, str, int]]:
    """Each type's name, its folded name, and its number of members."""
    table = linker.graph.types
    if table is None:
        return []
    counts = np.bincount(table.types, minlength=len(table.names)).tolist()
    return [(name, fold(name), count) for name, count in zip(table.names, counts, strict=True)]


def example(linker: Linker, number: int) -> dict[str, Any]:
    """References and query heads of a relation, another one for each number; those not trained on come first."""
    tasks = [task for split in ("test", "dev", "train") for task in linker.measured.tasks.get(split, [])]
    tasks = [task for task in tasks if len(task.pairs) > linker.shots]
    if not tasks:
        raise FewlinkError(f"{linker.measured.name} has no relation with more than {linker.shots} pairs")
    task, graph = tasks[number % len(tasks)], linker.measured.graph
    references, rest = task.pairs[: linker.shots], task.pairs[linker.shots :]
    heads = list(dict.fromkeys(rest[:, 0].tolist()))[:HEADS]
    return {
        "relation": task.name,
        "references": [[vars(entity_of(graph, entity)) for entity in pair] for pair in references.tolist()],
        "heads": [vars(entity_of(graph, head)) for head in heads],
    }
