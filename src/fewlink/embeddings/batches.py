"""Triples of a training run: those to learn from, in batches, and those held out for early stopping."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fewlink.core.errors import FewlinkError
from fewlink.core.metrics import realistic_rank
from fewlink.core.seeds import derive, generator
from fewlink.embeddings.interactions import EXCLUDED, Interaction, slice_rows
from fewlink.embeddings.settings import EmbeddingSettings
from fewlink.embeddings.shards import PIECE, Answers, Batch, Shard


def torch_generator(seed: int, *words: object) -> torch.Generator:
    """A torch generator on the CPU with a seed derived from these words."""
    return torch.Generator().manual_seed(derive(seed, *words))


class Batches:
    """All examples of a graph: triple i forwards is example i, and backwards, under relation r + R, example n + i.

    `part` is (rank, processes): all processes draw the same batch, and each has a contiguous share of its examples.
    `shard` gives the places of entities' rows. Batches do not depend on the device of the triples (n, 3).
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
        self.part, self.shard = part, shard or Shard(entities)
        self.examples = self._prepare()

    def _prepare(self) -> int:
        """Make ready what examples are read from; returns their number."""
        return 2 * len(self.triples)

    def __len__(self) -> int:
        return -(-self.examples // self.settings.batch_size)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Every example once."""
        order = self.order(epoch).to(self.triples.device)
        for index, examples in enumerate(order.split(self.settings.batch_size)):
            yield self.arrange(examples, self.negatives(epoch, index, len(examples)))

    def order(self, epoch: int) -> Tensor:
        """The indices of all examples, (2n,), in the order of this epoch."""
        dtype = torch.int32 if self.examples < 1 << 31 else torch.int64  # the same order in half the memory
        return torch.randperm(self.examples, generator=torch_generator(self.settings.seed, "order", epoch), dtype=dtype)

    def negatives(self, epoch: int, index: int, size: int) -> Tensor:
        """Entities drawn uniformly for a batch: a pool (K,), ascending, or (size, N), N for each example."""
        words, count = (self.settings.seed, "negatives", epoch, index), self.settings.negatives
        if self.settings.corrupt == "each":
            return torch.randint(self.entities, (size, count), generator=torch_generator(*words))
        if self.settings.dense:
            return torch.empty(0, dtype=torch.int64)
        if count >= self.entities:
            return torch.arange(self.entities)
        drawn = generator(*words).choice(self.entities, count, replace=False, shuffle=False)
        return torch.from_numpy(drawn).sort().values

    def arrange(self, examples: Tensor, negatives: Tensor, *, fixed: bool = False) -> Batch:
        """This process's share of the batch of examples (B,); with `fixed`, no shape depends on a value."""
        size, (rank, count) = len(examples), self.part
        share = slice(size * rank // count, size * (rank + 1) // count)  # empty if there are fewer examples than ranks
        examples = examples[share].long()
        backwards = examples >= len(self.triples)
        triples = self.triples.index_select(0, torch.where(backwards, examples - len(self.triples), examples)).long()
        relation, by = (triples[:, 1] + self.relations * backwards).sort(stable=True)
        triples, backwards = triples.index_select(0, by), backwards.index_select(0, by)
        heads = torch.where(backwards, triples[:, 2], triples[:, 0])  # (B,)
        tails = torch.where(backwards, triples[:, 0], triples[:, 2])
        negatives = negatives.to(tails.device)
        if negatives.dim() == 2:
            negatives = negatives[share].index_select(0, by)  # (B, N)
            position, penalty = tails, torch.where(negatives == tails[:, None], EXCLUDED, 0.0)
        else:
            position, penalty = self._true_tails(tails, negatives)
        entities = self.shard.places(torch.cat([heads, tails, negatives.flatten()]))
        if not fixed:
            unique, slots = entities.unique(return_inverse=True)
            relations, counts = relation.unique_consecutive(return_counts=True)
            return Batch(entities, unique, slots, relations, counts, position, penalty, size)
        places, order = entities.sort()
        unique, indices, filled = _padded_unique(places, len(places))
        slots = torch.empty_like(indices).scatter_(0, order, indices)
        relations, indices, filled_relations = _padded_unique(relation, min(len(relation), 2 * self.relations))
        counts = torch.zeros_like(relations).scatter_add_(0, indices, torch.ones_like(indices))
        return Batch(entities, unique, slots, relations, counts, position, penalty, size, (filled, filled_relations))

    def _true_tails(self, tails: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        """The position of tails (B,) in the pool (K,), and their penalty."""
        if not 0 < len(pool) < self.entities:  # every entity is a column
            return tails, torch.full(tails.shape, EXCLUDED, device=tails.device)
        position = torch.searchsorted(pool, tails).clamp_max_(len(pool) - 1)
        return position, torch.where(pool[position] == tails, EXCLUDED, 0.0)


class QueryBatches(Batches):
    """Batches of k-vs-all: an example is a head and relation with all their tails, in either direction."""

    def _prepare(self) -> int:
        heads, kinds, tails = self.triples.long().T
        keys = torch.cat([kinds, kinds + self.relations]) * self.entities + torch.cat([heads, tails])
        keys, by = keys.sort(stable=True)
        self.tails = torch.cat([tails, heads])[by]  # (2n,), those of one example together
        self.keys, self.sizes = keys.unique_consecutive(return_counts=True)  # (Q,) each
        self.ends = self.sizes.cumsum(0)
        return len(self.keys)

    def arrange(self, examples: Tensor, negatives: Tensor, *, fixed: bool = False) -> Batch:
        """This process's share of the batch of examples (B,), which are indices of `keys`."""
        size, (rank, count) = int(self.sizes[examples.long()].sum()), self.part
        examples = examples[len(examples) * rank // count : len(examples) * (rank + 1) // count].long()
        examples = examples.sort().values  # by relation, then by head
        sizes = self.sizes[examples]
        relations, counts = (self.keys[examples] // self.entities).unique_consecutive(return_counts=True)
        owners = torch.arange(len(examples), device=sizes.device).repeat_interleave(sizes)  # (A,)
        shift = (self.ends[examples] - sizes.cumsum(0)).repeat_interleave(sizes)
        tails = self.tails[torch.arange(len(owners), device=shift.device) + shift]
        entities = self.shard.places(torch.cat([self.keys[examples] % self.entities, tails]))
        unique, slots = entities.unique(return_inverse=True)
        none = torch.zeros(len(examples), device=tails.device)
        answers = Answers(sizes, tails, owners)
        return Batch(entities, unique, slots, relations, counts, tails[:0], none, size, answers=answers)


def batches_of(regime: str) -> type[Batches]:
    """The batches of a regime."""
    return QueryBatches if regime == "k-vs-all" else Batches


def _padded_unique(values: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of ascending values (n,): each once, padded with the last (size,); their indices (n,); and `filled` (size,)."""
    indices = (values.diff(prepend=values[:1]) != 0).cumsum(0)
    unique = values[-1:].repeat(size).scatter_(0, indices, values)
    return unique, indices, torch.arange(size, device=values.device).minimum(indices[-1])


MOST = 2000  # triples that are ranked, of which more would only take time


def choose_held_out(triples: np.ndarray, share: float, seed: int, protected: np.ndarray | None = None) -> np.ndarray:
    """A mask (n,) of about `share` of the triples (n, 3).

    Protected triples and the only triple of an entity or relation stay in training.
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
            f"held_out is {share}: no triple can be held out, because each is protected or the only one of its head, "
            "tail or relation: train with held_out 0"
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
        keys, tails = keys[order], known[order, 2]
        first, last = (np.searchsorted(keys, query_keys, side) for side in ("left", "right"))
        self.sizes = last - first  # known tails of each query, (2m,)
        self.ends = np.cumsum(self.sizes)
        places = np.repeat(last - self.ends, self.sizes) + np.arange(self.ends[-1])
        self.tails = tails[places]  # of all queries, in order

    def known_tails(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """The known tails (x,) of a run of queries: the index of the query in the run, and the tail."""
        sizes, ends = self.sizes[part], self.ends[part]
        return np.repeat(np.arange(len(sizes)), sizes), self.tails[ends[0] - sizes[0] : ends[-1]]

    def _answers(self, known: np.ndarray, query_keys: np.ndarray) -> np.ndarray:
        """Of known triples (n, 3), in both directions, those with the head and relation of a query."""
        answers = []
        for first in range(0, len(known), PIECE):
            both = self._both_directions(known[first : first + PIECE])
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
        if len(held) > MOST:
            held = held[np.sort(generator(seed, "held-out", "ranked").choice(len(held), MOST, replace=False))]
        super().__init__(held, known, relations)

    @torch.no_grad()
    def mrr(self, interaction: Interaction, entities: Tensor, relations: Tensor, shard: Shard | None = None) -> float:
        """Mean reciprocal rank with tables (E, d) and (2R, w).

        With a shard, `entities` are its rows, and each process counts higher and tied scores among them.
        """
        device, shard = entities.device, shard or Shard(len(entities))
        rows = slice_rows(shard.most, interaction.bytes_per_score(entities.shape[1]), device.type)
        total = 0.0
        for start in range(0, len(self.queries), rows):
            part = self.queries[start : start + rows]
            heads, middles, tails = (torch.from_numpy(part[:, i]).to(device) for i in range(3))
            queries = interaction.query(shard.rows(entities, heads), relations[middles])  # (rows, d)
            scores = interaction.against(queries, entities)  # (rows, n)
            own = (tails % shard.count == shard.rank).nonzero().squeeze(1)
            true = scores.new_zeros(len(part), 1)
            true[own, 0] = scores[own, tails[own] // shard.count]
            shard.add_([true])
            owners, known = self.known_tails(slice(start, start + rows))
            here = known % shard.count == shard.rank
            filtered = (torch.from_numpy(x[here]).to(device) for x in (owners, known // shard.count))
            scores[tuple(filtered)] = -torch.inf
            counts = torch.stack([(scores > true).sum(1), (scores == true).sum(1)])  # (2, rows)
            shard.add_([counts])
            higher, tied = counts
            total += float((1 / realistic_rank(higher, tied)).sum())
        return total / len(self.queries)
