"""A doctor for a user's own graph: what is in it, and what looks wrong."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from fewlink.graph.compile import CompileReport, compile_graph
from fewlink.graph.graph import Graph

SHOWN_RELATIONS = 20
NEAR = 0.9  # share of pairs that makes two relations near-copies
FEW_EXAMPLES = 5


def examine(path: Path, *, types: Path | None = None, smallest: int = 50, largest: int = 500) -> dict[str, Any]:
    """Read a graph, bad lines counted, and describe it for `fewlink data check`."""
    report = CompileReport()
    graph = compile_graph([path], types=types, on_error="skip", report=report)
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    order = np.argsort(-sizes, kind="stable")
    tasks = [graph.relations[r] for r in order if smallest <= sizes[r] <= largest]
    parts = _parts(graph)
    counts = {
        "triples": graph.triple_count,
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "entity types": len(graph.types.names) if graph.types else 0,
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
        {"relation": graph.relations[r], "triples": int(sizes[r]), **_ends(triples[triples[:, 1] == r])}
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


def _ends(triples: np.ndarray) -> dict[str, int]:
    return {"heads": len(np.unique(triples[:, 0])), "tails": len(np.unique(triples[:, 2]))}


def _degree_table(degrees: np.ndarray) -> list[dict[str, Any]]:
    limits = [0, 1, 2, 3, 5, 10, 30, 100, 1000, 10_000, int(1e18)]
    rows = []
    for low, high in itertools.pairwise(limits):
        if count := int(((degrees >= low) & (degrees < high)).sum()):
            label = str(low) if high == low + 1 else f"{low:,} and more" if high > 1e17 else f"{low:,} to {high - 1:,}"
            rows.append({"degree": label, "entities": count})
    return rows


def _parts(graph: Graph) -> np.ndarray:
    """The sizes of the connected parts: every entity takes the smallest label around it until nothing changes."""
    label = np.arange(len(graph.entities))
    heads, tails = graph.head_ids, graph.tail_ids
    while True:
        new = label.copy()
        np.minimum.at(new, heads, label[tails])
        new = new[new]  # a label's own label: halves the number of rounds
        if np.array_equal(new, label):
            return np.unique(label, return_counts=True)[1]
        label = new


def _problems(
    graph: Graph, triples: np.ndarray, report: CompileReport, tasks: int, smallest: int, largest: int
) -> list[str]:
    problems = [f"{report.skipped:,} bad lines, the first: {p}" for p in report.problems[:1]]
    problems += [f"also: {p}" for p in report.problems[1:]]
    if report.duplicates:
        problems.append(f"{report.duplicates:,} duplicate triples; they are left out when the graph is compiled")
    if report.self_loops:
        example = graph.entities[int(triples[triples[:, 0] == triples[:, 2]][0, 0])]
        problems.append(f"{report.self_loops:,} self-loops, such as on '{example}'")
    if both := _in_both_roles(graph):
        problems.append(
            f"{len(both):,} names are an entity and a relation at once ({_some(both)}): are the columns in order?"
        )
    if padded := _padded(graph):
        problems.append(
            f"{len(padded):,} names begin or end with a space ({_some(padded)}): they differ from those without"
        )
    problems += _near_copies(graph, triples)
    if tasks < 3:
        problems.append(
            f"only {tasks} relations have {smallest} to {largest} triples; carving needs 3: try other limits"
        )
    if len(graph.relations) == 1:
        problems.append("only one relation: nothing would be left as background")
    return problems


def _in_both_roles(graph: Graph) -> list[str]:
    return [name for name in graph.relations if name in graph.entities]


def _padded(graph: Graph) -> list[str]:
    return [name for vocabulary in (graph.entities, graph.relations) for name in vocabulary if name != name.strip()]


def _near_copies(graph: Graph, triples: np.ndarray) -> list[str]:
    """Relations that nearly repeat another one's pairs, as they are or turned: answers would leak through them."""
    width = len(graph.entities)
    order = np.argsort(triples[:, 1], kind="stable")
    parts = np.split(triples[order], np.cumsum(np.bincount(triples[:, 1], minlength=len(graph.relations)))[:-1])
    straight = [np.sort(p[:, 0].astype(np.int64) * width + p[:, 2]) for p in parts]
    turned = [np.sort(p[:, 2].astype(np.int64) * width + p[:, 0]) for p in parts]
    found = []
    for a in range(len(parts)):
        for b in range(a + 1, len(parts)):
            least, most = sorted((len(straight[a]), len(straight[b])))
            if least < FEW_EXAMPLES or least < NEAR * most:
                continue
            for how, other in (("a copy", straight[b]), ("the inverse", turned[b])):
                share = len(np.intersect1d(straight[a], other, assume_unique=True)) / most
                if share >= NEAR:
                    found.append(
                        f"'{graph.relations[b]}' is nearly {how} of '{graph.relations[a]}' ({share:.0%} of the pairs)"
                    )
    return found


def _some(names: list[str]) -> str:
    return ", ".join(repr(n) for n in names[:FEW_EXAMPLES]) + (", …" if len(names) > FEW_EXAMPLES else "")
