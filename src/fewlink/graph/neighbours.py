"""At most N neighbours of each entity, as the neighbour encoders read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.base.resolver import choose
from fewlink.base.seeds import scramble
from fewlink.graph.csr import spans
from fewlink.graph.graph import Graph


@dataclass(frozen=True)
class NeighbourTable:
    """At most `most` neighbours of each entity, one entity's after another's.

    Shapes: `offsets` (E + 1,) int64 where those of each begin; `relations`, `entities` (n,) int32; `edges` (n,) which
    edges of the graph they are.
    """

    most: int
    offsets: np.ndarray
    relations: np.ndarray
    entities: np.ndarray
    edges: np.ndarray

    def of(self, entity: int) -> list[tuple[int, int]]:
        """The neighbours (relation, entity) of one."""
        own = slice(self.offsets[entity], self.offsets[entity + 1])
        return list(zip(self.relations[own].tolist(), self.entities[own].tolist(), strict=True))


def neighbour_table(graph: Graph, most: int = 30, rule: str = "sampled", seed: int = 0) -> NeighbourTable:
    """At most `most` edges (relation, entity) of each entity, inverse edges included.

    Rules: `sampled` keeps a uniform draw that depends on the seed and the edge alone, so that other entities' edges do
    not change it; `first` keeps the first in file order, as published programs do.
    """
    chosen = choose("neighbour rule", rule, {"sampled": _sampled, "first": _first})(graph, most, seed)
    offsets = np.append(0, np.cumsum(np.minimum(graph.degrees, most)))
    return NeighbourTable(most, offsets, graph.relation_ids[chosen], graph.tail_ids[chosen], chosen)


def _sampled(graph: Graph, most: int, seed: int) -> np.ndarray:
    """The edges that are kept, in the graph's order; a draw decides only where an entity has more than `most`."""
    crowded = np.flatnonzero(graph.degrees > most)
    edges, owners = graph.edges_of(crowded)
    order = np.lexsort((_drawn(graph, edges, seed), owners))
    begins = np.cumsum(graph.degrees[crowded]) - graph.degrees[crowded]
    kept = np.ones(len(graph.tail_ids), bool)
    kept[edges[order][np.arange(len(edges)) - begins[owners] >= most]] = False
    return np.flatnonzero(kept)


def _drawn(graph: Graph, edges: np.ndarray, seed: int) -> np.ndarray:
    """A number for each of these edges, by the seed and the edge alone."""
    inverse, forward = np.divmod(graph.relation_ids[edges], len(graph.relations))
    slots = (2 * forward + inverse).astype(np.uint64)  # unlike relation ids, the same with more relations
    return scramble(scramble(scramble(graph.head_ids[edges], seed) ^ slots) ^ graph.tail_ids[edges].astype(np.uint64))


def _first(graph: Graph, most: int, seed: int) -> np.ndarray:
    """The edges that are kept, those of an entity in the order of the file."""
    # a triple comes before its inverse where both end at one entity
    priority = graph.positions.astype(np.int64) * 2 + (graph.relation_ids >= len(graph.relations))
    order = np.lexsort((priority, graph.head_ids))
    kept, _ = spans(graph.offsets[:-1], graph.offsets[:-1] + np.minimum(graph.degrees, most))
    chosen: np.ndarray = order[kept]
    return chosen
