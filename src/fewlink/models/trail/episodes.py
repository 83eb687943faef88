"""Episodes to learn from: a relation of a graph is hidden, some of its pairs are references, others queries.

Every relation with enough pairs gives episodes in both directions. No copy of the graph is made: the relation, its
inverse and a random share of the others get weight 0. An episode is a pure function of (seed, step, its number).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewlink.core.seeds import generator
from fewlink.data.candidates import SameTypeSampler
from fewlink.graph import Graph
from fewlink.models.trail.reading import Tasks

SMALLEST, LARGEST = 12, 20_000  # pairs of a relation to learn from
MOST_SHOTS = 10
RANGE = 1 << 14  # entities of a relation's range that are kept
RANDOM = 0.2  # share of candidates drawn from all entities
HIDDEN = 0.2  # share of other relations that an episode hides at most


class Batch(NamedTuple):
    """Episodes of one graph.

    Shapes: `answers` (L, Q), the columns of the true tails among the candidates; `excluded` (L, Q, C) bool, the other
    known tails.
    """

    graph: int
    tasks: Tasks
    answers: Tensor
    excluded: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return *self.tasks, self.answers, self.excluded

    def to(self, device: torch.device) -> Batch:
        return self._with(part.to(device, non_blocking=True) for part in self.tensors)

    def clone(self) -> Batch:
        return self._with(part.clone() for part in self.tensors)

    def _with(self, tensors: Iterable[Tensor]) -> Batch:
        *tasks, answers, excluded = tensors
        return Batch(self.graph, Tasks(*tasks), answers, excluded)


@dataclass(frozen=True, eq=False)
class RelationPairs:
    """A relation, possibly inverse: its pairs, sorted by head; those to ask about; and its likely tails."""

    relation: int
    heads: np.ndarray
    tails: np.ndarray
    usable: np.ndarray
    range: np.ndarray


class EpisodeSource:
    """Episodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.entities, self.relations = len(graph.entities), 2 * len(graph.relations)
        self.pairs = relation_pairs(graph)

    def batch(
        self,
        index: int,
        rng: np.random.Generator,
        count: int,
        queries: int,
        candidates: int,
        most_shots: int,
        part: slice = slice(None),
    ) -> Batch:
        """`part` of `count` episodes, the references padded to 8 or 16."""
        episodes = [self.episode(rng, queries, candidates, most_shots) for _ in range(count)][part]
        columns = [np.stack(column) for column in zip(*episodes, strict=True)]
        references, weights, visible, heads, chosen, answers, excluded = map(torch.from_numpy, columns)
        return Batch(index, Tasks(references, weights, visible, heads, chosen), answers, excluded)

    def episode(
        self, rng: np.random.Generator, queries: int, candidates: int, most_shots: int
    ) -> tuple[np.ndarray, ...]:
        own = self.pairs[rng.integers(len(self.pairs))]
        shots = int(rng.integers(1, min(most_shots, len(own.usable) - 4) + 1))
        order = rng.permutation(own.usable)
        references = np.zeros((8 if most_shots <= 8 else 16, 2), np.int64)
        references[:shots, 0], references[:shots, 1] = own.heads[order[:shots]], own.tails[order[:shots]]
        asked = np.resize(order[shots : shots + queries], queries)
        heads, tails = own.heads[asked].astype(np.int64), own.tails[asked]
        visible = (rng.random(self.relations // 2) >= rng.uniform(0, HIDDEN)).astype(np.float32)
        visible[own.relation % (self.relations // 2)] = 0
        chosen = self._candidates(rng, own, tails, candidates)
        excluded = np.zeros((queries, candidates), bool)
        begins, ends = (np.searchsorted(own.heads, heads, side=side) for side in ("left", "right"))
        for query, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            known = own.tails[begin:end]
            at = np.minimum(np.searchsorted(chosen, known), candidates - 1)
            excluded[query, at[chosen[at] == known]] = True
        answers = np.searchsorted(chosen, tails)
        repeated = np.append(False, chosen[1:] == chosen[:-1])  # padding
        excluded |= repeated
        excluded[np.arange(queries), answers] = False
        weights = (np.arange(len(references)) < shots).astype(np.float32)
        return references, weights, np.tile(visible, 2), heads, chosen, answers, excluded

    def _candidates(self, rng: np.random.Generator, own: RelationPairs, tails: np.ndarray, count: int) -> np.ndarray:
        """The tails and random others, most of them likely tails, sorted; the last repeats if there are too few."""
        likely = own.range
        if len(likely) > (1 - RANDOM) * count:
            likely = rng.choice(likely, int((1 - RANDOM) * count) - len(tails), replace=False)
        more = rng.integers(0, self.entities, max(0, count - len(likely) - len(tails)))
        chosen = np.unique(np.concatenate([tails, likely, more])).astype(np.int64)
        return np.append(chosen, np.repeat(chosen[-1:], count - len(chosen)))


def relation_pairs(graph: Graph) -> list[RelationPairs]:
    """All relations to learn from, in both directions, computed once."""
    return graph.once(_relation_pairs)


def _relation_pairs(graph: Graph) -> list[RelationPairs]:
    count = len(graph.relations)
    order = np.argsort(graph.relation_ids, kind="stable")
    bounds = np.searchsorted(graph.relation_ids[order], np.arange(2 * count + 1))
    heads, tails = np.asarray(graph.head_ids)[order], np.asarray(graph.tail_ids)[order]
    sampler, found = SameTypeSampler(graph, RANGE), []
    for relation in range(2 * count):
        part = slice(bounds[relation], bounds[relation + 1])
        if not SMALLEST <= part.stop - part.start <= LARGEST:
            continue
        here = np.bincount(heads[part], minlength=len(graph.entities))
        here += np.bincount(tails[part], minlength=len(graph.entities))
        joined = graph.degrees > here  # by another relation
        usable = np.flatnonzero(joined[heads[part]] & joined[tails[part]])
        if len(usable) >= SMALLEST and len(np.unique(tails[part])) > 1:
            likely = sampler.of(np.unique(tails[part]), RANGE)
            found.append(RelationPairs(relation, heads[part], tails[part], usable, likely))
    return found


class Episodes(torch.utils.data.Dataset[Batch]):
    """The batch of each step, over all graphs; steps choose graphs in proportion to `shares`.

    Each of several processes draws the same episodes and takes its part of them.
    """

    def __init__(
        self,
        sources: Sequence[EpisodeSource],
        shares: Sequence[float],
        seed: int,
        *,
        tasks: int,
        queries: int,
        candidates: int,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.sources, self.shares, self.seed = sources, np.array(shares) / sum(shares), seed
        self.sizes, self.part = (tasks, queries, candidates), slice(rank, None, processes)

    def __getitem__(self, step: int) -> Batch:
        common = generator(self.seed, "step", step)
        graph = int(common.choice(len(self.sources), p=self.shares))
        most_shots = MOST_SHOTS if common.random() < 0.2 else 5
        rng = generator(self.seed, "episodes", step, 0)
        return self.sources[graph].batch(graph, rng, *self.sizes, most_shots, self.part)
