"""A description of a user's graph, with its possible problems."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.graph.compile import read_graph
from fewlink.graph.graph import Graph
from fewlink.graph.groups import spans
from fewlink.graph.source import (
    CompileReport,
)

SHOWN_RELATIONS = 20
NEAR = 0.9  # share of common pairs from which two relations count as near-copies
EXAMPLES = 5


def check_graph(
    path: Path, *, types: Path | None = None, names: Path | None = None, smallest: int = 50, largest: int = 500
) -> dict[str, Any]:
    """The description of a graph that `fewlink data check` prints; bad lines are counted.

    Raises if the file has no triples.
    """
    report = CompileReport()
    graph = read_graph([Path(path)], types, names, skip=True, report=report)
    if not graph.triple_count:
        raise report.no_triples([Path(path)])
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    order = np.argsort(-sizes, kind="stable")
    tasks = [graph.relations[r] for r in order if smallest <= sizes[r] <= largest]
    parts = _component_sizes(graph)
    counts = {
        "triples": graph.triple_count,
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "entity types": len(graph.types.names) if graph.types else 0,
        **({"entities with a readable name": _named_count(graph)} if names else {}),
        "bad lines": report.skipped,
        "duplicate triples": report.duplicates,
        "self-loops": report.self_loops,
        "literals left out": report.literals,
        "connected parts": len(parts),
        "isolated entities": int((parts == 1).sum()),
        "entities with one edge": int((graph.degrees == 1).sum()),
        "relations with one triple": int((sizes == 1).sum()),
        "possible few-shot tasks": len(tasks),
    }
    relations = [
        {
            "relation": graph.relations[r],
            **({"name": graph.relation_name(r)} if names else {}),
            "triples": int(sizes[r]),
            **_end_counts(triples[triples[:, 1] == r]),
        }
        for r in order[:SHOWN_RELATIONS]
    ]
    return {
        "file": str(path),
        "counts": counts,
        "degrees": _degree_table(graph.degrees),
        "largest_relations": relations,
        "possible_tasks": tasks,
        "problems": _problems(graph, triples, report, len(tasks), smallest, largest),
    }


def _named_count(graph: Graph) -> int:
    """The number of entities whose readable name is not their id."""
    return sum(label != name for name, label in zip(graph.entities, graph.labels or (), strict=False))


def _end_counts(triples: np.ndarray) -> dict[str, int]:
    return {"heads": len(np.unique(triples[:, 0])), "tails": len(np.unique(triples[:, 2]))}


def _degree_table(degrees: np.ndarray) -> list[dict[str, Any]]:
    limits = [0, 1, 2, 3, 5, 10, 30, 100, 1000, 10_000, int(1e18)]
    rows = []
    for low, high in itertools.pairwise(limits):
        if count := int(((degrees >= low) & (degrees < high)).sum()):
            label = str(low) if high == low + 1 else f"{low:,} and more" if high > 1e17 else f"{low:,} to {high - 1:,}"
            rows.append({"degree": label, "entities": count})
    return rows


def _component_sizes(graph: Graph) -> np.ndarray:
    """The sizes of the connected components: each component joins its smallest neighbour until none is left.

    A component that none joins in one round joins another in the next, so their number halves every two rounds.
    """
    label = np.arange(len(graph.entities))
    while True:
        heads, tails = label[graph.head_ids], label[graph.tail_ids]
        if np.array_equal(heads, tails):
            return np.unique(label, return_counts=True)[1]
        np.minimum.at(label, heads, tails)
        while not np.array_equal(label, label[label]):
            label = label[label]


def _problems(
    graph: Graph, triples: np.ndarray, report: CompileReport, tasks: int, smallest: int, largest: int
) -> list[str]:
    problems = [*report.headers, *(f"{report.skipped:,} bad lines, the first: {p}" for p in report.problems[:1])]
    problems += [f"also: {p}" for p in report.problems[1:]]
    if report.duplicates:
        problems.append(f"{report.duplicates:,} duplicate triples; compiling leaves them out")
    if report.self_loops:
        example = graph.entities[int(triples[triples[:, 0] == triples[:, 2]][0, 0])]
        problems.append(f"{report.self_loops:,} self-loops, such as on '{example}'")
    if both := [name for name in graph.relations if name in graph.entities]:
        problems.append(
            f"{len(both):,} names are both an entity and a relation ({_some(both)}): is the order of columns right?"
        )
    names = itertools.chain(graph.entities, graph.relations)
    if padded := [name for name in names if name != name.strip()]:
        problems.append(
            f"{len(padded):,} names begin or end with white space ({_some(padded)}): they differ from those without it"
        )
    problems += _near_copies(graph, triples)
    if tasks < 3:
        problems.append(
            f"only {tasks} relations have {smallest} to {largest} triples; carving needs 3: try other limits"
        )
    if len(graph.relations) == 1:
        problems.append("only one relation: there would be no background")
    return problems


def _near_copies(graph: Graph, triples: np.ndarray) -> list[str]:
    """Relations with nearly the pairs of another one or their inverses: answers would leak through them."""
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    triples = triples[sizes[triples[:, 1]] >= EXAMPLES].astype(np.int64)
    heads, relations, tails = triples[np.lexsort((triples[:, 2], triples[:, 0]))].T  # by pair
    pairs = heads * len(graph.entities) + tails
    near_copies = []
    for how, others in (("a copy", pairs), ("the inverse", tails * len(graph.entities) + heads)):
        at, owners = spans(np.searchsorted(pairs, others), np.searchsorted(pairs, others, "right"))
        both, shared = np.unique(relations[at] * len(sizes) + relations[owners], return_counts=True)
        first, second = np.divmod(both, len(sizes))
        share = shared / np.maximum(sizes[first], sizes[second])
        near = (first < second) & (share >= NEAR)
        near_copies += [(a, b, how, s) for a, b, s in zip(first[near], second[near], share[near], strict=True)]
    names = graph.relations
    return [
        f"'{names[b]}' is nearly {how} of '{names[a]}' ({s:.0%} of the pairs)" for a, b, how, s in sorted(near_copies)
    ]


def _some(names: list[str]) -> str:
    return ", ".join(repr(n) for n in names[:EXAMPLES]) + (", …" if len(names) > EXAMPLES else "")
