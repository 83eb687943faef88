"""The neighbours of every entity, up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.core.errors import choose
from fewlink.core.seeds import scramble
from fewlink.graph.graph import Graph
from fewlink.graph.groups import spans


@dataclass(frozen=True)
class NeighbourTable:
    """At most `max_neighbours` neighbours of each entity, in one list.

    The neighbours of entity e are at `offsets[e]:offsets[e+1]`. Shapes: `offsets` (E + 1,) int64; `relations`,
    `entities` (n,) int32; `edges` (n,), the indices of the edges in the graph.
    """

    max_neighbours: int
    offsets: np.ndarray
    relations: np.ndarray
    entities: np.ndarray
    edges: np.ndarray

    def of(self, entity: int) -> list[tuple[int, int]]:
        """The neighbours (relation, entity) of one entity."""
        at = slice(self.offsets[entity], self.offsets[entity + 1])
        return list(zip(self.relations[at].tolist(), self.entities[at].tolist(), strict=True))


def neighbour_table(graph: Graph, max_neighbours: int = 30, rule: str = "sampled", seed: int = 0) -> NeighbourTable:
    """At most `max_neighbours` edges (relation, entity) of each entity, inverse edges included.

    The rule `sampled` draws uniformly, by a hash of the seed and the edge alone, so that edges of other entities do not
    change the sample. The rule `first` takes the first edges in file order, as published programs do.
    """
    chosen = choose("neighbour rule", rule, {"sampled": _sampled, "first": _first})(graph, max_neighbours, seed)
    offsets = np.append(0, np.cumsum(np.minimum(graph.degrees, max_neighbours)))
    return NeighbourTable(max_neighbours, offsets, graph.relation_ids[chosen], graph.tail_ids[chosen], chosen)


def _sampled(graph: Graph, max_neighbours: int, seed: int) -> np.ndarray:
    """The sampled edges in the graph's order; only entities with more than `max_neighbours` edges are sampled."""
    crowded = np.flatnonzero(graph.degrees > max_neighbours)
    edges, owners = graph.edges_of(crowded)
    order = np.lexsort((_edge_hashes(graph, edges, seed), owners))
    begins = np.cumsum(graph.degrees[crowded]) - graph.degrees[crowded]
    kept = np.ones(len(graph.tail_ids), bool)
    kept[edges[order][np.arange(len(edges)) - begins[owners] >= max_neighbours]] = False
    return np.flatnonzero(kept)


def _edge_hashes(graph: Graph, edges: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each edge, which depends on the seed and the edge alone."""
    inverse, forward = np.divmod(graph.relation_ids[edges], len(graph.relations))
    slots = (2 * forward + inverse).astype(
        np.uint64
    )  # unlike relation ids, these do not change when relations are added
    return scramble(scramble(scramble(graph.head_ids[edges], seed) ^ slots) ^ graph.tail_ids[edges].astype(np.uint64))


def _first(graph: Graph, max_neighbours: int, seed: int) -> np.ndarray:
    """The first edges of each entity in file order."""
    # a triple comes before its inverse if both belong to one entity
    priority = graph.positions.astype(np.int64) * 2 + (graph.relation_ids >= len(graph.relations))
    order = np.lexsort((priority, graph.head_ids))
    kept, _ = spans(graph.offsets[:-1], graph.offsets[:-1] + np.minimum(graph.degrees, max_neighbours))
    return np.asarray(order[kept])
