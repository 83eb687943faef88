"""How a graph joins two entities: direct edges, paths along a sequence of relations, and the shortest distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fewlink.core.threads import distinct
from fewlink.graph import Graph

MAX_HOPS = 6  # two entities further apart do not count as joined
MAX_VISITED = 2_000  # entities, in the search for a path without a repeated entity
MAX_EDGES = 1 << 22  # larger neighbourhoods are not searched


def direct_relations(graph: Graph, head: int, tail: int, visible: np.ndarray | None = None) -> list[int]:
    """The relations, inverse ones included, of the edges from head to tail; of those `visible` (2R,), if given."""
    if head == tail:
        return []
    at, _ = graph.edges_of(np.array([head]), visible)
    relations: list[int] = np.unique(graph.relation_ids[at[graph.tail_ids[at] == tail]]).tolist()
    return relations


def simple_path(graph: Graph, head: int, relations: Sequence[int], tail: int) -> list[int]:
    """The entities of a path from head to tail along these relations, which may be inverse, without repeats.

    Of several paths it prefers one through entities with few edges, which are more informative. Empty if there is no
    path, or if the search visits too many entities.
    """
    if head == tail:
        return []
    reached = [np.array([head])]
    for place, relation in enumerate(relations):
        at, _ = graph.edges_of(reached[-1])
        ends = np.unique(graph.tail_ids[at[graph.relation_ids[at] == relation]])
        last = place == len(relations) - 1
        reached.append(np.intersect1d(ends, [tail]) if last else np.setdiff1d(ends, [head, tail]))
    count = len(graph.relations)
    visited = 0

    def back(walked: list[int]) -> list[int]:
        """Extend a path, from its tail backwards, to the head."""
        nonlocal visited
        place = len(relations) - len(walked)  # of the relation that leads to the last entity
        if place < 0:
            return walked[::-1]
        visited += 1
        at, _ = graph.edges_of(np.array([walked[-1]]))
        inverse = (relations[place] + count) % (2 * count)
        beside = np.intersect1d(graph.tail_ids[at[graph.relation_ids[at] == inverse]], reached[place])
        beside = np.setdiff1d(beside, walked)
        for before in beside[np.lexsort((beside, graph.degrees_of(beside)))].tolist():
            if visited > MAX_VISITED:
                break
            if found := back([*walked, before]):
                return found
        return []

    return back([tail]) if len(reached[-1]) else []


def distance(
    graph: Graph, head: int, tail: int, visible: np.ndarray | None = None, max_hops: int = MAX_HOPS
) -> int | None:
    """The length of the shortest path from head to tail, over relations that are `visible` (2R,), if given.

    It is 0 if it exceeds `max_hops`, and None if the search is too long.
    """
    seen = [np.zeros(len(graph.entities), bool) for _ in range(2)]
    fronts = [np.array([head]), np.array([tail])]
    for mask, front in zip(seen, fronts, strict=True):
        mask[front] = True
    for hops in range(1, max_hops + 1):
        edges = [int(graph.degrees_of(front, visible).sum()) for front in fronts]
        side = int(edges[0] > edges[1])
        if edges[side] > MAX_EDGES:
            return None
        at, _ = graph.edges_of(fronts[side], visible)
        ends = distinct(graph.tail_ids[at])
        if seen[1 - side][ends].any():
            return hops
        fronts[side] = ends[~seen[side][ends]]
        seen[side][ends] = True
        if not len(fronts[side]):
            break
    return 0
