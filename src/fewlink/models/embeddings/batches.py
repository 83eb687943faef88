"""Batches of training examples, with the rows of the tables that they touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fewlink.core.seeds import derive, generator
from fewlink.models.embeddings.losses import EXCLUDED
from fewlink.models.embeddings.settings import EmbeddingSettings


class TrueTails(NamedTuple):
    """The tails of B examples: the number of each example (B,), all tails (A,), and the example of each tail (A,)."""

    counts: Tensor
    tails: Tensor
    owners: Tensor


@dataclass(frozen=True)
class EmbeddingBatch:
    """B examples sorted by relation, and the entities and relations whose rows they touch.

    entities    (M,)    rows to gather: B heads, B tails, then the negatives (none in one-vs-all);
                        in k-vs-all B heads, then all A tails
    unique      (U,)    those entities, each once, ascending
    slots       (M,)    entities == unique[slots]
    relations   (V,)    relations of the batch, each once, ascending
    counts      (V,)    examples of each relation
    position    (B,)    a column of the pool
    penalty     (B,)    `EXCLUDED` where that column is the true tail, 0 elsewhere
    size                the divisor of the loss: the number of examples; in k-vs-all, of their tails
    answers             in k-vs-all, the tails of each example; otherwise None

    In a batch of fixed shape, U and V are the largest possible numbers: `unique` and `relations` are padded with their
    last value, and padded relations have a count of 0. `filled` are the indices (U,) and (V,) of the values; it is None
    in other batches.
    """

    entities: Tensor
    unique: Tensor
    slots: Tensor
    relations: Tensor
    counts: Tensor
    position: Tensor
    penalty: Tensor
    size: int
    filled: tuple[Tensor, Tensor] | None = None
    answers: TrueTails | None = None

    def __len__(self) -> int:
        return len(self.penalty)


def torch_generator(seed: int, *words: object) -> torch.Generator:
    """A torch generator on the CPU, with a seed derived from the words."""
    return torch.Generator().manual_seed(derive(seed, *words))


class Batches:
    """All examples of a graph: triple i is example i and, backwards under relation r + R, example n + i.

    Batches do not depend on the device of the triples (n, 3).
    """

    def __init__(self, triples: Tensor, entities: int, relations: int, settings: EmbeddingSettings) -> None:
        self.triples = triples
        self.entities = entities
        self.relations = relations
        self.settings = settings
        self.examples = self._prepare()

    def _prepare(self) -> int:
        """Prepare the examples, and return their number."""
        return 2 * len(self.triples)

    def __len__(self) -> int:
        return -(-self.examples // self.settings.batch_size)

    def epoch(self, epoch: int) -> Iterator[EmbeddingBatch]:
        """Yield the batches of an epoch, which have every example once."""
        order = self.order(epoch).to(self.triples.device)
        for index, examples in enumerate(order.split(self.settings.batch_size)):
            yield self.arrange(examples, self.negatives(epoch, index))

    def order(self, epoch: int) -> Tensor:
        """The indices (2n,) of all examples in the order of an epoch."""
        dtype = torch.int32 if self.examples < 1 << 31 else torch.int64  # the same order in half the memory
        return torch.randperm(self.examples, generator=torch_generator(self.settings.seed, "order", epoch), dtype=dtype)

    def negatives(self, epoch: int, index: int) -> Tensor:
        """Draw the negatives of a batch uniformly: a pool (K,), ascending."""
        count = self.settings.negatives
        if self.settings.dense:
            return torch.empty(0, dtype=torch.int64)
        if count >= self.entities:
            return torch.arange(self.entities)
        random = generator(self.settings.seed, "negatives", epoch, index)
        drawn = random.choice(self.entities, count, replace=False, shuffle=False)
        return torch.from_numpy(drawn).sort().values

    def arrange(self, examples: Tensor, negatives: Tensor, *, fixed: bool = False) -> EmbeddingBatch:
        """Make the batch of examples (B,); with `fixed`, no shape depends on a value."""
        size = len(examples)
        examples = examples.long()
        backwards = examples >= len(self.triples)
        triples = self.triples.index_select(0, torch.where(backwards, examples - len(self.triples), examples)).long()
        relation, by = (triples[:, 1] + self.relations * backwards).sort(stable=True)
        triples = triples.index_select(0, by)
        backwards = backwards.index_select(0, by)
        heads = torch.where(backwards, triples[:, 2], triples[:, 0])  # (B,)
        tails = torch.where(backwards, triples[:, 0], triples[:, 2])
        pool = negatives.to(tails.device)
        position, penalty = self._true_tails(tails, pool)
        entities = torch.cat([heads, tails, pool])
        if not fixed:
            unique, slots = entities.unique(return_inverse=True)
            relations, counts = relation.unique_consecutive(return_counts=True)
            return EmbeddingBatch(entities, unique, slots, relations, counts, position, penalty, size)
        ascending, order = entities.sort()
        unique, indices, filled = _padded_unique(ascending, len(ascending))
        slots = torch.empty_like(indices).scatter_(0, order, indices)
        relations, indices, filled_relations = _padded_unique(relation, min(len(relation), 2 * self.relations))
        counts = torch.zeros_like(relations).scatter_add_(0, indices, torch.ones_like(indices))
        return EmbeddingBatch(
            entities, unique, slots, relations, counts, position, penalty, size, (filled, filled_relations)
        )

    def _true_tails(self, tails: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of tails (B,) in the pool (K,), and their penalties."""
        if not 0 < len(pool) < self.entities:  # every entity is a column
            return tails, torch.full(tails.shape, EXCLUDED, device=tails.device)
        position = torch.searchsorted(pool, tails).clamp_max_(len(pool) - 1)
        return position, torch.where(pool[position] == tails, EXCLUDED, 0.0)


