"""Rules for an explanation: two relations that join a pair one after the other and, alike, its references."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fewlink.core.seeds import by_hash
from fewlink.graph.groups import spans
from fewlink.models.trail.read_graph import ReadGraph

MAX_JOINED = 8  # references that paths are looked for
MAX_EDGES = 20_000  # of an entity from which paths are looked for
Rule = tuple[int, int]


def paths_by_rule(graph: ReadGraph, references: np.ndarray, head: int, tail: int, most: int) -> list[tuple[Rule, int]]:
    """At most `most` rules that join head and tail and some of the references (K, 2), each with an entity between them.

    The rules that join most references come first, then those that lead to fewest entities. Of the rules through the
    same entity only the first counts.
    """
    own = joining(graph, head, tail)
    others = [pair for pair in by_hash(references).tolist() if pair != [head, tail]][:MAX_JOINED]
    joined = Counter(rule for pair in others for rule in joining(graph, *pair).keys() & own)

    def order(rule: Rule) -> tuple[int, int, Rule]:
        return -joined[rule], _fan(graph, head, rule[0]) * _fan(graph, own[rule], rule[1]), rule

    best: dict[int, Rule] = {}
    for rule in sorted(joined, key=order):
        best.setdefault(own[rule], rule)
    return [(rule, between) for between, rule in best.items()][:most]


def joining(graph: ReadGraph, head: int, tail: int) -> dict[Rule, int]:
    """The two relations of each path of two hops from head to tail, and the entity between them.

    Of several entities it is the one with fewest edges. An end with very many edges has no paths here.
    """
    if head == tail or graph.graph.degrees_of(np.array([head, tail]), graph.shown).max() > MAX_EDGES:
        return {}
    half = len(graph.graph.relations)
    (first, begins), (second, ends) = (_edges(graph, entity) for entity in (head, tail))
    inner = (ends != head) & (ends != tail)
    second = (second[inner] + half) % (2 * half)
    ends = ends[inner]
    order = np.argsort(ends, kind="stable")
    at, owner = spans(*(np.searchsorted(ends[order], begins, side) for side in ("left", "right")))
    at = order[at]
    rarest = np.argsort(-graph.graph.degrees_of(ends[at], graph.shown), kind="stable")
    at = at[rarest]
    owner = owner[rarest]
    rules = zip(first[owner].tolist(), second[at].tolist(), strict=True)
    return dict(zip(rules, ends[at].tolist(), strict=True))


def _fan(graph: ReadGraph, entity: int, relation: int) -> int:
    """The number of edges of an entity with a relation."""
    firsts, counts, _ = graph.graph.slots_of(np.array([entity]))
    return int(counts[graph.graph.relation_ids[firsts] == relation].sum())


def _edges(graph: ReadGraph, entity: int) -> tuple[np.ndarray, np.ndarray]:
    """The relations and tails of the visible edges of an entity."""
    at, _ = graph.graph.edges_of(np.array([entity]), graph.shown)
    return graph.graph.relation_ids[at], graph.graph.tail_ids[at]
