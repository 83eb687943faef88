"""The learning-free family: scorers that need no training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

import numpy as np

from fewlink.core.errors import choose
from fewlink.core.seeds import derive, scramble
from fewlink.core.settings import Settings
from fewlink.graph import Graph
from fewlink.graph.groups import spans
from fewlink.models.contract import Question, Scorer
from fewlink.models.family import BaselineFamily, Prepared, Reporter
from fewlink.models.registry import SCORERS, load_entry_point, plugin_error
from fewlink.tasks.benchmark import Benchmark

DIGITS = 9  # equal scores must tie, in whatever order their terms are added

# Weights of weak evidence, compared with 1 for a path that joins all references (chosen on NELL-One's dev split).
ANY_EDGE = 0.01  # an edge of any relation
ANY_PATH = 0.001  # any path of two edges
SAME_TAIL = 0.01  # the candidate is the tail of the references
DEGREE = 1e-6  # log degree, which only breaks ties
STEPS_AT_ONCE = 4_000_000  # two-hop steps in memory at once


class RandomScorer:
    """A random number for each relation, head and candidate, independent of order and batch."""

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
        scores = np.log1p(self.degrees[question.candidates])
        return np.broadcast_to(scores, (len(question.heads), len(scores)))


class ReferenceTailsScorer:
    """The mean over the references' tails t of two cosines between t and a candidate c.

    The first compares the number of edges of each relation (inverse ones apart) at t and c, as log(1 + count); the
    second the (relation, neighbour) edges that they share, where an edge shared by n entities weighs 1/log(1 + n).
    """

    name = "reference-tails"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.graph = graph

    def __call__(self, question: Question) -> np.ndarray:
        tails, repeats = np.unique(question.references[:, 1], return_counts=True)
        weights = repeats / repeats.sum()
        scores = self._profile_cosines(tails, weights) + self._shared_neighbours(tails, weights)
        scores = np.round(scores[question.candidates], DIGITS)
        return np.broadcast_to(scores, (len(question.heads), len(question.candidates)))

    def _profile_cosines(self, tails: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted mean of the cosines of each entity's relation profile with those of the tails: (entities,)."""
        entities, relations, values = self._profiles
        of_tails = np.zeros(len(self.graph.entities))
        of_tails[tails] = weights
        mean = np.bincount(relations, values * of_tails[entities], minlength=2 * len(self.graph.relations))
        return np.bincount(entities, values * mean[relations], minlength=len(self.graph.entities))

    @functools.cached_property
    def _profiles(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit vectors of relation counts, one for each entity: entities, relations and values other than zero."""
        first = self.graph.slot_starts
        entities = self.graph.head_ids[first]
        relations = self.graph.relation_ids[first]
        values = np.log1p(np.diff(first, append=len(self.graph.head_ids)))
        norms = np.sqrt(np.bincount(entities, values**2, minlength=len(self.graph.entities)))
        return entities, relations, values / norms[entities]

    def _shared_neighbours(self, tails: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted share of each entity's edges that the tails also have: (entities,)."""
        graph = self.graph
        width = len(graph.relations)
        at, owners = graph.edges_of(tails)
        of_edges = weights[owners] / np.sqrt(np.maximum(graph.degrees[tails[owners]], 1))
        keys, which = np.unique(graph.relation_ids[at].astype(np.int64) << 32 | graph.tail_ids[at], return_inverse=True)
        relations = keys >> 32
        middles = keys & 0xFFFFFFFF
        back = np.where(relations < width, relations + width, relations - width)
        edges, edge_owners = spans(graph.offsets[middles], graph.offsets[middles + 1])
        same = graph.relation_ids[edges] == back[edge_owners]
        edges = edges[same]
        edge_owners = edge_owners[same]
        sharing = np.bincount(edge_owners, minlength=len(keys))
        worth = np.bincount(which, of_edges, minlength=len(keys)) / np.log1p(np.maximum(sharing, 1))
        total = np.bincount(graph.tail_ids[edges], worth[edge_owners], minlength=len(graph.entities))
        return total / np.sqrt(np.maximum(graph.degrees, 1))  # type: ignore[no-any-return]


class RulesScorer:
    """score(h, c) = Σ over paths p from h to c of w(p) / (number of p-paths from h).

    A path is a sequence of one or two relations. w(p) is the share of the references that p joins, plus a small
    constant for any path. The quotient is the probability that a walk from h along the relations of p ends at c.
    """

    name = "rules"

    def __init__(self, graph: Graph, seed: int = 0) -> None:
        self.graph = graph
        self.signed = 2 * len(graph.relations)
        self.tie_breakers = DEGREE * np.log1p(graph.degrees)

    def __call__(self, question: Question) -> np.ndarray:
        heads = question.heads
        candidates = question.candidates
        column_of = np.full(len(self.graph.entities), -1, np.int64)
        column_of[candidates] = np.arange(len(candidates))
        scores = np.tile(self.tie_breakers[candidates], (len(heads), 1))
        tails = column_of[question.references[:, 1]]
        repeats = np.bincount(tails[tails >= 0], minlength=len(candidates))
        scores += SAME_TAIL * repeats / len(question.references)
        weights = self._learn(question.references)
        for chunk in self._chunks(heads):
            for owners, tails, worth in self._follow(heads[chunk], *weights):
                columns = column_of[tails]
                inside = columns >= 0
                flat = (owners[inside] + chunk.start) * len(candidates) + columns[inside]
                scores += np.bincount(flat, worth[inside], minlength=scores.size).reshape(scores.shape)
        return scores

    def _learn(self, references: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (2R,) of one-hop paths; sorted keys and weights of the two-hop paths that join references."""
        one = np.full(self.signed, ANY_EDGE)
        direct, _ = self._between(references[:, 0], references[:, 1])
        one += np.bincount(direct, minlength=self.signed) / len(references)
        steps = np.cumsum(self.graph.degrees[references].min(1))
        cuts = np.flatnonzero(np.diff(steps // STEPS_AT_ONCE)) + 1
        keys = [self._two_hops(part) for part in np.split(references, cuts)]
        joining, counts = np.unique(np.concatenate(keys), return_counts=True)
        return one, joining, counts / len(references)

    def _two_hops(self, references: np.ndarray) -> np.ndarray:
        """The distinct two-hop paths of each reference, as keys: walked from the end that has fewer edges."""
        half = self.signed // 2
        swapped = np.diff(self.graph.degrees[references])[:, 0] < 0
        begins, ends = np.where(swapped[:, None], references[:, ::-1], references).T
        at, owners = self.graph.edges_of(begins)
        last, legs = self._between(self.graph.tail_ids[at], ends[owners])
        first = self.graph.relation_ids[at][legs]
        owners = owners[legs]
        back = swapped[owners]
        paths = np.where(back, (last + half) % self.signed, first).astype(np.int64) * self.signed
        paths += np.where(back, (first + half) % self.signed, last)
        return np.unique(np.stack([owners, paths], 1), axis=0)[:, 1]

    def _between(self, heads: np.ndarray, tails: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The relations of all edges from heads (n,) to tails (n,), and for each the index of its head and tail."""
        keys, relations = self._edges
        wanted = heads.astype(np.int64) * len(self.graph.entities) + tails
        at, owners = spans(*(np.searchsorted(keys, wanted, side) for side in ("left", "right")))
        return relations[at], owners

    @functools.cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """A key of head and tail of each edge, sorted, and the edges' relations."""
        keys = self.graph.head_ids.astype(np.int64) * len(self.graph.entities) + self.graph.tail_ids
        order = np.argsort(keys, kind="stable")
        return keys[order], self.graph.relation_ids[order]

    def _chunks(self, heads: np.ndarray) -> list[slice]:
        """Slices of the heads whose two-hop walks fit in memory together."""
        steps = np.concatenate([[0], np.cumsum(self.graph.degrees[self.graph.tail_ids])])
        walked = np.cumsum(steps[self.graph.offsets[heads + 1]] - steps[self.graph.offsets[heads]])
        cuts = np.flatnonzero(np.diff(walked // STEPS_AT_ONCE)) + 1
        return [slice(a, b) for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(heads)], strict=True)]

    def _follow(
        self, heads: np.ndarray, one: np.ndarray, keys: np.ndarray, weights: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """All walks of one and of two hops: the index of the head, the end, and the worth of each."""
        graph = self.graph
        at, owners = graph.edges_of(heads)
        first = graph.relation_ids[at]
        middles = graph.tail_ids[at]
        path = owners * self.signed + first
        worth_of_one = one[first] / np.bincount(path, minlength=len(heads) * self.signed)[path]

        on, legs = graph.edges_of(middles)
        path = first[legs].astype(np.int64) * self.signed + graph.relation_ids[on]
        _, which, counts = np.unique(owners[legs] * self.signed**2 + path, return_inverse=True, return_counts=True)
        worth = np.full(len(path), ANY_PATH)
        if len(keys):
            nearest = np.minimum(np.searchsorted(keys, path), len(keys) - 1)
            worth += np.where(keys[nearest] == path, weights[nearest], 0)
        return [(owners, middles, worth_of_one), (owners[legs], graph.tail_ids[on], worth / counts[which])]


Maker = Callable[[Graph, int], Scorer]  # from a graph and a seed
LEARNING_FREE: dict[str, Maker] = {
    scorer.name: scorer for scorer in (RandomScorer, PopularityScorer, ReferenceTailsScorer, RulesScorer)
}


class LearningFreeFamily(BaselineFamily):
    """The built-in scorers, and those of other packages (entry points `fewlink.scorers`)."""

    name = "learning-free"
    seeded = False
    any_shots = True

    @property
    def models(self) -> Mapping[str, str]:
        return {name: (maker.__doc__ or "").strip().split("\n")[0] for name, maker in scorers().items()}

    def prepare(
        self,
        model: str,
        benchmark: Benchmark,
        settings: Settings | None = None,
        *,
        shots: int,
        draw: int = 0,
        seed: int = 0,
        on_epoch: Reporter | None = None,
    ) -> Prepared:
        return Prepared(learning_free(model, benchmark.graph, seed), {})


@functools.cache
def scorers() -> dict[str, Maker]:
    """All learning-free scorers by name; cached because searching entry points is slow."""
    makers = dict(LEARNING_FREE)
    for point in entry_points(group=SCORERS):
        if point.name in makers:
            raise plugin_error(point, "uses the name of another scorer")
        makers[point.name] = load_entry_point(point)
        if not callable(makers[point.name]):
            raise plugin_error(point, "is not a function that takes a graph and a seed and returns a scorer")
    return makers


def learning_free(name: str, graph: Graph, seed: int = 0) -> Scorer:
    """A learning-free scorer for a graph, by name."""
    return choose("scorer", name, scorers())(graph, seed)


FAMILY = LearningFreeFamily()
