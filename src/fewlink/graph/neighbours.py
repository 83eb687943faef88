"""A table of at most N neighbours an entity, as the neighbour encoders read it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fewlink.choices import choose
from fewlink.graph.csr import spans
from fewlink.graph.graph import Graph
from fewlink.seeds import scramble

PADDING = -1


@dataclass(frozen=True)
class NeighbourTable:
    """Shapes: `relations`, `entities` (n, N) int32, padded with -1 behind the `counts` (n,) real ones of each row."""

    relations: np.ndarray
    entities: np.ndarray
    counts: np.ndarray


def neighbour_table(graph: Graph, most: int = 30, rule: str = "sampled", seed: int = 0) -> NeighbourTable:
    """At most `most` edges (relation, entity) of each entity, inverse edges included.

    Rules: `sampled` keeps a uniform draw that depends on the seed and the edge alone, so that other entities' edges do
    not change it; `first` keeps the first in file order, as published programs do.
    """
    chosen = choose("neighbour rule", rule, {"sampled": _sampled, "first": _first})(graph, most, seed)
    counts = np.minimum(graph.degrees, most)
    owners = np.repeat(np.arange(len(graph.entities)), counts)
    columns = np.arange(len(chosen)) - (np.cumsum(counts) - counts)[owners]
    relations = np.full((len(graph.entities), most), PADDING, np.int32)
    entities = np.full((len(graph.entities), most), PADDING, np.int32)
    relations[owners, columns] = graph.relation_ids[chosen]
    entities[owners, columns] = graph.tail_ids[chosen]
    return NeighbourTable(relations, entities, counts.astype(np.int32))


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
