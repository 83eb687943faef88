"""How like the references' tails a candidate is, whatever the head."""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph
from fewlink.graph.csr import spans
from fewlink.scorers.base import Question

CHUNK = 8192  # candidates whose relation profiles are held at once
DIGITS = 9  # a matrix product rounds by its shape; equal profiles must tie in every batch


class ReferenceTailsScorer:
    """The mean over the references' tails t of two cosines between t and a candidate c.

    The first compares in how many edges of each relation (inverse ones apart) t and c take part, as log(1 + count); the
    second which (relation, neighbour) edges they share, an edge that n entities share weighing 1/log(1 + n).
    """

    name = "reference-tails"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.graph = graph

    def __call__(self, question: Question) -> np.ndarray:
        tails, repeats = np.unique(question.references[:, 1], return_counts=True)
        weights = repeats / repeats.sum()
        slots = self._slot_cosines(tails, question.candidates) @ weights  # (candidates,)
        shared = self._shared_neighbours(tails, weights)[question.candidates]
        scores = np.round(slots + shared, DIGITS)
        return np.broadcast_to(scores, (len(question.heads), len(question.candidates)))

    def _slot_cosines(self, tails: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        wanted = self._profiles(tails)  # (tails, 2R)
        parts = [candidates[i : i + CHUNK] for i in range(0, len(candidates), CHUNK)]
        return np.concatenate([self._profiles(part) @ wanted.T for part in parts])

    def _profiles(self, entities: np.ndarray) -> np.ndarray:
        """Unit vectors (entities, 2R) of relation counts; zero for an entity without edges."""
        at, owners = self.graph.edges_of(entities)
        width = 2 * len(self.graph.relations)
        flat = owners * width + self.graph.relation_ids[at]
        counts = np.bincount(flat, minlength=len(entities) * width).reshape(-1, width)
        profile = np.log1p(counts)
        return profile / np.maximum(np.linalg.norm(profile, axis=1, keepdims=True), 1e-12)  # type: ignore[no-any-return]

    def _shared_neighbours(self, tails: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """For every entity, the weighted share of its edges that the tails have too: (entities,)."""
        graph, width = self.graph, len(self.graph.relations)
        at, owners = graph.edges_of(tails)
        relations, middles = graph.relation_ids[at], graph.tail_ids[at]
        back = np.where(relations < width, relations + width, relations - width)
        edges, edge_owners = spans(graph.offsets[middles], graph.offsets[middles + 1])
        same = graph.relation_ids[edges] == back[edge_owners]
        edges, edge_owners = edges[same], edge_owners[same]
        sharing = np.bincount(edge_owners, minlength=len(at))
        worth = (
            weights[owners] / np.log1p(np.maximum(sharing, 1)) / np.sqrt(np.maximum(graph.degrees[tails[owners]], 1))
        )
        total = np.bincount(graph.tail_ids[edges], worth[edge_owners], minlength=len(graph.entities))
        return total / np.sqrt(np.maximum(graph.degrees, 1))  # type: ignore[no-any-return]
