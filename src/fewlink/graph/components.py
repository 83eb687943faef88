"""Which entities a path joins."""

from __future__ import annotations

import numpy as np

from fewlink.graph.graph import Graph


def joined(graph: Graph, references: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Whether a path joins each head (n,) to an end of a reference (K, 2); references are edges of such paths."""
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
