"""Held-out triples for early stopping: which ones, and their mean reciprocal rank against all entities."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewlink.base.errors import FewlinkError
from fewlink.base.seeds import generator
from fewlink.embeddings.interactions import Interaction
from fewlink.embeddings.losses import slice_rows
from fewlink.embeddings.shards import PIECE, Shard

MOST = 2000  # triples that are ranked; more only cost time


def choose_held_out(triples: np.ndarray, share: float, seed: int, protected: np.ndarray | None = None) -> np.ndarray:
    """A mask (n,) of about `share` of the triples (n, 3).

    Protected triples stay in training, and so does a triple that is the only one of its head, tail or relation.
    """
    mask = np.zeros(len(triples), dtype=bool)
    if share == 0:
        return mask
    ends = np.bincount(triples[:, [0, 2]].ravel())
    kinds = np.bincount(triples[:, 1])
    free = (ends[triples[:, 0]] > 1) & (ends[triples[:, 2]] > 1) & (kinds[triples[:, 1]] > 1)
    if protected is not None:
        free &= ~protected
    allowed = np.flatnonzero(free)
    count = min(round(share * len(triples)), len(allowed))
    if count == 0:
        raise FewlinkError(
            f"held_out is {share}: no triple can be held out, because each is protected or the only one of its head, "
            "tail or relation; train with held_out 0"
        )
    mask[generator(seed, "held-out").choice(allowed, count, replace=False)] = True
    return mask


class HeldOut:
    """Ranks of held-out triples in both directions, all other known triples left out, ties at their mean rank."""

    def __init__(self, held: np.ndarray, known: np.ndarray, relations: int, seed: int) -> None:
        """`held` (m, 3) is ranked, `known` (n, 3) left out; relation r + `relations` is the inverse of r."""
        if len(held) > MOST:
            held = held[np.sort(generator(seed, "held-out", "ranked").choice(len(held), MOST, replace=False))]
        self.relations = relations
        self.queries = _both_directions(held, relations)  # (2m, 3)
        asked = self._keys(self.queries)
        known = self._asked_for(known, np.unique(asked))
        keys = self._keys(known)
        order = np.argsort(keys, kind="stable")
        keys, tails = keys[order], known[order, 2]
        first, last = np.searchsorted(keys, asked), np.searchsorted(keys, asked, "right")
        self.sizes = last - first  # known tails of each query, (2m,)
        self.ends = np.cumsum(self.sizes)
        self.tails = tails[
            np.repeat(last - self.ends, self.sizes) + np.arange(self.ends[-1])
        ]  # of all queries, in order

    def _asked_for(self, known: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Known triples (n, 3), in both directions, whose head and relation are asked for; a piece at a time."""
        found = []
        for first in range(0, len(known), PIECE):
            both = _both_directions(known[first : first + PIECE], self.relations)
            found.append(both[np.isin(self._keys(both), asked)])
        return np.concatenate(found)

    def _keys(self, triples: np.ndarray) -> np.ndarray:
        keys: np.ndarray = triples[:, 0].astype(np.int64) * (2 * self.relations) + triples[:, 1]
        return keys

    @torch.no_grad()
    def mrr(self, interaction: Interaction, entities: Tensor, relations: Tensor, shard: Shard | None = None) -> float:
        """Mean reciprocal rank with tables (E, d) and (2R, w).

        With a shard, `entities` are its rows: each process counts who is better among its own.
        """
        device, shard = entities.device, shard or Shard(len(entities))
        rows = slice_rows(shard.most, interaction.bytes_per_score(entities.shape[1]), device.type)
        total = 0.0
        for start in range(0, len(self.queries), rows):
            part = self.queries[start : start + rows]
            heads, kinds, tails = (torch.from_numpy(part[:, i]).to(device) for i in range(3))
            queries = interaction.query(shard.rows(entities, heads), relations[kinds])  # (rows, d)
            scores = interaction.against(queries, entities)  # (rows, n)
            own = (tails % shard.count == shard.rank).nonzero().squeeze(1)
            true = scores.new_zeros(len(part), 1)
            true[own, 0] = scores[own, tails[own] // shard.count]
            shard.add_([true])
            sizes = self.sizes[start : start + rows]
            known = self.tails[self.ends[start] - sizes[0] : self.ends[start + len(part) - 1]]
            asked, own_known = np.repeat(np.arange(len(part)), sizes), known % shard.count == shard.rank
            out = (torch.from_numpy(x[own_known]).to(device) for x in (asked, known // shard.count))
            scores[tuple(out)] = -torch.inf
            counts = torch.stack([(scores > true).sum(1), (scores == true).sum(1)])  # (2, rows)
            shard.add_([counts])
            better, equal = counts
            total += float((1 / (1 + better + equal / 2)).sum())
        return total / len(self.queries)


def _both_directions(triples: np.ndarray, relations: int) -> np.ndarray:
    backwards = triples[:, ::-1] + np.array([0, relations, 0])
    return np.concatenate([triples, backwards]).astype(np.int64)
