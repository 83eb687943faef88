"""Two scorers that look at no reference: what chance and fame alone would get."""

from __future__ import annotations

import numpy as np

from fewlink.base.seeds import derive, scramble
from fewlink.graph import Graph
from fewlink.scorers.base import Question


class RandomScorer:
    """A number drawn for each relation, head and candidate: the same whatever the order or the batch."""

    name = "random"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, question: Question) -> np.ndarray:
        heads = scramble(question.heads, derive(self.seed, question.relation))
        mixed = scramble(heads[:, None] ^ question.candidates.astype(np.uint64)[None, :])
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


class PopularityScorer:
    """The candidate's degree in the background graph."""

    name = "popularity"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.degrees = graph.degrees

    def __call__(self, question: Question) -> np.ndarray:
        fame = np.log1p(self.degrees[question.candidates])
        return np.broadcast_to(fame, (len(question.heads), len(fame)))
