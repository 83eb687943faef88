"""Which entities a path joins."""

from __future__ import annotations

import numpy as np

from fewlink.graph.graph import Graph

FEW_EDGES = 100_000  # of a component of a large graph; components with more are taken for one


def joined(graph: Graph, references: np.ndarray, heads: np.ndarray, visible: np.ndarray | None = None) -> np.ndarray:
    """Whether a path joins each head (n,) to an end of a reference (K, 2); references are edges of such paths.

    With `visible` (2R,), a bool for each relation and inverse, paths have edges of visible ones only. It is ignored
    for a graph that is not large: give the graph without the other relations instead.
    """
    if graph.counted is not None:
        return _joined_nearby(graph, np.unique(references), heads, visible)
    parts = graph.once(_components)
    reached = np.zeros(len(parts), bool)
    reached[parts[references]] = True  # by the number of a component, which is an entity of it
    return np.asarray(reached[parts[heads]])


def _components(graph: Graph) -> np.ndarray:
    """The lowest entity (entities,) that a path joins each entity to."""
    lowest = np.arange(len(graph.entities))
    has_edges = np.flatnonzero(graph.degrees)
    begins = graph.offsets[has_edges]
    while len(has_edges):
        before = lowest.copy()
        lowest[has_edges] = np.minimum(before[has_edges], np.minimum.reduceat(before[graph.tail_ids], begins))
        lowest = lowest[lowest]
        if np.array_equal(lowest, before):
            break
    return lowest


def _joined_nearby(graph: Graph, ends: np.ndarray, heads: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """What `joined` returns, without reading all edges.

    A head in a small component is joined if that contains one of the ends (m,); a head in a large component is joined
    if an end is in a large component, too.
    """
    large = any(_component(graph, end, visible) is None for end in ends.tolist())
    found = {}
    for head in np.unique(heads).tolist():
        own = _component(graph, head, visible)
        found[head] = large if own is None else bool(np.isin(ends, own).any())
    return np.array([found[head] for head in heads.tolist()], bool)


def _component(graph: Graph, entity: int, visible: np.ndarray | None) -> np.ndarray | None:
    """The entities that a path joins to one, sorted; None if they have over `FEW_EDGES` edges."""
    reached = new = np.array([entity])
    left = FEW_EDGES
    while len(new):
        left -= int(graph.degrees_of(new, visible).sum())
        if left < 0:
            return None
        new = np.setdiff1d(graph.tail_ids[graph.edges_of(new, visible)[0]], reached)
        reached = np.union1d(reached, new)
    return reached
