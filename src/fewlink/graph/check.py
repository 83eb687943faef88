"""A description of a user's graph and of likely mistakes in it."""

from __future__ import annotations

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from fewlink.core.words import percent, plural
from fewlink.graph.compile import compile_graph
from fewlink.graph.graph import Graph
from fewlink.graph.groups import spans
from fewlink.graph.source import CompileReport, GraphSource, some_names

MAX_LISTED_RELATIONS = 20  # a screen of them
NEAR_COPY_SHARE = 0.9  # two relations that share this many of their pairs are near-copies
MIN_COMPARED_TRIPLES = 5  # relations with fewer are not compared
MAX_EXAMPLES = 5  # of each problem
MAX_PREVIEW = 5  # triples


def check_graph(source: GraphSource, *, smallest: int = 50, largest: int = 500) -> dict[str, Any]:
    """Describe a graph as `fewlink data check` prints it. Raise if its file has no triples."""
    report = CompileReport()
    graph = compile_graph(source, report=report)
    return _describe(graph, report, source.names is not None, smallest, largest)


def _describe(
    graph: Graph, report: CompileReport, names: bool = False, smallest: int = 50, largest: int = 500
) -> dict[str, Any]:
    triples = graph.triples()
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    order = np.argsort(-sizes, kind="stable")
    tasks = [graph.relations[r] for r in order if smallest <= sizes[r] <= largest]
    components = np.unique(graph.components, return_counts=True)[1]
    similar = _similar(graph, triples)
    counts = {
        "triples": graph.triple_count,
        "entities": len(graph.entities),
        "relations": len(graph.relations),
        "entity types": len(graph.types.names) if graph.types else 0,
    }
    if names:
        counts["entities with a readable name"] = _named_count(graph)
    counts |= {
        "bad lines": report.skipped,
        "duplicate triples": report.duplicates,
        "self-loops": report.self_loops,
        "literals left out": report.literals,
        "connected parts": len(components),
        "isolated entities": int((components == 1).sum()),
        "entities with one edge": int((graph.degrees == 1).sum()),
        "relations with one triple": int((sizes == 1).sum()),
        "possible few-shot tasks": len(tasks),
    }
    relations = []
    for r in order[:MAX_LISTED_RELATIONS]:
        row: dict[str, Any] = {"relation": graph.relations[r]}
        if names:
            row["name"] = graph.relation_name(r)
        pairs = triples[triples[:, 1] == r]
        row["triples"] = int(sizes[r])
        row["heads"] = len(np.unique(pairs[:, 0]))
        row["tails"] = len(np.unique(pairs[:, 2]))
        relations.append(row)
    return {
        **dataclasses.asdict(report.files[0]),
        "first_triples": [_named(graph, triple) for triple in triples[:MAX_PREVIEW]],
        "counts": counts,
        "degrees": _degree_table(graph.degrees),
        "largest_relations": relations,
        "possible_tasks": tasks,
        "similar_names": similar,
        "problems": _problems(graph, triples, report, similar),
    }


def _named_count(graph: Graph) -> int:
    """The number of entities whose readable name is not their id."""
    return sum(label != name for name, label in zip(graph.entities, graph.labels or (), strict=False))


def _degree_table(degrees: np.ndarray) -> list[dict[str, Any]]:
    limits = [0, 1, 2, 3, 5, 10, 30, 100, 1000, 10_000, int(1e18)]
    rows = []
    for low, high in itertools.pairwise(limits):
        count = int(((degrees >= low) & (degrees < high)).sum())
        if not count:
            continue
        if high == low + 1:
            label = str(low)
        elif high == limits[-1]:
            label = f"{low:,} and more"
        else:
            label = f"{low:,} to {high - 1:,}"
        rows.append({"degree": label, "entities": count})
    return rows


