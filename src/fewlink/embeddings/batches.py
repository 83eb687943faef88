"""Batches as a pure function of (seed, epoch, batch), with every index worked out on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fewlink.embeddings.losses import OUT
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.seeds import derive


def torch_generator(seed: int, *words: object) -> torch.Generator:
    """A torch generator on the CPU for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *words))


@dataclass(frozen=True)
class Batch:
    """B examples sorted by relation, and where their rows lie.

    entities    (M,)    rows to gather: B heads, B tails, then the negatives (none in one-vs-all)
    unique      (U,)    those rows, each once, ascending
    slots       (M,)    entities == unique[slots]
    relations   (V,)    relations of the batch, each once, ascending
    counts      (V,)    examples of each relation
    position    (B,)    a column of the pool; (B, N) negatives have none
    penalty     (B,) or (B, N)  `OUT` where the negative is the true tail, 0 elsewhere
    """

    entities: Tensor
    unique: Tensor
    slots: Tensor
    relations: Tensor
    counts: Tensor
    position: Tensor
    penalty: Tensor

    def __len__(self) -> int:
        return len(self.penalty)

    def to(self, device: str) -> Batch:
        if device == "cpu":
            return self
        moved = (getattr(self, field.name).pin_memory().to(device, non_blocking=True) for field in fields(self))
        return Batch(*moved)


class Batches:
    """All examples of a graph: triple i forwards is example i, and backwards, under relation r + R, example n + i."""

    def __init__(self, triples: Tensor, entities: int, relations: int, settings: EmbeddingSettings) -> None:
        self.triples, self.entities, self.relations, self.settings = triples, entities, relations, settings
        self.examples = 2 * len(triples)

    def __len__(self) -> int:
        return -(-self.examples // self.settings.batch_size)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Every example once, in an order of this epoch's own."""
        order = torch.randperm(self.examples, generator=torch_generator(self.settings.seed, "order", epoch))
        for index, examples in enumerate(order.split(self.settings.batch_size)):
            yield self.prepare(examples, torch_generator(self.settings.seed, "negatives", epoch, index))

    def prepare(self, examples: Tensor, random: torch.Generator) -> Batch:
        """The batch of example numbers (B,), with negatives drawn uniformly from all entities."""
        backwards = examples >= len(self.triples)
        triples = self.triples.index_select(0, torch.where(backwards, examples - len(self.triples), examples))
        relation, by = (triples[:, 1] + self.relations * backwards).sort(stable=True)
        triples, backwards = triples.index_select(0, by), backwards.index_select(0, by)
        heads = torch.where(backwards, triples[:, 2], triples[:, 0])  # (B,)
        tails = torch.where(backwards, triples[:, 0], triples[:, 2])
        negatives, position, penalty = self._negatives(tails, random)
        entities = torch.cat([heads, tails, negatives])
        unique, slots = entities.unique(return_inverse=True)
        relations, counts = relation.unique_consecutive(return_counts=True)
        return Batch(entities, unique, slots, relations, counts, position, penalty)

    def _negatives(self, tails: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Negative entities to gather, and the places where they are the true tail."""
        count = self.settings.negatives
        if self.settings.regime == "one-vs-all":
            return tails[:0], tails, torch.full(tails.shape, OUT)
        if self.settings.corrupt == "each":
            negatives = torch.randint(self.entities, (len(tails), count), generator=random)
            return negatives.flatten(), tails, torch.where(negatives == tails[:, None], OUT, 0.0)
        if count >= self.entities:  # a pool that large is every entity
            return torch.arange(self.entities), tails, torch.full(tails.shape, OUT)
        pool = torch.randint(self.entities, (count,), generator=random).unique()
        position = torch.searchsorted(pool, tails).clamp_max_(len(pool) - 1)
        return pool, position, torch.where(pool[position] == tails, OUT, 0.0)