class QueryBatches(Batches):
    """The batches of k-vs-all: an example is a head and a relation with all their tails, in either direction."""

    def _prepare(self) -> int:
        heads, kinds, tails = self.triples.long().T
        keys = torch.cat([kinds, kinds + self.relations]) * self.entities + torch.cat([heads, tails])
        keys, by = keys.sort(stable=True)
        self.tails = torch.cat([tails, heads])[by]  # (2n,), grouped by example
        self.keys, self.sizes = keys.unique_consecutive(return_counts=True)  # (Q,) each
        self.ends = self.sizes.cumsum(0)
        return len(self.keys)

    def arrange(self, examples: Tensor, negatives: Tensor, *, fixed: bool = False) -> EmbeddingBatch:
        """Make the batch of examples (B,), indices of `keys`. `fixed` is ignored: shapes depend on the tails."""
        examples = examples.long().sort().values  # by relation, then by head
        sizes = self.sizes[examples]
        relations, counts = (self.keys[examples] // self.entities).unique_consecutive(return_counts=True)
        owners = torch.arange(len(examples), device=sizes.device).repeat_interleave(sizes)  # (A,)
        shift = (self.ends[examples] - sizes.cumsum(0)).repeat_interleave(sizes)
        tails = self.tails[torch.arange(len(owners), device=shift.device) + shift]
        entities = torch.cat([self.keys[examples] % self.entities, tails])
        unique, slots = entities.unique(return_inverse=True)
        none = torch.zeros(len(examples), device=tails.device)
        answers = TrueTails(sizes, tails, owners)
        return EmbeddingBatch(entities, unique, slots, relations, counts, tails[:0], none, len(tails), answers=answers)


def batches_of(regime: str) -> type[Batches]:
    """The class of batches of a regime."""
    return QueryBatches if regime == "k-vs-all" else Batches


def _padded_unique(values: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct ascending values, padded with the last (size,), their indices (n,), and `filled` (size,)."""
    indices = (values.diff(prepend=values[:1]) != 0).cumsum(0)
    unique = values[-1:].repeat(size).scatter_(0, indices, values)
    return unique, indices, torch.arange(size, device=values.device).minimum(indices[-1])
