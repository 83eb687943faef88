"""A learning-free scorer: a callable with a name, made from a graph and a seed."""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph
from fewlink.models.contract import Question


class CommonNeighbours:
    """How many edges lead from the candidate to a neighbour of the head; the references are not read."""

    name = "common-neighbours"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.graph = graph

    def __call__(self, question: Question) -> np.ndarray:
        graph = self.graph
        edges, owners = graph.edges_of(question.candidates)
        ends = graph.tail_ids[edges]  # the neighbour that each edge of a candidate leads to
        scores = np.zeros((len(question.heads), len(question.candidates)))
        for row, head in enumerate(question.heads):
            near = np.zeros(len(graph.entities), bool)
            near[graph.tail_ids[graph.offsets[head] : graph.offsets[head + 1]]] = True
            scores[row] = np.bincount(owners[near[ends]], minlength=len(question.candidates))
        return scores
