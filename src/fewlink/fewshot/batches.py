"""The batch of a training step: the entities of its episodes, and the position of each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.data.episodes import Episodes


class EpisodeBatch(NamedTuple):
    """Of S runs. Shapes: `ids` (S, U) entities; `references` (S, R, K, 2), `pairs` (S, R, B + B·N, 2) positions in it.

    Of each of the R relations the pairs are the B queries, then each query's head with its N polluted tails.
    """

    ids: Tensor
    references: Tensor
    pairs: Tensor


class Layout:
    """The positions of an episode's entities, the same in every step, so that a step needs nothing but the ids."""

    def __init__(self, runs: int, relations: int, shots: int, batch: int, negatives: int, device: str) -> None:
        self.relations = relations
        sizes = (2 * shots, 2 * batch, batch * negatives)
        positions = torch.arange(sum(sizes), device=device)
        references, queries, polluted = positions.split(sizes)
        references, queries, polluted = references.view(-1, 2), queries.view(-1, 2), polluted.view(batch, -1)
        heads = queries[:, :1].expand_as(polluted)
        pairs = torch.cat([queries, torch.stack([heads, polluted], -1).flatten(0, 1)])
        begins = torch.arange(relations, device=device).view(-1, 1, 1) * len(positions)
        self.references = (references + begins).expand(runs, -1, -1, -1)
        self.pairs = (pairs + begins).expand(runs, -1, -1, -1)

    def ids(self, episodes: Episodes) -> Tensor:
        """The entities (S, steps, U) of the steps that these episodes (S, steps · R) make up."""
        parts = [part.flatten(2) for part in (episodes.references, episodes.queries, episodes.negatives)]
        steps: Tensor = torch.cat(parts, -1).unflatten(1, (-1, self.relations))
        return steps.flatten(2)

    def batch(self, ids: Tensor) -> EpisodeBatch:
        """The batch of a step's entities (S, U)."""
        return EpisodeBatch(ids, self.references, self.pairs)


def compact(batch: EpisodeBatch) -> EpisodeBatch:
    """The same batch with each entity once, so that less is encoded: for a single run on the CPU."""
    ids, places = batch.ids.unique(return_inverse=True)  # (U',), (1, U)
    return EpisodeBatch(ids.unsqueeze(0), places[0][batch.references], places[0][batch.pairs])
