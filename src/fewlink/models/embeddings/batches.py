"""Batches of training examples: triple i is example i and, backwards under relation r + R, example n + i.

In k-vs-all, an example is a head and a relation with all their tails, in either direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.core.seeds import derive, generator
from fewlink.models.embeddings.settings import EmbeddingSettings


class EmbeddingBatch(NamedTuple):
    """B examples with A tails in all; A = B unless an example has all its tails.

    heads      (B,)
    relations  (B,)  relation r + R is the inverse of r
    tails      (A,)  sorted by example
    owners     (A,)  the example of each tail
    ends       B + 1 positions in `tails`: of the first tail of each example, and A
    negatives  (K,)  the entities that are scored beside the tails, ascending; None for every entity
    """

    heads: Tensor
    relations: Tensor
    tails: Tensor
    owners: Tensor
    ends: Sequence[int]
    negatives: Tensor | None


def torch_generator(seed: int, *words: object) -> torch.Generator:
    """A torch generator on the CPU, with a seed derived from the words."""
    return torch.Generator().manual_seed(derive(seed, *words))


class Batches:
    """All examples of triples (n, 3). Batches do not depend on the device of the triples."""

    def __init__(self, triples: Tensor, entities: int, relations: int, settings: EmbeddingSettings) -> None:
        self.triples = triples
        self.entities = entities
        self.relations = relations
        self.settings = settings
        self.examples = 2 * len(triples)
        if settings.regime == "k-vs-all":
            heads, kinds, tails = triples.long().T
            keys = torch.cat([kinds, kinds + relations]) * entities + torch.cat([heads, tails])
            keys, order = keys.sort(stable=True)
            self.tails = torch.cat([tails, heads])[order]  # (2n,), grouped by example
            self.keys, self.sizes = keys.unique_consecutive(return_counts=True)  # (Q,) each
            self.ends = self.sizes.cumsum(0)
            self.examples = len(self.keys)

    def __len__(self) -> int:
        return -(-self.examples // self.settings.batch_size)

    def epoch(self, epoch: int) -> Iterator[EmbeddingBatch]:
        """Yield the batches of an epoch, which have every example once."""
        for index, examples in enumerate(self.order(epoch).split(self.settings.batch_size)):
            yield self.arrange(examples, self.negatives(epoch, index))

    def order(self, epoch: int) -> Tensor:
        """The indices of all examples in the order of an epoch."""
        dtype = torch.int32 if self.examples < 1 << 31 else torch.int64  # the same order in half the memory
        return torch.randperm(self.examples, generator=torch_generator(self.settings.seed, "order", epoch), dtype=dtype)

    def negatives(self, epoch: int, index: int) -> Tensor:
        """Draw the negatives of a batch uniformly: (K,), ascending; none if every entity is scored."""
        count = min(self.settings.negatives, self.entities)
        if self.settings.dense:
            return torch.empty(0, dtype=torch.int64)
        random = generator(self.settings.seed, "negatives", epoch, index)
        drawn = random.choice(self.entities, count, replace=False, shuffle=False)
        return torch.from_numpy(drawn).sort().values

    def arrange(self, examples: Tensor, negatives: Tensor) -> EmbeddingBatch:
        """Make the batch of examples (B,); except in k-vs-all, its shapes do not depend on values."""
        examples = examples.to(self.triples.device).long()
        negatives = negatives.to(self.triples.device)
        if self.settings.regime == "k-vs-all":
            return self._with_all_tails(examples)
        backwards = examples >= len(self.triples)
        triples = self.triples.index_select(0, torch.where(backwards, examples - len(self.triples), examples)).long()
        heads = torch.where(backwards, triples[:, 2], triples[:, 0])
        tails = torch.where(backwards, triples[:, 0], triples[:, 2])
        relations = triples[:, 1] + self.relations * backwards
        owners = torch.arange(len(examples), device=examples.device)
        every = self.settings.dense
        return EmbeddingBatch(heads, relations, tails, owners, range(len(examples) + 1), None if every else negatives)

    def _with_all_tails(self, examples: Tensor) -> EmbeddingBatch:
        """The batch of examples (B,), which are indices of `keys`."""
        examples = examples.sort().values  # by relation, then by head
        sizes = self.sizes[examples]
        owners = torch.arange(len(examples), device=sizes.device).repeat_interleave(sizes)  # (A,)
        shift = (self.ends[examples] - sizes.cumsum(0)).repeat_interleave(sizes)
        tails = self.tails[torch.arange(len(owners), device=shift.device) + shift]
        keys = self.keys[examples]
        ends = [0, *sizes.cumsum(0).tolist()]
        return EmbeddingBatch(keys % self.entities, keys // self.entities, tails, owners, ends, None)
