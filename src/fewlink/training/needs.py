"""How much memory a model takes with what it looks at."""

from __future__ import annotations

from fewlink.embeddings import Embeddings
from fewlink.graph import Graph
from fewlink.memory import Parts
from fewlink.models.known import NEIGHBOURS
from fewlink.training.settings import AnySettings, TrailSettings
from fewlink.training.trail_vectors import TrailVectors

PROGRAM = 4e8
NEIGHBOUR = 4 + 4 + 1  # bytes of its relation (of TRAIL: how many share it), of its entity, and whether it is there
EDGE = 90  # bytes of an edge in TRAIL's arrays, those of its graph and those while they are made
SORTED_EDGE = 40  # bytes of an edge while neighbours are chosen


def needs(
    graph: Graph, vectors: Embeddings | TrailVectors, settings: AnySettings, *, runs: int = 1, training: bool = False
) -> Parts:
    """Bytes that runs of a model side by side take, or one that only answers, by what they are for.

    On the CPU vectors stay in their file, of which only touched rows are read, unless they are tuned.
    """
    entities, edges = len(graph.entities), 2 * graph.triple_count
    if isinstance(settings, TrailSettings):
        assert isinstance(vectors, TrailVectors)
        looks, dims, most, edge = 1 + settings.views * training, sum(t.dim for t in vectors.known), NEIGHBOURS, EDGE
        copies = float(settings.device != "cpu")
    else:
        assert isinstance(vectors, Embeddings)
        looks, dims, most, edge = runs, vectors.dim, settings.neighbours, SORTED_EDGE
        copies = (settings.device != "cpu" or settings.standardise) / runs + 4 * (settings.embedding_rate > 0)
    return {
        "vectors": looks * copies * 4 * entities * dims,
        "neighbours": looks * float(NEIGHBOUR) * entities * most,
        "edges": (looks if edge == EDGE else 1) * float(edge) * edges,
        "the program": PROGRAM,
    }
