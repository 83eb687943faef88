"""How much memory a model takes with what it looks at."""

from __future__ import annotations

import numpy as np

from fewlink.embeddings import Embeddings
from fewlink.graph import Graph
from fewlink.memory import PROGRAM, Parts
from fewlink.models.known import NEIGHBOURS
from fewlink.training.settings import AnySettings, TrailSettings, TrainingSettings
from fewlink.training.trail_vectors import TrailVectors

NEIGHBOUR = 4 + 4 + 4  # bytes of its relation, of its entity, and, of TRAIL, how many share it
SORTED_EDGE = 40  # bytes of an edge while neighbours are chosen
TRAIL_EDGE = 90  # bytes of an edge in TRAIL's arrays, those of its graph and those while they are made


def needs(
    graph: Graph, vectors: Embeddings | TrailVectors, settings: AnySettings, *, runs: int = 1, training: bool = False
) -> Parts:
    """Bytes that runs of a model side by side take, or one that only answers, by what they are for.

    On the CPU vectors stay in their file, of which only touched rows are read, unless they are changed.
    """
    if isinstance(settings, TrailSettings):
        assert isinstance(vectors, TrailVectors)
        return _of_trail(graph, vectors, settings, 1 + settings.views * training)
    assert isinstance(vectors, Embeddings)
    return _of_few_shot(graph, vectors, settings, runs)


def _of_few_shot(graph: Graph, vectors: Embeddings, settings: TrainingSettings, runs: int) -> Parts:
    table = 4.0 * len(graph.entities) * vectors.dim
    copied, tuned = settings.device != "cpu" or settings.standardise, settings.embedding_rate > 0
    return {
        "vectors": table * (copied + 4 * tuned * runs),  # tuned ones have a gradient and two moments
        "neighbours": runs * _neighbours(graph, settings.neighbours),
        "edges": SORTED_EDGE * 2.0 * graph.triple_count,
        "the program": PROGRAM,
    }


def _of_trail(graph: Graph, vectors: TrailVectors, settings: TrailSettings, graphs: int) -> Parts:
    table = 4.0 * len(graph.entities) * sum(part.dim for part in vectors.known)
    return {
        "vectors": graphs * table * (settings.device != "cpu"),
        "neighbours": graphs * _neighbours(graph, NEIGHBOURS),
        "edges": graphs * TRAIL_EDGE * 2.0 * graph.triple_count,
        "the program": PROGRAM,
    }


def _neighbours(graph: Graph, most: int) -> float:
    """Bytes of at most so many neighbours of each entity, and of where they begin."""
    return float(NEIGHBOUR * np.minimum(graph.degrees, most).sum() + 8 * len(graph.entities))