def _problems(
    graph: Graph,
    triples: np.ndarray,
    report: CompileReport,
    similar: list[dict[str, Any]],
) -> list[str]:
    problems: list[str] = []
    if report.problems:
        problems.append(f"{plural(report.skipped, 'bad line')}, the first: {report.problems[0]}")
        problems += [f"also: {problem}" for problem in report.problems[1:]]
    if report.literals:
        problems.append(report.literals_remark())
    if report.duplicates:
        problems.append(f"{plural(report.duplicates, 'duplicate triple')}; compiling leaves out the copies")
    if report.self_loops:
        example = graph.entities[int(triples[triples[:, 0] == triples[:, 2]][0, 0])]
        problems.append(f"{plural(report.self_loops, 'self-loop')}, such as on '{example}'")
    if both := [name for name in graph.relations if name in graph.entities]:
        problems.append(
            f"{plural(len(both), 'name is', 'names are')} both entity and relation ({some_names(both)}): "
            "check the order of the columns"
        )
    if similar:
        examples = ["/".join(map(repr, row["names"])) for row in similar[:MAX_EXAMPLES]]
        more = ", …" if len(similar) > MAX_EXAMPLES else ""
        problems.append(
            f"{plural(len(similar), 'group')} of names that differ only in case, accents or spaces "
            f"({', '.join(examples)}{more}): if they mean the same, write them alike"
        )
    names = itertools.chain(graph.entities, graph.relations)
    if padded := [name for name in names if name != name.strip()]:
        problems.append(
            f"{plural(len(padded), 'name begins or ends', 'names begin or end')} with white space "
            f"({some_names(padded)}): remove it"
        )
    problems += _near_copies(graph, triples)
    return problems


def _near_copies(graph: Graph, triples: np.ndarray) -> list[str]:
    """Pairs of relations with nearly the same pairs, or nearly inverse ones: answers would leak through them."""
    sizes = np.bincount(triples[:, 1], minlength=len(graph.relations))
    triples = triples[sizes[triples[:, 1]] >= MIN_COMPARED_TRIPLES].astype(np.int64)
    heads, relations, tails = triples[np.lexsort((triples[:, 2], triples[:, 0]))].T  # by pair
    pairs = heads * len(graph.entities) + tails
    near_copies = []
    for how, others in (("a copy", pairs), ("the inverse", tails * len(graph.entities) + heads)):
        at, owners = spans(np.searchsorted(pairs, others), np.searchsorted(pairs, others, "right"))
        both, shared = np.unique(relations[at] * len(sizes) + relations[owners], return_counts=True)
        first, second = np.divmod(both, len(sizes))
        share = shared / np.maximum(sizes[first], sizes[second])
        near = (first < second) & (share >= NEAR_COPY_SHARE)
        near_copies += [(a, b, how, s) for a, b, s in zip(first[near], second[near], share[near], strict=True)]
    names = graph.relations
    return [
        f"'{names[b]}' is nearly {how} of '{names[a]}' ({percent(s)} of the pairs)"
        for a, b, how, s in sorted(near_copies)
    ]


def _named(graph: Graph, triple: np.ndarray) -> list[str]:
    head, relation, tail = triple.tolist()
    return [graph.entities[head], graph.relations[relation], graph.entities[tail]]


def _similar(graph: Graph, triples: np.ndarray) -> list[dict[str, Any]]:
    """Groups of entities and relations with nearly the same name, each with its number of triples; largest first."""
    rows = []
    counts = (("entity", graph.entities, graph.degrees), ("relation", graph.relations, np.bincount(triples[:, 1])))
    for what, names, uses in counts:
        for group in similar_names(names):
            members = sorted(group, key=lambda number: -int(uses[number]))
            rows.append({"what": what, "names": {names[number]: int(uses[number]) for number in members}})
    return sorted(rows, key=lambda row: -sum(row["names"].values()))


def plain(name: str) -> str:
    """A name in lower case without accents, with single spaces in place of white space, underscores and hyphens."""
    text = name if name.isascii() else unicodedata.normalize("NFKD", name)
    text = "".join(letter for letter in text if not unicodedata.combining(letter)) if not text.isascii() else text
    return " ".join(re.split(r"[\s_\-]+", text.casefold())).strip()


def similar_names(names: Iterable[str]) -> list[list[int]]:
    """Groups of ids whose names are equal in plain form, in order of their first ids."""
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(plain(name), []).append(number)
    return [group for group in groups.values() if len(group) > 1]
