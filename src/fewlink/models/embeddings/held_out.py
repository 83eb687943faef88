"""Held-out triples: how they are chosen, and their filtered ranks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.seeds import generator
from fewlink.models.contract import realistic_rank
from fewlink.models.embeddings.interactions import Interaction
from fewlink.models.embeddings.losses import slice_rows

MAX_RANKED = 2000  # held-out triples; ranking more would take time and change little
TRIPLES_PER_PIECE = 1 << 16  # known triples searched at a time


def choose_held_out(triples: np.ndarray, share: float, seed: int, protected: np.ndarray | None = None) -> np.ndarray:
    """Choose about `share` of the triples (n, 3) to hold out: a mask (n,).

    Protected triples, and triples that are the only one of an entity or relation, stay in training.
    """
    mask = np.zeros(len(triples), dtype=bool)
    if share == 0:
        return mask
    ends = np.bincount(triples[:, [0, 2]].ravel())
    relations = np.bincount(triples[:, 1])
    free = (ends[triples[:, 0]] > 1) & (ends[triples[:, 2]] > 1) & (relations[triples[:, 1]] > 1)
    if protected is not None:
        free &= ~protected
    allowed = np.flatnonzero(free)
    count = min(round(share * len(triples)), len(allowed))
    if count == 0:
        raise FewlinkError(
            f"held_out is {share}, but each triple is protected or the only one of its head, tail or relation: "
            "train with held_out 0"
        )
    mask[generator(seed, "held-out").choice(allowed, count, replace=False)] = True
    return mask


class FilteredQueries:
    """Triples (m, 3) as queries in both directions (2m, 3), with the known tails of each, which do not compete.

    `known` (n, 3) are all known triples; relation r + `relations` is the inverse of r.
    """

    def __init__(self, triples: np.ndarray, known: np.ndarray, relations: int) -> None:
        self.relations = relations
        self.queries = self._both_directions(triples)
        query_keys = self._keys(self.queries)
        known = self._answers(known, np.unique(query_keys))
        keys = self._keys(known)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        tails = known[order, 2]
        first, last = (np.searchsorted(keys, query_keys, side) for side in ("left", "right"))
        self.sizes = last - first  # known tails of each query, (2m,)
        self.ends = np.cumsum(self.sizes)
        places = np.repeat(last - self.ends, self.sizes) + np.arange(self.ends[-1])
        self.tails = tails[places]  # of all queries, in order

    def known_tails(self, run: slice) -> tuple[np.ndarray, np.ndarray]:
        """The known tails (x,) of a run of queries: the index of each tail's query in the run, and the tails."""
        sizes = self.sizes[run]
        ends = self.ends[run]
        return np.repeat(np.arange(len(sizes)), sizes), self.tails[ends[0] - sizes[0] : ends[-1]]

    def _answers(self, known: np.ndarray, query_keys: np.ndarray) -> np.ndarray:
        """The known triples (n, 3), in both directions, that have the head and relation of a query."""
        answers = []
        for first in range(0, len(known), TRIPLES_PER_PIECE):
            both = self._both_directions(known[first : first + TRIPLES_PER_PIECE])
            answers.append(both[np.isin(self._keys(both), query_keys)])
        return np.concatenate(answers)

    def _both_directions(self, triples: np.ndarray) -> np.ndarray:
        backwards = triples[:, ::-1] + np.array([0, self.relations, 0])
        return np.concatenate([triples, backwards]).astype(np.int64)

    def _keys(self, triples: np.ndarray) -> np.ndarray:
        keys: np.ndarray = triples[:, 0].astype(np.int64) * (2 * self.relations) + triples[:, 1]
        return keys


class HeldOut(FilteredQueries):
    """The mean reciprocal rank of held-out triples (m, 3) in both directions, ties at their mean rank."""

    def __init__(self, held: np.ndarray, known: np.ndarray, relations: int, seed: int) -> None:
        if len(held) > MAX_RANKED:
            held = held[np.sort(generator(seed, "held-out", "ranked").choice(len(held), MAX_RANKED, replace=False))]
        super().__init__(held, known, relations)

    @torch.no_grad()
    def mrr(self, interaction: Interaction, entities: Tensor, relations: Tensor) -> float:
        """The mean reciprocal rank with tables (E, d) and (2R, w)."""
        device = entities.device
        rows = slice_rows(len(entities), interaction.bytes_per_score(entities.shape[1]), device.type)
        total = 0.0
        for start in range(0, len(self.queries), rows):
            run = slice(start, start + rows)
            heads, middles, tails = (torch.from_numpy(self.queries[run, i]).to(device) for i in range(3))
            queries = interaction.query(entities.index_select(0, heads), relations[middles])  # (rows, d)
            scores = interaction.against(queries, entities)  # (rows, E)
            true = scores.gather(1, tails.unsqueeze(1))  # (rows, 1)
            owners, known = (torch.from_numpy(ids).to(device) for ids in self.known_tails(run))
            scores[owners, known] = -torch.inf
            higher = (scores > true).sum(1)
            tied = (scores == true).sum(1)
            total += float((1 / realistic_rank(higher, tied)).sum())
        return total / len(self.queries)
