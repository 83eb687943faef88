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
    priority = choose("neighbour rule", rule, {"sampled": _drawn, "first": _file_order})(graph, seed)
    order = np.lexsort((priority, graph.head_ids))
    counts = np.minimum(graph.degrees, most)
    kept, owners = spans(graph.offsets[:-1], graph.offsets[:-1] + counts)
    # a draw decides who is in, and the graph's order stays within a row; the file's order is kept as it is
    chosen = np.sort(order[kept]) if rule == "sampled" else order[kept]
    columns = np.arange(len(kept)) - (np.cumsum(counts) - counts)[owners]
    relations = np.full((len(graph.entities), most), PADDING, np.int32)
    entities = np.full((len(graph.entities), most), PADDING, np.int32)
    relations[owners, columns] = graph.relation_ids[chosen]
    entities[owners, columns] = graph.tail_ids[chosen]
    return NeighbourTable(relations, entities, counts.astype(np.int32))


def _drawn(graph: Graph, seed: int) -> np.ndarray:
    inverse, forward = np.divmod(graph.relation_ids, len(graph.relations))
    slots = (2 * forward + inverse).astype(np.uint64)  # unlike relation ids, the same with more relations
    return scramble(scramble(scramble(graph.head_ids, seed) ^ slots) ^ graph.tail_ids.astype(np.uint64))


def _file_order(graph: Graph, seed: int) -> np.ndarray:
    # a triple comes before its inverse where both end at one entity
    return graph.positions.astype(np.int64) * 2 + (graph.relation_ids >= len(graph.relations))
