"""Tables of vectors wherever their rows lie: all here, in every process alike, or each row in one of the processes.

In the sampled regime of several processes an entity's row and its optimizer's state lie in one process alone. A step
asks the others for the rows it needs, works out the gradient of its share of the batch, and sends each row's gradient
to where the row lies; there they are added up and the row moves once. Relations are few, and every process has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fewlink.base import distributed
from fewlink.embeddings.optimizers import OPTIMIZERS, Rate, State
from fewlink.embeddings.settings import EmbeddingSettings

if TYPE_CHECKING:
    from fewlink.embeddings.batches import Batch

PIECE = 1 << 16  # rows handled at once where a table is made, read or brought together; a multiple of 16


@dataclass(frozen=True)
class Shard:
    """The rows that process `rank` of `count` keeps of a table of `total`: id e is row e // count in e % count."""

    total: int
    rank: int = 0
    count: int = 1

    def __len__(self) -> int:
        return len(range(self.rank, self.total, self.count))

    @property
    def most(self) -> int:
        """Rows of the process that has most of them."""
        return -(-self.total // self.count)

    def places(self, ids: Tensor) -> Tensor:
        """Ids (n,) to numbers that sort by process, then by row: p · most + row."""
        return ids if self.count == 1 else ids % self.count * self.most + ids // self.count

    def add_(self, tensors: Sequence[Tensor]) -> None:
        """Put the sum over all processes that keep a part in the place of each tensor."""
        if self.count > 1:
            distributed.add_(tensors)

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows (m, d) of ids (m,), out of each process's own table (n, d)."""
        if self.count == 1:
            return table.index_select(0, ids)
        places, slots = self.places(ids).unique(return_inverse=True)
        return Asked(places, self).answers(table).index_select(0, slots)

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Runs of rows, at most PIECE long, each with the ids that they have in the whole table."""
        for first in range(0, len(self), PIECE):
            last = min(first + PIECE, len(self))
            ids = slice(self.rank + first * self.count, self.rank + (last - 1) * self.count + 1, self.count)
            yield slice(first, last), ids


def first_vectors(shard: Shard, width: int, scale: float, random: torch.Generator) -> Tensor:
    """Normal rows (n, w) of a shard: the same for an id whatever the number of processes."""
    rows = torch.empty(len(shard), width)
    pieces = max(1, shard.total // PIECE)  # numbers are drawn in groups of 16, so the last piece is not a short one
    for first in range(0, pieces * PIECE, PIECE):
        last = first + PIECE if first + PIECE < pieces * PIECE else shard.total
        drawn = torch.empty(last - first, width).normal_(0, scale, generator=random)
        own = drawn[(shard.rank - first) % shard.count :: shard.count]
        at = len(range(shard.rank, first, shard.count))
        rows[at : at + len(own)] = own
    return rows


class Asked:
    """Rows that this process asks the others for by their places (U,), ascending, and those that they ask it for."""

    def __init__(self, places: Tensor, shard: Shard) -> None:
        starts = torch.arange(shard.count + 1, device=places.device) * shard.most
        counts, each = torch.searchsorted(places, starts).diff(), [1] * shard.count
        came = distributed.exchanged(counts, each, each)
        self.sent, self.received = torch.stack([counts, came]).tolist()
        self.rows = distributed.exchanged(places % shard.most, self.sent, self.received)  # (A,)

    def answers(self, table: Tensor) -> Tensor:
        """The rows asked for (U, d), out of each process's own table (n, d)."""
        return distributed.exchanged(table.index_select(0, self.rows), self.received, self.sent)

    def added(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients (U, d) of the rows asked for to gradients of own rows: which ones, each once, and their sums."""
        parts = distributed.exchanged(gradient, self.sent, self.received)  # (A, d)
        rows, slots = self.rows.unique(return_inverse=True)
        return rows, parts.new_zeros(len(rows), parts.shape[1]).index_add_(0, slots, parts)


class Tables:
    """Vectors of entities (n, d) and relations (2R, w) with their optimizer's state, all rows in this process."""

    def __init__(self, shard: Shard, vectors: dict[str, Tensor], settings: EmbeddingSettings) -> None:
        self.shard, self.vectors = shard, vectors
        self.optimizer = OPTIMIZERS[settings.optimizer]()
        self.states: dict[str, State] = {name: self.optimizer.start(table) for name, table in vectors.items()}

    def gather(self, batch: Batch) -> list[Tensor]:
        """What the loss of a batch follows from: entity rows (M, d) and relation rows (V, w)."""
        return [
            self.vectors["entities"].index_select(0, batch.entities),
            self.vectors["relations"].index_select(0, batch.relations),
        ]

    def move(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        """Move the rows along the gradients of what was gathered; the loss of the whole batch, a scalar."""
        self._step("entities", self._merged(batch, gradients[0]), rate, batch.unique)
        self._step("relations", self._of_kinds(batch, gradients[1]), rate, batch.relations)
        return loss

    def _merged(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (M, d) of rows that may occur several times to (U, d), each row once."""
        merged = gradient.new_zeros(len(batch.unique), gradient.shape[1]).index_add_(0, batch.slots, gradient)
        return merged if batch.filled is None else merged.index_select(0, batch.filled[0])

    def _of_kinds(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (V, w) of the batch's relations; those that fill it up have the last one's."""
        return gradient if batch.filled is None else gradient.index_select(0, batch.filled[1])

    def _every_kind(self, batch: Batch, gradient: Tensor) -> Tensor:
        """Gradients (V, w) of the batch's relations to (2R, w), zero for all others."""
        every = torch.zeros_like(self.vectors["relations"])
        return every.index_copy_(0, batch.relations, self._of_kinds(batch, gradient))

    def _step(self, name: str, gradient: Tensor, rate: Rate, rows: Tensor | None = None) -> None:
        self.optimizer.step(self.vectors[name], self.states[name], gradient, rate, rows)

    def whole(self, table: Tensor, place: Path | None = None) -> Tensor:
        """All rows of an entity table (E, d) on the CPU, in each process."""
        return table.cpu()

    def part(self) -> tuple[Tensor, Shard]:
        """The entity rows that this process looks at where all are looked at once, and which they are."""
        shard = Shard(self.shard.total, distributed.rank(), distributed.count())
        return self.vectors["entities"][shard.rank :: shard.count], shard


class DenseTables(Tables):
    """For one-vs-all: every row is gathered and moves, in every process alike."""

    def gather(self, batch: Batch) -> list[Tensor]:
        """Entity rows (M, d), relation rows (V, w), and every entity's row (E, d)."""
        return [*super().gather(batch), self.vectors["entities"].detach()]

    def move(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        for_rows, for_kinds, for_every = gradients
        for_every.index_add_(0, batch.entities, for_rows)  # (E, d)
        every_kind = self._every_kind(batch, for_kinds)
        distributed.add_([for_every, every_kind, loss])
        self._step("entities", for_every, rate)
        self._step("relations", every_kind, rate)
        return loss


class ShardedTables(Tables):
    """Entity rows that lie in several processes; relations in each of them."""

    asked: Asked  # for the batch that was gathered last

    def gather(self, batch: Batch) -> list[Tensor]:
        self.asked = Asked(batch.unique, self.shard)
        rows = self.asked.answers(self.vectors["entities"])  # (U, d)
        return [rows.index_select(0, batch.slots), self.vectors["relations"].index_select(0, batch.relations)]

    def move(self, batch: Batch, gradients: Sequence[Tensor], loss: Tensor, rate: Rate) -> Tensor:
        rows, merged = self.asked.added(self._merged(batch, gradients[0]))
        self._step("entities", merged, rate, rows)
        every_kind = self._every_kind(batch, gradients[1])
        touched = every_kind.new_zeros(len(every_kind)).index_fill_(0, batch.relations, 1)  # by this process
        distributed.add_([every_kind, touched, loss])
        kinds = touched.nonzero().squeeze(1)  # by any
        self._step("relations", every_kind.index_select(0, kinds), rate, kinds)
        return loss

    def part(self) -> tuple[Tensor, Shard]:
        return self.vectors["entities"], self.shard

    def whole(self, table: Tensor, place: Path | None = None) -> Tensor:
        """All rows in each process: in memory, or in the file `place` that the first one writes and the others map."""
        total, count = self.shard.total, self.shard.count
        size, kind = (total, table.shape[1]), table.new_empty(0, device="cpu").numpy().dtype
        lengths = [len(Shard(total, rank, count)) for rank in range(count)]
        takers = count if place is None else 1  # the first so many processes bring the rows together
        takes, rows = distributed.rank() < takers, None
        if takes:
            rows = np.empty(size, kind) if place is None else np.memmap(place, kind, "w+", shape=size)
        for start in range(0, self.shard.most, PIECE):
            piece = table[start : start + PIECE]
            sent = [len(piece) if rank < takers else 0 for rank in range(count)]
            received = [len(range(n)[start : start + PIECE]) if takes else 0 for n in lengths]
            came = distributed.exchanged(piece.repeat(takers, 1), sent, received)
            for rank, part in enumerate(came.cpu().split(received)):
                if rows is not None:
                    rows[rank + start * count :: count][: len(part)] = part.numpy()
        if isinstance(rows, np.memmap):
            rows.flush()
        distributed.gathered(None)
        if rows is None and place is not None:
            rows = np.memmap(place, kind, "c", shape=size)
        return torch.from_numpy(rows)


def shard_of(settings: EmbeddingSettings, entities: int) -> Shard:
    """Which entities' rows this process keeps: all of them in one-vs-all, where all are needed in each step."""
    dense = settings.regime == "one-vs-all"
    return Shard(entities) if dense else Shard(entities, distributed.rank(), distributed.count())


def tables_of(settings: EmbeddingSettings, shard: Shard, vectors: dict[str, Tensor]) -> Tables:
    """Tables with these first vectors of entities (n, d) and relations (2R, w)."""
    if settings.regime == "one-vs-all":
        return DenseTables(shard, vectors, settings)
    return (Tables if shard.count == 1 else ShardedTables)(shard, vectors, settings)
