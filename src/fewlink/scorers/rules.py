"""Relation paths of one and two hops: those that join the references, followed from each head."""

from __future__ import annotations

import numpy as np

from fewlink.graph import Graph
from fewlink.graph.csr import spans
from fewlink.scorers.base import Question

# What a path is worth that joins no reference, against 1 for one that joins them all (chosen on NELL-One's dev split).
ANY_EDGE = 0.01  # a direct edge of any relation
ANY_PATH = 0.001  # any path of two edges
SAME_TAIL = 0.01  # being the tail of the references
FAME = 1e-6  # degree, which only breaks ties
STEPS_AT_ONCE = 4_000_000  # two-hop steps held in memory together


class RulesScorer:
    """score(h, c) = Σ over paths p from h to c of w(p) / (number of p-paths from h).

    w(p) is the share of the references that p joins, plus a small amount for any path at all. The division makes it the
    probability that a walk from h along the relations of p ends at c.
    """

    name = "rules"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.graph, self.signed = graph, 2 * len(graph.relations)
        self.fame = FAME * np.log1p(graph.degrees)

    def __call__(self, question: Question) -> np.ndarray:
        heads, candidates = question.heads, question.candidates
        place = np.full(len(self.graph.entities), -1, np.int64)
        place[candidates] = np.arange(len(candidates))
        scores = np.tile(self.fame[candidates], (len(heads), 1))
        for tail in question.references[:, 1]:
            if place[tail] >= 0:
                scores[:, place[tail]] += SAME_TAIL / len(question.references)
        learnt = self._learn(question.references)
        for part in self._parts(heads):
            for owners, tails, worth in self._follow(heads[part], *learnt):
                columns = place[tails]
                inside = columns >= 0
                flat = (owners[inside] + part.start) * len(candidates) + columns[inside]
                scores += np.bincount(flat, worth[inside], minlength=scores.size).reshape(scores.shape)
        return scores

    def paths(self, head: int, tail: int) -> tuple[np.ndarray, np.ndarray]:
        """The relations (n,) that join the two directly, and the relation pairs (m, 2) that join them in two hops."""
        graph = self.graph
        out, back = slice(*graph.offsets[head : head + 2]), slice(*graph.offsets[tail : tail + 2])
        direct = graph.relation_ids[out][graph.tail_ids[out] == tail]
        order = np.argsort(graph.tail_ids[back], kind="stable")
        middles = graph.tail_ids[back][order]
        meets = [np.searchsorted(middles, graph.tail_ids[out], side) for side in ("left", "right")]
        at, owners = spans(*meets)
        last = graph.relation_ids[back][order][at]
        half = self.signed // 2
        return direct, np.stack([graph.relation_ids[out][owners], np.where(last < half, last + half, last - half)], 1)

    def _learn(self, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (2R,) of one-hop paths; keys, sorted, and weights of the two-hop paths that join references."""
        one = np.full(self.signed, ANY_EDGE)
        keys = []
        for head, tail in references:
            direct, pairs = self.paths(int(head), int(tail))
            one[np.unique(direct)] += 1 / len(references)
            keys.append(np.unique(pairs[:, 0].astype(np.int64) * self.signed + pairs[:, 1]))
        found, counts = np.unique(np.concatenate(keys), return_counts=True)
        return one, found, counts / len(references)

    def _parts(self, heads: np.ndarray) -> list[slice]:
        """Runs of heads whose two-hop walks fit in memory together."""
        steps = np.concatenate([[0], np.cumsum(self.graph.degrees[self.graph.tail_ids])])
        walked = np.cumsum(steps[self.graph.offsets[heads + 1]] - steps[self.graph.offsets[heads]])
        cuts = np.flatnonzero(np.diff(walked // STEPS_AT_ONCE)) + 1
        return [slice(a, b) for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(heads)], strict=True)]

    def _follow(
        self, heads: np.ndarray, one: np.ndarray, keys: np.ndarray, weights: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """All walks of one and of two hops: index of the head, end, and worth of each."""
        graph = self.graph
        at, owners = graph.edges_of(heads)
        first, middles = graph.relation_ids[at], graph.tail_ids[at]
        here = owners * self.signed + first
        short = one[first] / np.bincount(here, minlength=len(heads) * self.signed)[here]

        on, legs = graph.edges_of(middles)
        path = first[legs].astype(np.int64) * self.signed + graph.relation_ids[on]
        _, which, counts = np.unique(owners[legs] * self.signed**2 + path, return_inverse=True, return_counts=True)
        worth = np.full(len(path), ANY_PATH)
        if len(keys):
            nearest = np.minimum(np.searchsorted(keys, path), len(keys) - 1)
            worth += np.where(keys[nearest] == path, weights[nearest], 0)
        return [(owners, middles, short), (owners[legs], graph.tail_ids[on], worth / counts[which])]
