"""Batches as a pure function of (seed, epoch, batch), with every index worked out where the triples are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fewlink.embeddings.losses import OUT
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.shards import Shard
from fewlink.seeds import derive
from fewlink.threads import foreseen


def torch_generator(seed: int, *words: object) -> torch.Generator:
    """A torch generator on the CPU for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *words))


@dataclass(frozen=True)
class Batch:
    """B examples sorted by relation, and where their rows lie; of several processes, the B that this one works on.

    entities    (M,)    places of rows to gather: B heads, B tails, then the negatives (none in one-vs-all)
    unique      (U,)    those places, each once, ascending
    slots       (M,)    entities == unique[slots]
    relations   (V,)    relations of the batch, each once, ascending
    counts      (V,)    examples of each relation
    position    (B,)    a column of the pool; (B, N) negatives have none
    penalty     (B,) or (B, N)  `OUT` where the negative is the true tail, 0 elsewhere
    size                examples of the batch of all processes
    """

    entities: Tensor
    unique: Tensor
    slots: Tensor
    relations: Tensor
    counts: Tensor
    position: Tensor
    penalty: Tensor
    size: int

    def __len__(self) -> int:
        return len(self.penalty)


class Batches:
    """All examples of a graph: triple i forwards is example i, and backwards, under relation r + R, example n + i.

    `part` is a process and how many there are: all draw the same batch, and each works on a run of its examples.
    `shard` says where the entities' rows lie. Batches are the same wherever the triples (n, 3) are; on a GPU, where an
    epoch is short, the order of the next one is drawn meanwhile.
    """

    def __init__(
        self,
        triples: Tensor,
        entities: int,
        relations: int,
        settings: EmbeddingSettings,
        part: tuple[int, int] = (0, 1),
        shard: Shard | None = None,
    ) -> None:
        self.triples, self.entities, self.relations, self.settings = triples, entities, relations, settings
        self.examples = 2 * len(triples)
        self.part, self.shard = part, shard or Shard(entities)
        self._order = foreseen(self.order, settings.epochs) if triples.is_cuda else self.order

    def __len__(self) -> int:
        return -(-self.examples // self.settings.batch_size)

    def order(self, epoch: int) -> Tensor:
        """The numbers of all examples, (2n,), in an order of this epoch's own."""
        kind = torch.int32 if self.examples < 1 << 31 else torch.int64  # the same order in half the memory
        return torch.randperm(self.examples, generator=torch_generator(self.settings.seed, "order", epoch), dtype=kind)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Every example once."""
        order = self._order(epoch).to(self.triples.device)
        for index, examples in enumerate(order.split(self.settings.batch_size)):
            yield self.prepare(examples.long(), torch_generator(self.settings.seed, "negatives", epoch, index))

    def prepare(self, examples: Tensor, random: torch.Generator) -> Batch:
        """This process's part of the batch of examples (B,), with negatives drawn uniformly from all entities."""
        size, (rank, count) = len(examples), self.part
        own = slice(size * rank // count, size * (rank + 1) // count)  # empty where a batch is too small for all
        examples = examples[own]
        backwards = examples >= len(self.triples)
        triples = self.triples.index_select(0, torch.where(backwards, examples - len(self.triples), examples)).long()
        relation, by = (triples[:, 1] + self.relations * backwards).sort(stable=True)
        triples, backwards = triples.index_select(0, by), backwards.index_select(0, by)
        heads = torch.where(backwards, triples[:, 2], triples[:, 0])  # (B,)
        tails = torch.where(backwards, triples[:, 0], triples[:, 2])
        if self.settings.corrupt == "each":
            drawn = torch.randint(self.entities, (size, self.settings.negatives), generator=random)  # by all processes
            negatives = drawn[own].to(tails.device)[by]  # (B, N)
            position, penalty = tails, torch.where(negatives == tails[:, None], OUT, 0.0)
        else:
            negatives, position, penalty = self._pool(tails, random)
        entities = self.shard.places(torch.cat([heads, tails, negatives.flatten()]))
        unique, slots = entities.unique(return_inverse=True)
        relations, counts = relation.unique_consecutive(return_counts=True)
        return Batch(entities, unique, slots, relations, counts, position, penalty, size)

    def _pool(self, tails: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Negatives (K,) for all examples of the batch, and where they are the true tail."""
        count = self.settings.negatives
        if self.settings.regime == "one-vs-all":
            return tails[:0], tails, torch.full(tails.shape, OUT, device=tails.device)
        if count >= self.entities:  # a pool that large is every entity
            every = torch.arange(self.entities, device=tails.device)
            return every, tails, torch.full(tails.shape, OUT, device=tails.device)
        pool = torch.randint(self.entities, (count,), generator=random).unique().to(tails.device)
        position = torch.searchsorted(pool, tails).clamp_max_(len(pool) - 1)
        return pool, position, torch.where(pool[position] == tails, OUT, 0.0)
